"""`gem-core doctor --trainer openrlhf` checks a command up to the start of Ray."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import datasets
import gem_openrlhf.agent
import pytest
import ray

from gem_lab import main
from tests.trainers.openrlhf import correction, harness
from tests.trainers.openrlhf.conftest import GUESS
from tests.trainers.openrlhf.data import write_rows
from tests.trainers.preflight import SILENT_SERVER, check_mistakes, own_words, problem_of

ACCEPTED = (
    "--actor.model_name_or_path org/model --rollout.n_samples_per_prompt 4 --rollout.batch_size 64 "
    "--train.batch_size 8 "
    "--algo.advantage.estimator rebn --algo.advantage.gamma 0.9 --algo.kl.init_coef 0 --vllm.num_engines 1 "
    f"--train.agent_func_path {gem_openrlhf.agent.__file__} --data.prompt_dataset train.jsonl "
    "--data.input_key input --data.label_key label --gem.max_turns 8"
).split()
REWARD = ("--reward.remote_url", "reward.py")
MISTAKES = {
    ("--gem.max_turns_", "8"): "unrecognized arguments: --gem.max_turns_",
    ("--algo.advantage.estimator", "rebm"): "invalid choice: 'rebm'",
    ("--algo.advantage.gamma", "1.2"): "gamma=1.2: expected a number from 0 to 1",
    ("--gem.wrappers", "concatenate"): "concatenate",
    ("--data.prompt_dataset", "wrong.jsonl"): "GuessTheNumber",
    ("--rollout.micro_batch_size", "999999"): "number of sample batches",  # OpenRLHF's own check
    ("--gem.max_tokens", "3"): "flags cannot be abbreviated; write --gem.max_tokens_per_turn",
    ("--gem.max_tok=3",): "write --gem.max_tokens_per_turn",
    ("--rollout.max_new", "64"): "--rollout.max_new: flags cannot be abbreviated; write",
    ("--vllm.enforce",): "write --vllm.enforce_eager",
    ("--data.input_ke", "input"): "write --data.input_key",
    ("--data.input_key", "question"): "no column 'question', only input, label, datasource; set --data.",
    ("--data.label_key", "answer"): "but --data.label_key is 'answer'; set it to 'label'",
    ("--data.prompt_dataset", "own.jsonl"): "nothing else rewards the row; set --reward.remote_url",
    ("--data.prompt_dataset", "train.jsonl,none.jsonl"): "none.jsonl: there is no such file",
    ("--data.prompt_dataset", "text.jsonl"): "text.jsonl, line 2: ",
    ("--data.prompt_dataset", "null.jsonl"): "null.jsonl, line 1: no label in the column 'label'",
    ("--data.prompt_dataset", "broken.jsonl"): "broken.jsonl, line 1: the label",
    ("--data.prompt_dataset", "own.json"): "own.json, row 1: the label 'a' names no task",
    ("--data.prompt_dataset", "own.parquet"): "own.parquet, row 1: the label 'a' names no task",
    ("--data.prompt_dataset", "train.jsonl,game:GuesTheNumber-v0"): "Did you mean game:GuessTheNumber-v0",
    ("--data.prompt_dataset", "train.jsonl,game:GuessTheNumber-v0(max_number=5"): "is a parenthesis missing?",
    ("--data.prompt_dataset", "train.jsonl,game:GuessTheNumber-v0=-1"): "expected a weight above 0",
    ("--eval.dataset", "own.jsonl"): "own.jsonl, line 1: the label 'a' names no task",
    ("--data.prompt_dataset", "empty.jsonl"): "empty.jsonl has no rows",
    ("--data.prompt_dataset", "latin.jsonl"): "latin.jsonl: 'utf-8' codec can't decode",
    ("--data.prompt_dataset", "no-prompt.jsonl"): "no-prompt.jsonl, line 1: no prompt in the column 'input'",
    ("--data.prompt_dataset", "number.jsonl", *REWARD): "line 1: nothing plays the prompt 3 in",
    ("--data.prompt_dataset", "chat.jsonl", *REWARD): "for a list of messages, add --data",
    ("--data.prompt_dataset", "list.jsonl", *REWARD, "--data.apply_chat_template"): "plays the prompt ['a']",
    ("--data.prompt_dataset", "/none/train"): "/none/train: there is no such file",
    ("--data.prompt_dataset", "own.json1"): "own.json1: there is no such file. Did you mean own.json",
    ("--data.prompt_dataset", "data/train.jsnol"): "no such file. Did you mean data/train.jsonl?",
    ("--data.prompt_dataset", "data/train"): "data/train: there is no such file",
    ("--eval.dataset", "prompts.parqet"): "prompts.parqet: there is no such file; it reads files that end",
    ("--data.prompt_dataset", "data/prompts.txt"): "data/prompts.txt: OpenRLHF does not read such files",
    ("--data.prompt_dataset", "data/prompts.txt.gz"): "data/prompts.txt.gz: there is no such file",
    ("--actor.model_name_or_path", "./no"): "--actor.model_name_or_path ./no: there is no such folder",
    ("--data.prompt_dataset", "own.jsonl=0.5"): "own.jsonl=0.5: there is no such file",
    ("--data.prompt_dataset", "own.jsonl,numbers.jsonl", *REWARD): "numbers.jsonl: OpenRLHF cannot read",
    ("--data.prompt_split", "test"): "--data.prompt_split test: train.jsonl has no such split",
    ("--eval.dataset", "own.parquet", "--eval.split", "test"): "--eval.split test: own.parquet has no such",
    ("--data.prompt_probs", "0.5,0.5"): "0.5,0.5: expected one number for each file, 1 in all",
    ("--data.prompt_dataset", GUESS, "--data.prompt_probs", "1"): "one number for each file, 0 in all",
    ("--data.prompt_dataset", "own.jsonl,own.json", "--data.prompt_probs", "1,1", *REWARD): "cannot read",
    ("--reward.remote_url", "none.py"): "--reward.remote_url none.py: FileNotFoundError",
    ("--reward.remote_url", "plain.py"): "plain.py: expected the file to define reward_func",
    ("--reward.remote_url", "broken.py"): "--reward.remote_url broken.py: SyntaxError",
    ("--train.agent_func_path", "reward.py"): "reward.py: expected the file to define AgentExecutor",
    ("--train.agent_func_path", "plain.py"): "train.jsonl, line 1: plain.py does not use gem-core, so the",
    ("--train.agent_func_path", "plain.py", "--data.prompt_dataset", GUESS): f"{GUESS}: plain.py does not",
    ("--train.agent_func_path", "no_agent.py"): "no_agent.py: expected a .py file; gem-core's is",
    ("--train.agent_func_path", "train.jsonl"): "expected a .py file",
    ("--train.agent_func_path", ""): "line 1: nothing plays this task; add --train.agent_func_path",
    ("--train.agent_func_path", "", "--reward.remote_url", "reward.py"): "nothing plays this task",
    ("--train.agent_func_path", "", "--data.prompt_dataset", "own.jsonl"): "nothing rewards this row",
    (
        "--data.prompt_dataset", "train.jsonl,own.jsonl", "--reward.remote_url", "reward.py",
        "--data.max_samples", "2",
    ): "--data.max_samples 2 leaves no row of default",
    (
        "--data.prompt_dataset", "train.jsonl,own.jsonl", "--reward.remote_url", "reward.py",
        "--algo.advantage.estimator", "gae",
    ): "gae works on the turns of gem_core's rows",
}  # fmt: skip
"""Flags that are appended to accepted ones, and a part of the message."""


def write_files(folder: Path) -> None:
    """Write the data files of `ACCEPTED` and `MISTAKES`."""
    write_rows(folder / "train.jsonl", [GUESS], 2)
    rows = (folder / "train.jsonl").read_text()
    own = {"input": "1 + 1?", "label": "a"}
    files = {
        "wrong.jsonl": rows.replace("GuessTheNumber", "GuesTheNumber"),
        "own.jsonl": json.dumps(own) + "\n\n" + json.dumps(own | {"datasource": "sums"}) + "\n",
        "own.json": json.dumps([own]),
        "text.jsonl": rows.splitlines()[0] + "\nno JSON\n",
        "null.jsonl": '{"input": "1 + 1?", "label": null}\n',
        "empty.jsonl": "",
        "no-prompt.jsonl": '{"input": null, "label": "a"}\n',
        "number.jsonl": '{"input": 3, "label": "a"}\n',
        "chat.jsonl": '{"input": [{"role": "user", "content": "1 + 1?"}], "label": "a"}\n',
        "list.jsonl": '{"input": ["a"], "label": "a"}\n',
        "numbers.jsonl": '{"input": "1 + 1?", "label": 2}\n',
        "reward.py": "def reward_func(queries, prompts, labels): ...\n",
        "plain.py": "class AgentExecutor: ...\n",
        "mine.py": "from gem_openrlhf import GemExecutor\n\nclass AgentExecutor(GemExecutor): ...\n",
        "theirs.py": "from acme.agents import AgentExecutor\n",
        "broken.py": "def reward_func(:\n",
        "broken.jsonl": json.dumps(own | {"label": '{"env_id": "game:GuessTheNumber-v0"}'}) + "\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "data").mkdir()
    (folder / "data" / "train.jsonl").write_text(rows)
    (folder / "data" / "prompts.txt").write_text("1 + 1?\n")
    (folder / "openai" / "other").mkdir(parents=True)
    (folder / "latin.jsonl").write_bytes('{"input": "caf\u00e9", "label": "a"}\n'.encode("latin-1"))
    datasets.Dataset.from_list([own]).to_parquet(folder / "own.parquet")


def test_mistakes_are_named_before_ray_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    with mock.patch.dict(os.environ):
        check_mistakes("openrlhf", ACCEPTED, MISTAKES, capsys)
    assert not ray.is_initialized()


def plan_of(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the plan that doctor shows for accepted flags."""
    capsys.readouterr()
    with mock.patch.dict(os.environ):
        code = main(["doctor", "--trainer", "openrlhf", "--json", "--", *words])
    report = json.loads(capsys.readouterr().out)
    assert code == 0, report["problem"]
    plan: dict[str, Any] = report["plan"]
    plan["sources"] = [" | ".join(map(str, source.values())) for source in plan["sources"]]
    return plan


def test_the_plan_says_what_plays_and_rewards_each_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    ours, theirs = "gem-core's agent", "OpenRLHF's single-turn agent"
    plan = plan_of([*ACCEPTED, "--rollout.max_new_tokens", "300"], capsys)
    assert plan["sources"] == [f"train | {GUESS} | {ours} | the environment | 2"]
    assert plan["estimator"] == "rebn(gamma=0.9), statistics of all turns collected for a step"
    assert plan["budget"] == [
        "an episode has 8 turns of at most 300 sampled tokens, 2,400 in all, but it is cut at "
        "--data.max_len=2,048 tokens, observations included; the first prompt counts, too"
    ]
    assert plan["notes"] == []
    mix = ("--data.prompt_dataset", f"own.jsonl,own.parquet,{GUESS}=2", "--eval.dataset", f"own.json,{GUESS}")
    plan = plan_of(
        [*ACCEPTED, *mix, "--reward.remote_url", "reward.py", "--gem.max_tokens_per_turn", "32"], capsys
    )
    assert sorted(plan["sources"]) == sorted([
        f"train | default | {theirs} | reward.py | 2",
        f"train | sums | {theirs} | reward.py | 1",
        f"train | {GUESS} | {ours} | the environment | 6",
        f"eval | default | {theirs} | reward.py | 1",
        f"eval | {GUESS} | {ours} | the environment | 1",
    ])  # fmt: skip
    assert "256 in all; --data.max_len=2,048 leaves 1,792" in plan["budget"][0]
    assert plan["budget"][1] == (
        f"{theirs} has one response; it has at most --data.max_len=2,048 tokens with its prompt"
    )
    plan = plan_of([*ACCEPTED, "--data.prompt_dataset", f"org/prompts,{GUESS}"], capsys)
    assert plan["sources"] == [
        f"train | {GUESS} | {ours} | the environment | None",
        f"train | org/prompts | {ours}, or {theirs} if the label names no task | the environment | None",
    ]
    for agent in ("mine.py", "theirs.py"):  # the second may use gem-core through its own package
        plan = plan_of([*ACCEPTED, "--train.agent_func_path", agent], capsys)
        assert plan["sources"] == [f"train | {GUESS} | {agent} | {agent} | 2"]
    own = (
        "--data.prompt_dataset",
        "own.jsonl",
        "--train.agent_func_path",
        "",
        "--reward.model_name_or_path",
        "org/rm",
    )
    plan = plan_of([*ACCEPTED, *own, "--algo.advantage.estimator", "group_norm"], capsys)
    assert plan["sources"] == [f"train | {name} | {theirs} | org/rm | 1" for name in ("default", "sums")]
    assert plan["estimator"] == "group_norm, OpenRLHF's own"


def test_the_agent_file_is_read_once_for_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    write_rows(tmp_path / "train.jsonl", [GUESS], 50)
    with mock.patch("ast.walk", wraps=ast.walk) as walk:
        plan = plan_of([*ACCEPTED, "--train.agent_func_path", "mine.py"], capsys)
        (tmp_path / "mine.py").write_text("class AgentExecutor: ...\n")
        with mock.patch.dict(os.environ):
            problem = problem_of("openrlhf", [*ACCEPTED, "--train.agent_func_path", "mine.py"], capsys)
    assert plan["sources"] == [f"train | {GUESS} | mine.py | mine.py | 50"]
    assert problem is not None
    assert "mine.py does not use gem-core" in problem
    assert walk.call_count == 2


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (("--reward.remote_url", "reward.py"), "--reward.remote_url=reward.py rewards no row"),
        (("--reward.model_name_or_path", "org/rm"), "--reward.model_name_or_path has no effect"),
        (
            ("--algo.dynamic_filtering_enable", "--gem.estimator_options", '{"scope": "trained"}'),
            "mean return between 0 and 1, both excluded (--algo.dynamic_filtering_range)",
        ),
        (
            ("--rollout.top_p", "0.8", *harness.words(correction.flags("icepop"))),
            "--rollout.top_p=0.8 samples from a part of the distribution",
        ),
        (
            ("--algo.advantage.estimator", "group_norm", "--reward.overlong_buffer_len", "4"),
            "--reward.overlong_buffer_len counts the observations",
        ),
        (("--train.batch_size", "6"), "2 samples at the end of an epoch do not fill an update"),
        (("--data.prompt_probs", "1"), "--data.prompt_probs draws from the rows"),
        (("--eval.dataset", GUESS), "--eval.steps=-1: no evaluation takes place"),
    ],
)
def test_the_plan_notes_options_with_another_effect(
    words: tuple[str, ...],
    note: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    (found,) = plan_of([*ACCEPTED, *words], capsys)["notes"]
    assert note in found


@pytest.mark.parametrize(
    "name", ["gsm8k", "openai/gsm8k", "openai/gsm8k@main", "org/Data-v1.5", "org/math.en", "org/set.zh"]
)
def test_what_openrlhf_takes_from_the_hub_is_noted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if a folder here has the name of its organization."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    (found,) = plan_of([*ACCEPTED, "--data.prompt_dataset", name], capsys)["notes"]
    assert found.startswith(f"{name} is not a local file, so OpenRLHF loads it from the Hub")


def test_no_note_without_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    mix = ("--data.prompt_dataset", f"own.jsonl,{GUESS}", "--reward.remote_url", "reward.py")
    assert plan_of([*ACCEPTED, *mix, "--rollout.top_p", "0.8"], capsys)["notes"] == []
    assert plan_of([*ACCEPTED, *mix, *harness.words(correction.flags("icepop"))], capsys)["notes"] == []


def test_rows_that_openrlhf_can_read_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Texts with unusual separators of lines, a byte order mark, and a label of many brackets."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    row = {"input": "a\u2028b\x85c\x0c", "label": "[" * 100_000}
    Path("odd.jsonl").write_text("\ufeff" + json.dumps(row, ensure_ascii=False) + "\n", "utf-8")
    template = ("--data.input_template", "Question: {}")  # makes a text of anything
    for words in (
        ("odd.jsonl",), ("chat.jsonl", "--data.apply_chat_template"), ("number.jsonl", *template),
        ("list.jsonl", *template),
    ):  # fmt: skip
        plan = plan_of([*ACCEPTED, *REWARD, "--data.prompt_dataset", *words], capsys)
        assert plan["sources"] == ["train | default | OpenRLHF's single-turn agent | reward.py | 1"]


def test_a_custom_environment_is_accepted(
    own_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    named, wrong = (own_words("openrlhf", id) for id in (own_id, own_id.replace("Cold", "Gold")))
    assert main(["export", "--to", "openrlhf", "--env", own_id, "--num", "8", "--out", "train.jsonl"]) == 0
    with mock.patch.dict(os.environ):
        assert problem_of("openrlhf", [*ACCEPTED, *named], capsys) is None
        assert "Gold" in str(problem_of("openrlhf", [*ACCEPTED, *wrong], capsys))
        assert problem_of("openrlhf", ACCEPTED, capsys) is None
        rows = Path("train.jsonl").read_text()
        Path("train.jsonl").write_text(rows.replace("Cold", "Gold"))
        assert "Gold" in str(problem_of("openrlhf", ACCEPTED, capsys))


def test_a_server_must_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = own_words("openrlhf", SILENT_SERVER)
    with mock.patch.dict(os.environ):
        assert "Connection refused" in str(problem_of("openrlhf", [*ACCEPTED, *words], capsys))
