"""`gem-core doctor --trainer rl2` checks the overrides of a run without starting it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from gem_rl2._rows import write
from gem_rl2._upstream import SPLITS, find

from gem_core.tasks import EnvChoice, make_tasks
from tests.trainers.preflight import SILENT_SERVER, TRUNCATED, check_mistakes, own_words, plan_of, problem_of


def accepted() -> list[str]:
    """Return overrides that are accepted with rows in ``train.jsonl``."""
    section, test = map(find().data_section, SPLITS)
    return [
        f"{section}.path=train.jsonl",
        f"{test}.path=train.jsonl",
        f"{section}.prompts_per_rollout=16",
        f"{section}.responses_per_prompt=4",
        f"{'rollout' if find().is_index else 'rollout.train'}.dynamic_filtering=false",
        "adv.estimator=rebn",
        "adv.gamma=0.9",
        "actor.model_name=org/no-such-model",
        "actor.max_length_per_device=4096",
        *([] if find().is_index else ["trainer.total_steps=3"]),
    ]


def test_mistakes_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(make_tasks([EnvChoice("game:GuessTheNumber-v0-easy")], 20), "train.jsonl")
    rows = Path("train.jsonl").read_text()
    Path("wrong.jsonl").write_text(rows.replace("GuessTheNumber", "GuesTheNumber"))
    Path("conf").mkdir()
    Path("conf/mine.yaml").write_text(
        "defaults: [ppo, _self_]\nadv: {gamma: 0.5}\ntrainer:\n  test_freq: ${every}\n"
    )
    section = find().data_section("train")
    mistakes = {
        (f"{section}.path=nosuch.jsonl",): "nosuch.jsonl: there is no such file; `gem-core export --to rl2`",
        (f"{section}.path=test@train.jsonl",): "a file has only the split train",
        (f"{section}.path=train@x@train.jsonl",): "train@x@train.jsonl",
        (f"{section}.path='train[:0]@train.jsonl'",): "has no rows",
        (f"{section}.path='train[:-15]@train.jsonl'",): "has only 5 rows",
        ("--config-path=conf",): "--config-path='conf': expected a whole path",
        ("--config-path=/nosuch",): "nosuch",
        ("+foo=3",): "+foo: nothing reads this option",
        ("++gamma=0.5",): "+gamma: nothing reads this option",
        ("+adv.rebn={dof: 1}",): "unknown option 'adv.rebn.dof' of rebn",
        ("--cfg=job",): "--cfg does not start one run",
        ("--config-nam=mine",): "hydra does not read '--config-nam=mine' here",
        ("--config-dir=nosuch",): "--config-dir=nosuch: there is no such folder",
        (f"{section}.path=wrong.jsonl",): "GuessTheNumber",
        ("+gem.max_turn=8",): "unknown option 'gem.max_turn'",
        ("+gema.max_turns=8",): "+gema.max_turns: nothing reads this option",
        ("+adv.rebm.ddof=1",): "+adv.rebm.ddof: nothing reads this option",
        ("+adv.gem_grpo.ddof=1",): "options of the estimator are under its name, as +adv.rebn.<option>",
        ("+trainer.max_steps=9",): "+trainer.max_steps: nothing reads this option",
        ("++trainer.test_frq=9",): "+trainer.test_frq: nothing reads this option",
        ("++adv.gem_grpo.ddof=1",): "options of the estimator are under its name, as +adv.rebn.<option>",
        (f"{section}.path=[train.jsonl]",): "expected the path of one file",
        ("+adv.rebn.ddof=one",): "adv.rebn={'ddof': 'one'}: ddof='one': expected 0 or 1",
        ("adv.gama=0.9",): "gama",
        ("adv.gamma=1.2",): "gamma=1.2: expected a number from 0 to 1",
        ("adv.estimator=rebm",): "rebn",
    }
    check_mistakes("rl2", accepted(), mistakes, capsys)
    words = ["++adv.gamma=0.5", "++trainer.test_freq=2", "++gem.max_turns=1"]
    assert problem_of("rl2", [*accepted(), *words], capsys) is None
    flags = ["--config-dir=conf", "--config-name=mine"]
    lines = plan_of("rl2", [*flags, *accepted(), "+every=4", "+adv.rebn={ddof: 1}"], capsys)
    assert "estimator: rebn(gamma=0.9, ddof=1), statistics of all turns collected for a step" in lines
    assert not any("test_freq" in line for line in lines)


def test_each_split_takes_its_rows_of_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows for evaluation only may be in the part that no training reads."""
    monkeypatch.chdir(tmp_path)
    sources = [EnvChoice("game:GuessTheNumber-v0-easy")]
    write([*make_tasks(sources, 20), *make_tasks(sources, 4, split="eval")], "both.jsonl")
    train, test = (find().data_section(split) for split in SPLITS)
    words = [word for word in accepted() if ".path=" not in word]
    paths = [f"{train}.path='train[:20]@both.jsonl'", f"{test}.path='train[20:]@both.jsonl'"]
    lines = plan_of("rl2", [*words, *paths, "trainer.test_freq=2"], capsys)
    assert [line.split(" of ")[0] for line in lines[:2]] == ["train: 20 rows", "eval: 4 rows"]


def test_a_custom_environment_is_accepted(
    own_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    own_words("rl2", own_id)
    assert problem_of("rl2", accepted(), capsys) is None
    Path("train.jsonl").write_text(Path("train.jsonl").read_text().replace("Cold", "Gold"))
    assert "Gold" in str(problem_of("rl2", accepted(), capsys))


def test_a_server_must_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    own_words("rl2", SILENT_SERVER)
    assert "Connection refused" in str(problem_of("rl2", accepted(), capsys))


def test_the_plan_says_what_a_run_would_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sources = [EnvChoice.parse("game:GuessTheNumber-v0-easy=3"), EnvChoice("game:Mastermind-v0-easy")]
    write(make_tasks(sources, 40), "train.jsonl")
    write(make_tasks(sources[:1], 5, split="eval"), "test.jsonl")
    upstream = find()
    sampling, test = upstream.sampling_section("train"), upstream.data_section("test")
    words = [
        *accepted(), f"{test}.path=test.jsonl", "trainer.test_freq=2", f"{sampling}.max_new_tokens=50",
        f"+{sampling}.top_k=20", "actor.max_length_per_device=1000", "+gem.max_turns=3", "+adv.rebn.ddof=1",
    ]  # fmt: skip
    words += ["rollout.max_turns=8"] if upstream.is_index else []
    lines = plan_of("rl2", words, capsys)
    played = "played by gem_rl2, rewarded by the environment"
    counts = Counter(EnvChoice.of(task).label for task in make_tasks(sources, 40))
    assert lines == [
        *(f"train: {n} rows of {label}, {played}" for label, n in counts.items()),
        f"eval: 5 rows of game:GuessTheNumber-v0-easy, {played}",
        "estimator: rebn(gamma=0.9, ddof=1), statistics of all turns collected for a step",
        "tokens: an episode has 3 turns of at most 50 sampled tokens, 150 in all; "
        "actor.max_length_per_device=1,000 leaves 850 for prompt and observations",
        f"note: {sampling}.top_k=20: {TRUNCATED}",
    ]
    Path("own.py").write_text("")
    own = [word for word in accepted() if "estimator" not in word and not word.startswith(f"{test}.path")]
    own = [*own, "actor.max_length_per_device=1000", f"{test}.path=org/held"]
    lines = plan_of("rl2", [*own, "rollout.env_path=own.py", "adv.estimator=reinforce"], capsys)
    assert lines == [
        "train: rows of train.jsonl, played by own.py, rewarded by own.py",
        "eval: rows of org/held, played by own.py, rewarded by own.py",
        "estimator: RL2's reinforce, gamma=0.9",
        "tokens: own.py limits an episode, and actor.max_length_per_device=1000 a row",
        "note: trainer.test_freq is not set: no evaluation takes place",
    ]
