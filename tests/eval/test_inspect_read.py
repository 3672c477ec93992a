"""Inspect's logs as episodes. The real package writes logs in the nox session `eval`; see the last tests."""

from __future__ import annotations

import json
import zipfile

import pytest

from gem_core.errors import ConfigError, TraceError
from gem_lab.eval import read_inspect_log
from gem_lab.eval._inspect_log import write_inspect_logs
from tests.eval.test_inspect_log import EASY, run  # noqa: F401

LONG = "a long text, " * 20 + "done"


def in_order(episodes):
    return sorted(episodes, key=lambda one: (one.env_id, one.metadata["task"], one.metadata["sample"]))


def sample(**changes):
    """Return a sample of another program, as Inspect writes it."""
    messages = [
        {"role": "system", "content": "Use tools."},
        {"role": "user", "content": [{"type": "text", "text": "Add 1 and 2."}]},
        {"role": "assistant",
         "content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "I add."}],
         "tool_calls": [{"id": "1", "function": "add", "arguments": {"x": 1, "y": 2}}],
         "metadata": {"reward": 77}},
        {"role": "tool", "content": "attachment://abc", "tool_call_id": "1", "function": "add"},
        {"role": "assistant", "content": "It is 3."},
    ]  # fmt: skip
    scores = {"match": {"value": "C"}, "speed": {"value": 0.25}}
    fields = {"id": "one", "epoch": 1, "input": "", "target": "3", "messages": messages, "scores": scores}
    return {**fields, "attachments": {"abc": LONG}, **changes}


def log(*samples):
    return {
        "version": 2,
        "status": "success",
        "eval": {"task": "sums", "model": "m"},
        "samples": list(samples),
    }


def as_eval(path, samples):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({**log(), "samples": None}))
        archive.writestr("summaries.json", "[]")
        for one in samples:
            archive.writestr(f"samples/{one['id']}_epoch_{one['epoch']}.json", json.dumps(one))
    return path


def as_json(path, samples):
    path.write_text(json.dumps(log(*samples)))
    return path


@pytest.mark.parametrize("write", [as_eval, as_json])
def test_a_log_of_another_program(write, tmp_path):
    samples = [sample(id=10), sample(id=2, limit={"type": "message"}, scores={"match": {"value": "I"}})]
    episodes = read_inspect_log(write(tmp_path / "log", samples))
    first = next(episode for episode in episodes if episode.metadata["sample_id"] == 10)
    assert [turn.observation for turn in first.turns] == ["Use tools.\n\nAdd 1 and 2.", LONG]
    assert [turn.action for turn in first.turns] == [
        'I add.\n{"name": "add", "arguments": {"x": 1, "y": 2}}', "It is 3.",
    ]  # fmt: skip
    assert first.turns[0].info == {"reply": {"reasoning": "hm"}}
    assert (first.rewards, first.success, first.env_id, first.stop_reason) == (
        [0, 1],
        True,
        "sums",
        "terminated",
    )
    second = next(episode for episode in episodes if episode.metadata["sample_id"] == 2)
    assert (second.rewards, second.success, second.truncated) == ([0, 0], False, True)
    other = read_inspect_log(write(tmp_path / "log", samples[:1]), scorer="speed")
    assert (other[0].rewards, other[0].success) == ([0, 0.25], False)


def test_our_own_logs_keep_the_episodes(run, tmp_path):  # noqa: F811
    read = [
        episode for path in write_inspect_logs(run, tmp_path / "logs") for episode in read_inspect_log(path)
    ]
    assert in_order(read) == in_order(run.episodes)


def test_images_of_a_message_are_kept(tmp_path):
    image = {"type": "image", "image": "data:image/png;base64,AA"}
    content = [{"type": "text", "text": "What is it?"}, image, {"type": "audio"}]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "A dog."}]
    (episode,) = read_inspect_log(as_json(tmp_path / "log", [sample(messages=messages)]))
    assert episode.turns[0].observation == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
        {"type": "text", "text": "[audio]"},
    ]


def test_failed_samples_and_samples_without_a_score(tmp_path):
    error = {"message": "it broke", "traceback": ""}
    failed, silent = read_inspect_log(
        as_json(tmp_path / "log", [sample(error=error, scores={}), sample(scores=None, messages=[])])
    )
    assert (failed.error, failed.trainable, failed.rewards) == ("it broke", False, [0, 0])
    assert (silent.turns, silent.trainable) == ([], False)


@pytest.mark.parametrize(
    ("content", "scorer", "error", "message"),
    [
        ("not json", None, TraceError, "is not a readable log"),
        ("[]", None, TraceError, "is not a readable log"),
        (json.dumps({"eval": {}, "samples": []}), None, TraceError, "'task'"),
        (json.dumps(log({"id": 1})), None, TraceError, "'messages'"),
        (
            json.dumps(log(sample())),
            "other",
            ConfigError,
            r"unknown scorer 'other' of sample one\. Available: match, speed",
        ),
        (
            json.dumps(log(sample(scores={"a": {"value": {"x": 1}}}))),
            None,
            ConfigError,
            "a number, or C, P, I, or N",
        ),
    ],
)
def test_mistakes(content, scorer, error, message, tmp_path):
    (tmp_path / "log.json").write_text(content)
    with pytest.raises(error, match=message):
        read_inspect_log(tmp_path / "log.json", scorer=scorer)


@pytest.mark.parametrize("format", ["eval", "json"])
def test_logs_that_inspect_itself_wrote(format, run, tmp_path):  # noqa: F811
    log_module = pytest.importorskip("inspect_ai.log", reason="needs inspect-ai; `nox -s eval` has it")
    for path in write_inspect_logs(run, tmp_path / "logs"):
        read = log_module.read_eval_log(str(path))
        changed = next(one for one in read.samples if (one.id, one.epoch) == (1, 1))
        # Long enough to be stored once; equal messages are one object.
        changed.messages[1] = changed.messages[1].model_copy(update={"content": LONG})
        log_module.write_eval_log(read, str(tmp_path / f"again.{format}"))
        episodes = read_inspect_log(tmp_path / f"again.{format}")
        env = read.eval.task
        expected = [episode for episode in run.episodes if episode.metadata["env"] == env]
        expected[0].turns[0].observation = LONG
        assert in_order(episodes) == in_order(expected)


def test_a_small_log_of_lists_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("header.json", json.dumps(log()))
        archive.writestr("samples/a_epoch_1.json", "[" + "[]," * 6_000_000 + "[]]")
    with pytest.raises(TraceError, match="unpacks"):
        read_inspect_log(path)
