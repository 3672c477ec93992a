"""Rows of the user's own beside tasks: OpenRLHF's agent plays them, and the user's function rewards them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from gem_openrlhf import _dataset, _train_ppo_ray
from gem_openrlhf._executor import GemExecutor
from gem_openrlhf._labels import OwnLabel, names_task, openrlhf_row, played_of, source_of, task_of, write
from gem_openrlhf._preview import preview
from openrlhf.trainer import ppo_trainer
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from openrlhf.utils.agent import AgentExecutorBase, SingleTurnAgentExecutor
from vllm import SamplingParams

import gem_core
from gem_core.errors import ConfigError, EnvError
from gem_core.tasks import EVAL_SEEDS, EnvChoice, TaskRow, make_tasks
from tests.rollout.tokenizers import bpe_tokenizer
from tests.support import ScriptedEnv
from tests.trainers.openrlhf.args import AGENT, experience_maker, parse
from tests.trainers.openrlhf.conftest import GUESS, MASTERMIND
from tests.trainers.openrlhf.test_executor import ScriptedWorker
from tests.trainers.preflight import write_questions

gem_core.register("test:OwnRowsScripted", ScriptedEnv)
TASK = openrlhf_row(TaskRow(env_id="test:OwnRowsScripted", env_kwargs={}, seed=11, index=3))
REWARD = """
import torch

def reward_func(queries, prompts, labels):
    (query,), (prompt,), (label,) = queries, prompts, labels
    assert query.startswith(prompt)
    result = {result}
    return result
"""
GIVES = (
    "dict(rewards=torch.tensor([float(label == '4')]), scores=torch.tensor([0.5]), extra_logs={'right': 7.0})"
)


def agent(folder: Path, result: str = GIVES) -> GemExecutor:
    """Return the agent with a reward function that returns `result`."""
    file = folder / "reward.py"
    file.write_text(REWARD.format(result=result))
    return GemExecutor({"remote_url": str(file), "max_turns": 2})


def play(executor: AgentExecutorBase, rows: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    """Return the sample of each prompt and label."""
    tokenizer = bpe_tokenizer("chatml")
    worker = ScriptedWorker(tokenizer, ["I say \\boxed{5}<|im_end|>", "7<|im_end|>"])

    async def run() -> list[dict[str, Any]]:
        calls = [
            executor.execute(prompt, label, SamplingParams(max_tokens=32, logprobs=1), 400, tokenizer, worker)
            for prompt, label in rows
        ]
        return await asyncio.gather(*calls)

    return asyncio.run(run())


def samples(responses: list[dict[str, Any]]) -> list[Any]:
    """Return OpenRLHF's samples of responses, before it makes micro-batches of them."""
    make = SamplesGenerator._process_response_into_experience
    return [make(None, response, max_len=400) for response in responses]


def batches_of(maker: Any, responses: list[dict[str, Any]]) -> list[Any]:
    """Return OpenRLHF's micro-batches of responses, as they are before it computes advantages."""
    maker.tokenizer = SimpleNamespace(pad_token_id=0)
    maker.args.rollout.micro_batch_size = 3
    batches: list[Any] = maker.split_rollout_samples(samples(responses))
    for batch in batches:
        batch.kl = torch.zeros(batch.action_mask.shape)
    return batches


QUESTIONS = [("2 + 2?", OwnLabel("sums", "4")), ("3 + 3?", "6"), ("1 + 3?", OwnLabel("sums", "4"))]


@pytest.mark.parametrize("estimator", ["rebn", "gem_grpo", "gem_reinforce", "group_norm", "reinforce"])
def test_every_row_has_its_own_reward(estimator: str, tmp_path: Path) -> None:
    rows = [*QUESTIONS, (TASK["input"], TASK["label"])]
    *questions, game = play(agent(tmp_path), rows)
    assert [row["reward"] for row in questions] == [1.0, 0.0, 1.0]
    assert [row["scores"] for row in questions] == [0.5] * 3
    assert [source_of(row["label"]) for row in [*questions, game]] == [
        "sums", "default", "sums", "test:OwnRowsScripted"
    ]  # fmt: skip
    words = ("--algo.advantage.estimator", estimator, "--rollout.n_samples_per_prompt", "2")
    maker = experience_maker(*words)
    batches = maker.compute_advantages_and_returns(batches_of(maker, [*questions, game]))
    masks = [row for batch in batches for row in batch.action_mask]
    assert all(mask.any() for mask in masks)
    given = [float(value) for batch in batches for value in batch.info["return"]]
    assert given[:3] == pytest.approx([1.0, 0.0, 1.0]) or estimator == "group_norm"
    info = batches[0].info
    assert info["gem/played/sums"][0] == 2
    assert info["gem/played/default"][0] == info["gem/played/test:OwnRowsScripted"][0] == 1
    assert info["gem/failed/sums"][0] == info["gem/filled"][0] == 0
    played = played_of(game["label"])
    assert played is not None
    assert info["gem/return"][0] == pytest.approx(sum(played.episode.rewards))  # of environments only
    assert torch.cat([batch.info["right"] for batch in batches]).tolist() == [7.0] * 4
    if estimator == "gem_reinforce":
        by_row = [
            row[mask != 0]
            for batch in batches
            for row, mask in zip(batch.advantages, batch.action_mask, strict=True)
        ]
        assert [set(row.tolist()) for row in by_row[:3]] == [{1.0}, {0.0}, {1.0}]


def test_the_row_is_the_one_of_openrlhfs_own_agent(tmp_path: Path) -> None:
    executor = agent(tmp_path)
    (mine,) = play(executor, QUESTIONS[:1])
    assert executor.options.remote_url is not None
    (theirs,) = play(SingleTurnAgentExecutor([executor.options.remote_url]), [("2 + 2?", "4")])
    for name in (
        "observation_tokens",
        "action_ranges",
        "rollout_log_probs",
        "truncated",
        "prompt",
        "extra_logs",
    ):
        assert mine[name] == theirs[name]
    assert mine["action_ranges"] == [(start, end) for start, end in theirs["action_ranges"] if end > start]
    assert mine["reward"] == float(theirs["reward"])


@pytest.mark.parametrize(
    ("result", "cause"),
    [
        ("{}[label]", "KeyError: '4'"),
        ("None", "returned no reward"),
        ("dict(scores=1.0)", "returned no reward"),
        ("dict(rewards=float('nan'))", "returned nan: expected one finite number"),
        ("dict(rewards=torch.tensor([1.0, 2.0]))", "expected one finite number"),
        ("dict(rewards='good')", "returned 'good'"),
        ("dict(rewards=1 / 0)", "ZeroDivisionError"),
        ("[1.0]", "the reward function returned [1.0]: expected a dict with rewards"),
    ],
)
def test_a_row_without_a_reward_is_lost_and_named(result: str, cause: str, tmp_path: Path) -> None:
    (lost,) = play(agent(tmp_path, result), QUESTIONS[:1])
    assert lost["action_ranges"] == []
    (game,) = play(agent(tmp_path), [(TASK["input"], TASK["label"])])
    maker = experience_maker("--algo.advantage.estimator", "gem_reinforce")
    with pytest.raises(EnvError, match="all 8 episodes of sums are lost") as raised:
        maker.compute_advantages_and_returns(batches_of(maker, [lost] * 8 + [game]))
    assert cause in str(raised.value)
    with pytest.raises(EnvError, match="a row of sums") as raised:
        maker.compute_advantages_and_returns(batches_of(maker, [lost, lost]))
    assert cause in str(raised.value)


def test_a_lost_row_counts_for_its_source_only(tmp_path: Path) -> None:
    (lost,) = play(agent(tmp_path, "None"), QUESTIONS[:1])
    right, game = play(agent(tmp_path), [QUESTIONS[0], (TASK["input"], TASK["label"])])
    maker = experience_maker("--algo.advantage.estimator", "gem_grpo", "--rollout.n_samples_per_prompt", "2")
    batches = maker.compute_advantages_and_returns(batches_of(maker, [right, lost, game, game]))
    info = batches[0].info
    assert (info["gem/played/sums"][0], info["gem/failed/sums"][0], info["gem/filled"][0]) == (1, 1, 1)
    assert info["gem/error_rate"][0] == 0
    assert not torch.cat([row.flatten() for batch in batches for row in batch.advantages]).any()


def test_rewards_of_any_form_of_a_number(tmp_path: Path) -> None:
    for value in (
        "1",
        "1.0",
        "True",
        "torch.tensor(1.0)",
        "torch.tensor([1])",
        "torch.tensor([[1.0]])",
        "[1.0]",
        "torch.tensor(1.0).numpy()[()]",
    ):
        (row,) = play(agent(tmp_path, f"dict(rewards={value})"), QUESTIONS[:1])
        assert (row["reward"], row["scores"]) == (1.0, 1.0)
        assert isinstance(row["reward"], float)


def test_an_agent_of_ones_own_plays_the_other_rows() -> None:
    class Own(AgentExecutorBase):  # type: ignore[misc]
        async def execute(self, prompt: str, label: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
            return {
                "prompt": prompt, "label": label, "observation_tokens": [1, 2], "action_ranges": [(1, 2)],
                "rollout_log_probs": None, "reward": 3, "extra_logs": {},
            }  # fmt: skip

    own, game = play(GemExecutor({}, others=Own()), [("p", "x"), (TASK["input"], TASK["label"])])
    assert (own["reward"], own["scores"], own["label"]) == (3.0, 3.0, OwnLabel("default", "x"))
    assert played_of(game["label"])


@pytest.mark.parametrize("label", [None, '{"env_id": "game:X"}', '{"env_id": "", "seed": "x"}'])
def test_a_broken_task_is_not_left_to_another_agent(label: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="names no task"):
        play(agent(tmp_path), [("p", label)])


def test_gae_rejects_a_batch_of_both(tmp_path: Path) -> None:
    responses = play(agent(tmp_path), [QUESTIONS[0], (TASK["input"], TASK["label"])])
    maker = experience_maker("--algo.advantage.estimator", "gae")
    batches = batches_of(maker, responses)
    with pytest.raises(ConfigError, match="gae works on the turns of gem_core's rows"):
        maker.compute_advantages_and_returns(batches)


def loaders(*words: str) -> tuple[list[Any], list[Any]]:
    """Return the rows of OpenRLHF's training and evaluation data: datasource, prompt, label, and images."""
    args = parse(*words)
    strategy = SimpleNamespace(args=args, print=print, is_rank_0=lambda: True)
    strategy.setup_dataloader = lambda data, *rest, **more: data
    tokenizer = SimpleNamespace(
        apply_chat_template=lambda chat, **_: f"<user>{chat[0]['content']}<assistant>"
    )
    wrapped = _dataset.prepare_datasets(ppo_trainer.prepare_datasets)
    train, evaluation, _ = wrapped(strategy, tokenizer)
    return [list(train[n]) for n in range(len(train))], [
        list(evaluation[n]) for n in range(len(evaluation) if evaluation else 0)
    ]


def question_words(folder: Path, *words: str) -> list[str]:
    write_questions(folder)
    (folder / "reward.py").write_text(REWARD.format(result=GIVES))
    return [
        "--data.input_key", "question", "--data.label_key", "answer", "--data.apply_chat_template",
        "--reward.remote_url", "reward.py", "--algo.advantage.estimator", "gem_reinforce", *words,
    ]  # fmt: skip


def test_an_environment_is_a_word_among_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = f"gsm8k/train.jsonl,{GUESS}=0.25, game:GuessTheNumber-v0(max_number=50, max_turns=3)=0.5"
    evaluated = f"gsm8k/test.jsonl,{GUESS}=0.5"
    words = question_words(tmp_path, "--data.prompt_dataset", data, "--eval.dataset", evaluated)
    train, evaluation = loaders(*words)
    other = "game:GuessTheNumber-v0(max_number=50, max_turns=3)"
    assert Counter(row[0] for row in train) == {"default": 16, GUESS: 4, other: 8}
    questions = [row for row in train if row[0] == "default"]
    assert [row[1] for row in questions] == [f"<user>What is {n} + {n}?<assistant>" for n in range(16)]
    assert [row[2] for row in questions] == [OwnLabel("default", str(2 * n)) for n in range(16)]
    tasks = [task_of(row[2]) for row in train if row[0] != "default"]
    assert not {task["seed"] for task in tasks} & set(EVAL_SEEDS)
    assert len({task["index"] for task in tasks}) == 12
    assert len({row[1] for row in train}) == 28
    assert {row[0] for row in train[:7]} == {"default", GUESS, other}  # a part has all of them
    assert Counter(row[0] for row in evaluation) == {"default": 16, GUESS: 8}
    held_out = [task_of(row[2])["seed"] for row in evaluation if row[0] == GUESS]
    assert held_out == list(range(8))
    assert train == loaders(*words)[0]
    reseeded = [task_of(row[2]) for row in loaders(*words, "--train.seed", "7")[0] if row[0] != "default"]
    assert not {task["seed"] for task in tasks} & {task["seed"] for task in reseeded}
    capped = loaders(*words[:-2], "--data.max_samples", "7")[0]
    assert Counter(row[0] for row in capped) == {"default": 4, GUESS: 1, other: 2}


def test_environments_alone_need_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(
        "from gem_envs._games.guess_the_number import GuessTheNumber\n\nclass Own(GuessTheNumber): ...\n"
    )
    data = f"{GUESS}=3,own.py:Own,{MASTERMIND}"
    words = ["--algo.advantage.estimator", "rebn", "--data.prompt_dataset", data, "--data.max_samples", "500"]
    train, _ = loaders(*words)
    counts = Counter(row[0] for row in train)
    assert counts[GUESS] == pytest.approx(300, abs=50)
    assert counts[f"{tmp_path / 'own.py'}:Own"] == pytest.approx(100, abs=40)
    assert all(names_task(row[2]) for row in train)
    reseeded, _ = loaders(*words, "--train.seed", "7")
    assert not {task_of(row[2])["seed"] for row in train} & {task_of(row[2])["seed"] for row in reseeded}


def test_exported_tasks_stay_tasks_beside_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exported = list(make_tasks([EnvChoice.parse(MASTERMIND)], 4))
    write(exported, tmp_path / "exported.jsonl")
    words = ["--algo.advantage.estimator", "rebn", "--data.label_key", "label"]
    train, _ = loaders(*words, "--data.prompt_dataset", f"exported.jsonl,{GUESS}=0.5")
    assert Counter(row[0] for row in train) == {MASTERMIND: 4, GUESS: 2}
    assert [task_of(row[2]) for row in train if row[0] == MASTERMIND] == exported


def test_a_named_environment_stays_itself_in_a_list_of_data() -> None:
    word = f"{GUESS}(max_turns=3) as guess=2"
    files, envs = _dataset.split_words(f"rows.jsonl,{word},{MASTERMIND}")
    assert [env.label for env in envs] == ["guess", MASTERMIND]
    assert _dataset.split_words(_dataset.join_words(files, envs)) == (files, envs)
    for rows in (None, 2):
        tasks = _dataset.tasks_beside(envs, "train", rows, seed=0)
        assert {task["env_id"] for task in tasks} == {GUESS, MASTERMIND}
        assert {EnvChoice.of(task).label for task in tasks} == {"guess", MASTERMIND}


def test_rows_of_files_keep_their_labels_for_other_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = question_words(tmp_path, "--data.prompt_dataset", "gsm8k/train.jsonl")
    assert [row[2] for row in loaders(*words)[0]] == [str(2 * n) for n in range(16)]
    (tmp_path / "sourced.jsonl").write_text('{"question": "1?", "answer": "1", "datasource": "ones"}\n')
    words[-1] = "sourced.jsonl"
    (row,) = loaders(*words, *AGENT[:2])[0]
    assert row == ["ones", "<user>1?<assistant>", OwnLabel("ones", "1"), None]
    words[-1] = "sourced.jsonl,gsm8k/train.jsonl"  # in which rows without the column get None
    assert Counter(row[0] for row in loaders(*words, *AGENT[:2])[0]) == {"ones": 1, "default": 16}


def plan_and_rows(*words: str) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    """Return the number of rows of each source in the plan of a run, and in OpenRLHF's own data."""
    plans: list[Any] = []
    with mock.patch.object(_train_ppo_ray, "preview", lambda *args: plans.append(preview(*args))):
        train, evaluation = loaders(*words)
    planned: dict[str, dict[str, int]] = {"train": {}, "eval": {}}
    for source in plans[0].sources:
        planned[source.split][source.source] = source.rows
    sources = {"train": train, "eval": evaluation}
    return planned, {split: dict(Counter(row[0] for row in rows)) for split, rows in sources.items()}


def write_lines(name: str, rows: list[dict[str, Any]]) -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_label_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenRLHF passes the reward function None for a missing label, and "" without --data.label_key."""
    monkeypatch.chdir(tmp_path)
    words = question_words(tmp_path)
    write_lines("some.jsonl", [{"question": "1?", "answer": "1"}, {"question": "2?", "answer": None}])
    write_lines("none.jsonl", [{"question": "3?"}])
    data = ("--data.prompt_dataset", f"some.jsonl,none.jsonl,{GUESS}")
    questions = {row[1][6:8]: row[2] for row in loaders(*words, *data)[0] if row[0] == "default"}
    labels = {"1?": "1", "2?": None, "3?": None}
    assert questions == {name: OwnLabel("default", label) for name, label in labels.items()}
    with pytest.raises(ConfigError, match=r"none.jsonl, line 1: no label in the column 'answer'; set"):
        loaders(*words, "--data.prompt_dataset", f"none.jsonl,{GUESS}")
    without = [word for word in words if word not in ("--data.label_key", "answer")]
    rows = loaders(*without, *data)[0]
    assert [row[2] for row in rows if row[0] == "default"] == [OwnLabel("default", "")] * 3
    assert [names_task(row[2]) for row in rows if row[0] == GUESS] == [True] * 3
    (played,) = play(
        agent(tmp_path, "dict(rewards=float(label is None))"), [("3?", OwnLabel("default", None))]
    )
    assert played["reward"] == 1.0


@pytest.mark.parametrize("source", [0, 7, False, 1.5, ["a"], {"of": "a"}, "a", "", None])
def test_a_source_may_be_any_value(source: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines("own.jsonl", [{"question": "1?", "answer": "1", "datasource": source}] * 2)
    words = question_words(tmp_path, "--data.prompt_dataset", f"own.jsonl,{GUESS}")
    planned, read = plan_and_rows(*words)
    assert (
        planned
        == read
        == {"train": {"default" if source in ("", None) else str(source): 2, GUESS: 2}, "eval": {}}
    )


NAMES = ["a=1", "a b", "p\u00e4th", "a(1)", "a(1", "a)", "a:b", "it's", "a(it's)", 'a"b', "*"]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_may_have_any_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = question_words(tmp_path)
    for file in ["b", "c"] if name == "*" else [name]:
        write_lines(f"{file}.jsonl", [{"question": "1?", "answer": "1"}] * 2)
    planned, read = plan_and_rows(*words, "--data.prompt_dataset", f"{name}.jsonl,{GUESS}(max_turns=3)=0.5")
    rows = 4 if name == "*" else 2
    assert planned == read == {"train": {"default": rows, f"{GUESS}(max_turns=3)": rows // 2}, "eval": {}}


@pytest.mark.parametrize("indent", [None, 1])
def test_a_file_of_lines_may_be_one_list(
    indent: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = question_words(tmp_path, "--data.prompt_dataset", f"list.jsonl,{GUESS}")
    Path("list.jsonl").write_text(json.dumps([{"question": "1?", "answer": "1"}] * 2, indent=indent))
    planned, read = plan_and_rows(*words)
    assert planned == read == {"train": {"default": 2, GUESS: 2}, "eval": {}}


@pytest.mark.parametrize(
    ("words", "lost"),
    [
        (("--data.prompt_probs", "0.5,0.5"), ""),
        (("--data.prompt_probs", "0.5,0.5", "--data.max_samples", "10"), ""),
        (("--data.max_samples", "10"), "leaves no row of two"),
        (("--data.max_samples", "60"), ""),
        (("--data.max_samples", "10", "--eval.dataset", f"two.jsonl,{GUESS}=0.05"), f"no row of {GUESS}"),
        (("--data.max_samples", "60", "--eval.dataset", f"two.jsonl,{GUESS}=0.05"), ""),
    ],
)
def test_the_plan_has_the_rows_of_the_run(
    words: tuple[str, ...], lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, count in (("one", 10), ("two", 100)):
        write_lines(f"{name}.jsonl", [{"question": "1?", "answer": "1", "datasource": name}] * count)
    files = "two.jsonl" if "--eval.dataset" in words else "one.jsonl,two.jsonl"
    given = question_words(tmp_path, "--data.prompt_dataset", f"{files},{GUESS}=0.5", *words)
    if lost:
        with pytest.raises(ConfigError, match=lost):
            loaders(*given)
    else:
        planned, read = plan_and_rows(*given)
        assert planned == read
        assert len(read["train"]) == (2 if files == "two.jsonl" else 3)


def test_an_environment_that_is_listed_twice_has_both_weights() -> None:
    files, envs = _dataset.split_words(f"a.jsonl,{GUESS}=0.25,{MASTERMIND},{GUESS}=0.5")
    assert (files, [(env.label, env.weight) for env in envs]) == (
        ["a.jsonl"],
        [(GUESS, 0.75), (MASTERMIND, 1)],
    )
    tasks = _dataset.tasks_beside(envs, "eval", 8, seed=0)
    assert len({(task["env_id"], task["seed"]) for task in tasks}) == 6 + 8
    with pytest.raises(ConfigError, match="are named 'a'; change one name"):
        _dataset.split_words(f"{GUESS} as a,{MASTERMIND} as a")


def test_words_with_absolute_paths_are_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a b", "a=b", "a(b)"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        files, envs = _dataset.split_words("rows.jsonl,own.py:Own(max_turns=3)=0.123456789")
        assert _dataset.split_words(_dataset.join_words(files, envs)) == (files, envs)
    (tmp_path / "a,b").mkdir()
    monkeypatch.chdir(tmp_path / "a,b")
    with pytest.raises(ConfigError, match="move the file to a folder without commas"):
        _dataset.join_words(*_dataset.split_words("own.py:Own"))


def test_the_runs_flags_reach_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = question_words(tmp_path, "--data.prompt_dataset", f"gsm8k/train.jsonl,{GUESS}")
    args = parse(*words)
    assert args.train.agent_func_path == AGENT[1]
    assert args.data.prompt_dataset == f"gsm8k/train.jsonl,{GUESS}=1"
