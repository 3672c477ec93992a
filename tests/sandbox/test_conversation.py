"""Answers of a container that are forged, malformed, or without end, from stubs of the program inside."""

from __future__ import annotations

import sys
import time
import tracemalloc

import pytest

from gem_core.errors import SandboxError
from gem_envs.sandbox._conversation import ContainerConversation, answer_to

MOST = 1000
BEGIN = (
    "import json, os, sys, time\n"
    "def ask(): return json.loads(sys.stdin.buffer.readline())['id']\n"
    "def say(text): os.write(1, text if isinstance(text, bytes) else text.encode())\n"
    "def reply(identity): say(json.dumps({'id': identity, 'ok': 1}) + '\\n')\n"
    "reply(ask())\n"
)
"""A program that answers its first request and then misbehaves."""


@pytest.fixture
def talk(tmp_path):
    """Return a function that starts a stub and exchanges the first request."""
    started = []

    def start(code: str) -> ContainerConversation:
        one = ContainerConversation([sys.executable, "-c", BEGIN + code], str(tmp_path), lambda: None)
        started.append(one)
        answer = one.ask({"kind": "start"}, 60, MOST)
        assert answer is not None
        assert answer["ok"] == 1
        return one

    yield start
    for one in started:
        one.close()


BAD = {
    "garbage": "ask(); say('garbage\\n')",
    "nothing": "ask()",
    "an empty line": "ask(); say('\\n')",
    "no id": "ask(); say('{\"ok\": 1}\\n')",
    "another id": "ask(); reply('0' * 32)",
    "the id of an earlier request": "one = ask(); reply(one); ask(); reply(one)",
    "null for the id": "ask(); say('{\"id\": null}\\n')",
    "a list": "ask(); say('[1]\\n')",
    "a number": "ask(); say('7\\n')",
    "deep lists": "ask(); say('[' * 900 + '\\n')",
    "deep dicts": "ask(); say('{\"a\":' * 180 + '\\n')",
    "bytes that are no text": "ask(); say(b'\\xff\\xfe\\n')",
    "a long number": "ask(); say('9' * 999 + '\\n')",
    "an answer without its end": "one = ask(); say(json.dumps({'id': one}))",
    "two answers": "one = ask(); say((json.dumps({'id': one}) + '\\n') * 2)",
    "an answer before the request": "time.sleep(0.3); reply('0' * 32); ask()",
    "an answer and a forged one": "time.sleep(0.3); say('{\"id\": 1}\\n'); reply(ask())",
    "an answer that is too long": "one = ask(); say(json.dumps({'id': one, 'x': 'x' * 1000}) + '\\n')",
    "no more requests": "os.close(0); time.sleep(60)",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_answer_is_none_and_ends_the_conversation(talk, name, monkeypatch):
    monkeypatch.setattr("gem_envs.sandbox._conversation._END_SECONDS", 0.2)
    one = talk(BAD[name])
    answers = [one.ask({"kind": "run"}, 1, MOST) for _ in range(2)]
    assert answers[-1] is None
    assert answers[0] is None or name.startswith("the id of an earlier")
    assert one.exit_code is not None


def test_the_right_answer_comes_back(talk):
    one = talk("while True: reply(ask())")
    assert [one.ask({"kind": "run"}, 60, MOST)["ok"] for _ in range(3)] == [1, 1, 1]
    one.close()
    assert one.ask({"kind": "run"}, 1, MOST) is None


@pytest.mark.parametrize("stream", [1, 2])
def test_a_flood_takes_no_memory(talk, stream, monkeypatch):
    monkeypatch.setattr("gem_envs.sandbox._conversation._END_SECONDS", 0.2)
    one = talk(f"ask()\nwhile True: os.write({stream}, bytes(2**20))")
    tracemalloc.start()
    try:
        assert one.ask({"kind": "run"}, 2, MOST) is None
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_a_request_that_nobody_reads_ends_in_time(talk, monkeypatch):
    monkeypatch.setattr("gem_envs.sandbox._conversation._END_SECONDS", 0.2)
    one = talk("time.sleep(600)")
    start = time.monotonic()
    assert one.ask({"data": "x" * 2**20}, 0.5, MOST) is None
    assert time.monotonic() - start < 60
    assert one.exit_code == -9


def test_a_container_that_does_not_start_says_why(tmp_path):
    for code, message in (("import sys; sys.exit('no image')", "no image"), ("", "bash and python3")):
        one = ContainerConversation([sys.executable, "-c", code], str(tmp_path), lambda: None)
        with pytest.raises(SandboxError, match=message):
            one.ask({}, 10, MOST)
    with pytest.raises(SandboxError, match="cannot be started"):
        ContainerConversation(["/no/such/engine"], str(tmp_path), lambda: None)


def test_an_answer_repeats_the_id():
    assert answer_to(b'{"id": "a", "x": 1}', "a") == {"id": "a", "x": 1}
    for text in (
        b'{"id": "b"}',
        b"{}",
        b"[]",
        b"[" * 10**5,
        b'{"a":' * 10**5,
        "\ud800",
        b"\xff",
        b"NaN",
        b"",
    ):
        assert answer_to(text, "a") is None


def test_a_conversation_whose_caller_was_interrupted_is_over(talk, monkeypatch):
    one = talk("reply(ask())\nreply(ask())\ntime.sleep(60)")

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gem_envs.sandbox._conversation._read", interrupt)
        with pytest.raises(KeyboardInterrupt):
            one.ask({"kind": "run"}, 5, MOST)
    assert one.exit_code is not None
    assert one.exchange({"kind": "run"}, 5, MOST) is None
