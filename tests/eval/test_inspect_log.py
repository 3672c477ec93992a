"""Logs for Inspect. The real package reads them in the nox session `eval`; this file checks their format."""

from __future__ import annotations

import json

import pytest

from gem_chat import MessagesContext
from gem_core.rollout import ChatReply
from gem_lab.eval import EvalConfig, PolicySetup, evaluate, read_run
from gem_lab.eval._inspect_log import inspect_log, write_inspect_logs

EASY = "game:GuessTheNumber-v0-easy"


class Cut:
    """Gives a good answer first, then answers that never end."""

    async def reply(self, messages, *, max_tokens, request_id):
        if len(messages) < 4:
            return ChatReply("\\boxed{1}", "stop", 7, 2)
        return ChatReply("\\boxed{2} and so on", "length", 9, 3)


@pytest.fixture
def run(tmp_path):
    config = EvalConfig("a-model", [EASY, "game:Mastermind-v0-easy"], episodes=3, group_size=2, max_turns=2,
                        system_prompt="Play.", on_length_cut="pass", out=str(tmp_path / "run"))  # fmt: skip
    evaluate(config, setup=PolicySetup(Cut(), MessagesContext(system_prompt="Play.")))
    return read_run(tmp_path / "run")


def test_what_a_log_says(run):
    log = inspect_log(run, EASY, run.summary["envs"][EASY])
    assert (log["version"], log["status"], log["eval"]["task"], log["eval"]["model"]) == (
        2, "success", EASY, "a-model",
    )  # fmt: skip
    assert len(log["samples"]) == 6
    assert {(sample["id"], sample["epoch"]) for sample in log["samples"]} == {
        (task, epoch) for task in (1, 2, 3) for epoch in (1, 2)
    }
    assert log["eval"]["dataset"] == {"name": EASY, "samples": 3, "sample_ids": [1, 2, 3]}
    sample = next(sample for sample in log["samples"] if "limit" in sample)
    roles = [message["role"] for message in sample["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert [message["content"] for message in sample["messages"] if message["role"] == "assistant"] == [
        "\\boxed{1}", "\\boxed{2} and so on",
    ]  # fmt: skip
    assert sample["output"]["choices"][0]["stop_reason"] == "max_tokens"
    assert sample["limit"] == {"type": "message", "limit": 2, "reason": "max_turns"}
    assert sample["model_usage"] == {"a-model": {"input_tokens": 16, "output_tokens": 5, "total_tokens": 21}}
    success = log["results"]["scores"][0]
    assert success["metrics"]["mean"]["value"] == run.summary["envs"][EASY]["success"]["mean"]


def test_an_episode_whose_environment_failed_is_an_error_there(run):
    run.episodes[0].error = "it broke"
    log = inspect_log(run, EASY, run.summary["envs"][EASY])
    assert (log["samples"][0]["error"]["message"], log["samples"][0]["scores"]) == ("it broke", {})


def test_writing_again_replaces_the_logs(run, tmp_path):
    first = write_inspect_logs(run, tmp_path / "logs")
    assert write_inspect_logs(run, tmp_path / "logs") == first
    assert sorted((tmp_path / "logs").iterdir()) == sorted(first)
    assert all(json.loads(path.read_text())["version"] == 2 for path in first)


def test_inspect_itself_reads_them(run, tmp_path):
    log_module = pytest.importorskip("inspect_ai.log", reason="needs inspect-ai; `nox -s eval` has it")
    write_inspect_logs(run, tmp_path / "logs")
    infos = log_module.list_eval_logs(str(tmp_path / "logs"))
    assert len(infos) == 2
    logs = {log.eval.task: log for log in map(log_module.read_eval_log, infos)}
    log = logs[EASY]
    assert log.status == "success"
    assert log.eval.model == "a-model"
    assert log.results.metrics["mean"].value == run.summary["envs"][EASY]["success"]["mean"]
    sample = next(sample for sample in log.samples if sample.limit is not None)
    assert [message.role for message in sample.messages][:3] == ["system", "user", "assistant"]
    assert sample.messages[-2].text.endswith("and so on")
    assert sample.output.stop_reason == "max_tokens"
    headers = log_module.read_eval_log(infos[0], header_only=True)
    assert headers.samples is None
