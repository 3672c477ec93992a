"""A user of GRPO with rows like GSM8K's adds a game beside them, as the page says.

It takes about 20 s on two CPU cores, not counting the training run of the session `verl-full`.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from gem_core.rollout import read_traces
from gem_lab import main
from tests.docs.blocks import blocks, commands, split_commands
from tests.trainers import evidence
from tests.trainers.preflight import SILENT_SERVER, check_mistakes, own_words, problem_of
from tests.trainers.verl import harness
from tests.trainers.verl.mixes import answered, guess, question, write
from tests.trainers.verl.spied import metrics_of, updates

PAGE = "docs/trainers/verl.md"
USER = [
    "data.train_batch_size=8",
    "data.max_prompt_length=512",
    "data.max_response_length=1024",
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.n=4",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1",
    "trainer.n_gpus_per_node=1",
]
"""Overrides of a user of GRPO."""
OVERRIDES = {'"$@"': shlex.join(USER)}

GENERATED = [
    "data.custom_cls.path=pkg://gem_verl.dataset",
    "data.custom_cls.name=GemDataset",
    "data.val_files=['game:Mastermind-v0-easy']",
]
GUESS = "game:GuessTheNumber-v0-easy"
MAIN = ["python", "-m", "verl.trainer.main_ppo"]
BEFORE, AFTER = (f'main_ppo "$@" algorithm.adv_estimator={name} ' for name in ("grpo", "gem_grpo"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the user's files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gsm8k").mkdir()
    write("pandas", [question(number) for number in range(20)], tmp_path / "gsm8k", "train")
    write("datasets", [question(number, "test") for number in range(8)], tmp_path / "gsm8k", "test")
    return tmp_path


def documented(text: str, start: list[str], values: dict[str, str] = OVERRIDES) -> list[str]:
    """Return the arguments of the page's command in the block that contains a text."""
    (words,) = commands(PAGE, text, values)
    assert words[: len(start)] == start
    return words[len(start) :]


def test_the_page_is_accepted_and_mistakes_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = documented(BEFORE, MAIN), documented(AFTER, MAIN)
    start = ["gem-core", "doctor", "--trainer", "verl", "--"]
    assert documented('doctor --trainer verl -- "$@"', start) == after
    assert problem_of("verl", before, capsys) is None
    mistakes = {
        ("+gem.max_turn=3",): "unknown option 'gem.max_turn'",
        ("algorithm.gama=0.9",): "gama",
        ("algorithm.gamma=1.2",): "algorithm.gamma=1.2: expected a number from 0 to 1",
        ("trainer.v1.trainer_mode=gem_synk",): "Unknown trainer 'gem_synk'",
        (
            "trainer.v1.trainer_mode=sync",
        ): "name no agent loop only if no other row names one; use trainer.v1",
        ("algorithm.adv_estimator=gem_gpro",): "gem_grpo",
        ("algorithm.norm_adv_by_std_in_grpo=False",): "has no effect on gem_grpo",
        ("data.train_batch_size=7",): "ppo_mini_batch_size",
        ("data.val_files=[gsm8k/none.parquet]",): "none.parquet",
        (f"data.train_files=['gsm8k/train.parquet=2','{GUESS}']",): "a file has no weight",
        ("+gem.wrappers=concatenate",): "concatenate",
        ("data.train_files=[gsm8k/train.parquet,'game:GuesTheNumber-v0']",): "GuessTheNumber",
        ("data.train_files=['game:GuessTheNumber-v0(max_numbr=9)']",): "max_numbr",
    }
    check_mistakes("verl", after, mistakes, capsys)
    assert not ray.is_initialized()


def test_the_readme_shows_the_words_of_the_page() -> None:
    (code,) = [block.code for block in blocks("README.md") if "GemDataset" in block.code]
    (shown,) = [words for words in split_commands(code) if words[:3] == MAIN]
    assert set(shown[3:]) - {"..."} <= {*documented(AFTER, MAIN)}


def test_the_plan_of_the_page_is_that_of_the_doctor(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The numbers of rows are those of GSM8K, which the files of this test do not have."""
    assert main(["doctor", "--trainer", "verl", "--", *documented(AFTER, MAIN)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    (shown,) = [block.code for block in blocks(PAGE) if "plan estimator" in block.code]
    for count, own in (("7,473", "20"), ("1,495", "4"), ("1,319", "8")):
        assert f"{count} rows" in shown
        shown = shown.replace(f"{count} rows", f"{own} rows")
    assert out[out.index("plan train") :] == " ".join(shown.split())
    assert round(0.2 * 7473) == 1495


def test_a_custom_environment_is_accepted(own_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    accepted = [*USER, "algorithm.adv_estimator=rebn", "trainer.v1.trainer_mode=gem_sync", *GENERATED]
    assert problem_of("verl", [*accepted, *own_words("verl", own_id)], capsys) is None
    wrong = own_words("verl", own_id.replace("Cold", "Gold"))
    assert "Gold" in str(problem_of("verl", [*accepted, *wrong], capsys))


def test_a_server_must_answer(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*USER, "algorithm.adv_estimator=rebn", "trainer.v1.trainer_mode=gem_sync", *GENERATED]
    problem = problem_of("verl", [*words, *own_words("verl", SILENT_SERVER)], capsys)
    assert "Connection refused" in str(problem)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_all_rows_of_a_step_are_trained_in_three_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: Path, warm_tokenizer: Any
) -> None:
    """Each step is an epoch of 8 questions and 8 games, two samples each, with their own rewards."""
    monkeypatch.chdir(tmp_path)
    write("pandas", [guess(number) for number in range(8)], tmp_path, "train")
    write("datasets", [guess(number) for number in range(4)], tmp_path, "test")
    values = {'"$@"': "", "gsm8k/": f"{tmp_path}/", "easy=0.2": "easy=1"}
    run = harness.run_verl(
        tmp_path / "run",
        warm,
        "data.train_batch_size=16",
        "trainer.total_epochs=3",
        "actor_rollout_ref.actor.ppo_mini_batch_size=16",
        f"+gem.traces={tmp_path}/traces",
        gem=documented(AFTER, MAIN, values),
    ).check()
    games = evidence.played(run.spy, warm_tokenizer)
    traces = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    groups = {tuple(episode.rows()[0].token_ids): episode.metadata["group"] for episode in traces}
    before, *steps = metrics_of(run)
    assert before["val-aux/gem/played/lighteval/MATH"] == 4
    assert {f"val-core/{name}/mean@1" for name in ("lighteval/MATH/acc", f"{GUESS}/reward")} <= before.keys()
    scores: list[float] = []
    for update, metrics in zip(updates(run.spy), steps, strict=True):
        answers = answered(run.spy, update, warm_tokenizer)
        returns: dict[Any, list[float]] = {}
        row_scores: dict[int, tuple[Any, float]] = {}
        for row in update.rows:
            assert any(row.mask)
            if id(row) in answers:
                group, score = tuple(row.prompt), answers[id(row)].rewards[0]
                scores.append(score)
            else:
                group = groups[tuple(row.prompt + row.response)]
                score = sum(games[evidence.name_in(row.prompt, warm_tokenizer)].rewards)
            row_scores[id(row)] = group, score
            returns.setdefault(group, []).append(score)
        assert (len(update.rows), len(answers), len(returns)) == (32, 16, 16)
        assert {len(group_returns) for group_returns in returns.values()} == {2}
        for row in update.rows:
            group, score = row_scores[id(row)]
            advantage = (score - np.mean(returns[group])) / (np.std(returns[group]) + 1e-8)
            assert row.advantages == pytest.approx([advantage * on for on in row.mask], abs=1e-5)
        for source in ("lighteval/MATH", GUESS):
            assert (metrics[f"gem/played/{source}"], metrics[f"gem/failed/{source}"]) == (16, 0)
        mean = np.mean([score for _, score in row_scores.values()])
        assert metrics["critic/score/mean"] == pytest.approx(mean, abs=1e-6)
    assert len(steps) == 3
    assert set(scores) == {0.0, 1.0}
