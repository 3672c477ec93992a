"""Spans of episodes and turns, recorded by OpenTelemetry's own SDK in memory."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from gem_chat import AppendContext, MessagesContext
from gem_core.errors import MissingDependency, PolicyError
from gem_core.rollout import ChatReply, Generation, _telemetry, disable_otel, enable_otel, run_episode
from tests.rollout.policies import ScriptedPolicy
from tests.rollout.tokenizers import CharTokenizer
from tests.support import ScriptedEnv


@pytest.fixture
def spans():
    """Enable spans and return a function that lists the finished ones."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="needs opentelemetry-sdk")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    enable_otel(provider)
    yield exporter.get_finished_spans
    disable_otel()
    provider.shutdown()


def children(spans, parent):
    ids = {span.context.span_id: span for span in spans}
    mine = [span for span in spans if span.parent and ids.get(span.parent.span_id) is parent]
    return sorted(mine, key=lambda span: span.start_time)


def only(spans, name):
    (span,) = [span for span in spans if span.name.startswith(name)]
    return span


class Says:
    async def reply(self, messages, *, max_tokens, request_id):
        return ChatReply("an answer", "stop", 7, 2)


def test_an_episode_its_turns_and_what_they_contain(spans):
    env = ScriptedEnv([0.5, 1.0])
    policy = ScriptedPolicy([[40, 41], [42]])
    episode = asyncio.run(
        run_episode(
            env, policy, AppendContext(CharTokenizer()), seed=5, request_id="r", metadata={"model": "m"}
        )
    )
    recorded = spans()
    root = only(recorded, "invoke_agent")
    assert root.parent is None
    assert root.attributes["gen_ai.conversation.id"] == "r"
    assert root.attributes["gen_ai.request.model"] == "m"
    assert root.attributes["gem_core.env.seed"] == 5
    assert root.attributes["gem_core.episode.return"] == episode.total_reward
    assert root.attributes["gem_core.episode.stop_reason"] == episode.stop_reason
    turns = children(recorded, root)
    assert [span.name for span in turns] == [f"turn {number}" for number, _ in enumerate(episode.turns, 1)]
    assert [span.attributes["gem_core.reward"] for span in turns] == episode.rewards
    prompt = 0
    for span, turn in zip(turns, episode.turns, strict=True):
        chat, step = children(recorded, span)
        assert (chat.name, step.name) == ("chat m", "env.step")
        prompt += len(turn.context_ids)
        assert chat.attributes["gen_ai.operation.name"] == "chat"
        assert chat.attributes["gen_ai.usage.input_tokens"] == prompt
        assert chat.attributes["gen_ai.usage.output_tokens"] == len(turn.response_ids)
        assert chat.attributes["gen_ai.response.finish_reasons"] == ("stop",)
        prompt += len(turn.response_ids)
        assert (
            span.start_time
            <= chat.start_time
            <= chat.end_time
            <= step.start_time
            <= step.end_time
            <= span.end_time
        )


def test_messages_have_the_counts_of_the_endpoint_and_no_text(spans):
    episode = asyncio.run(run_episode(ScriptedEnv([1.0]), Says(), MessagesContext(), seed=0))
    chat = only(spans(), "chat")
    assert (chat.attributes["gen_ai.usage.input_tokens"], chat.attributes["gen_ai.usage.output_tokens"]) == (
        7,
        2,
    )
    texts = [episode.turns[0].observation, "an answer"]
    assert not any(text in str([dict(span.attributes) for span in spans()]) for text in texts)


def test_concurrent_episodes_do_not_mix(spans):
    async def both():
        envs = [ScriptedEnv([0.0, 1.0]) for _ in range(3)]
        await asyncio.gather(
            *(run_episode(env, Says(), MessagesContext(), seed=n) for n, env in enumerate(envs))
        )

    asyncio.run(both())
    roots = [span for span in spans() if span.name.startswith("invoke_agent")]
    assert len({span.context.trace_id for span in roots}) == 3
    assert [len(children(spans(), root)) for root in roots] == [2, 2, 2]


class Wrong:
    async def generate(self, prompt_ids, *, max_tokens, request_id):
        return Generation([1] * (max_tokens + 1), None, "stop")


def test_failures_end_every_span_with_an_error(spans):
    episode = asyncio.run(
        run_episode(ScriptedEnv(fail_at=0), Says(), MessagesContext(), seed=0, log_errors=False)
    )
    root = only(spans(), "invoke_agent")
    assert root.status.is_ok is False
    assert root.status.description == episode.error
    assert {span.name for span in spans()} == {root.name, "turn 1", "chat", "env.step"}
    with pytest.raises(PolicyError):
        asyncio.run(run_episode(ScriptedEnv(fail_at=0), Wrong(), AppendContext(CharTokenizer()), seed=0))
    failed = [span for span in spans() if span.name.startswith("invoke_agent")][-1]
    assert failed.status.description == "PolicyError"
    assert failed.events[0].name == "exception"
    from opentelemetry import trace

    assert not trace.get_current_span().get_span_context().is_valid


def test_an_episode_that_ends_before_its_first_turn_has_one_span(spans):
    long = "x" * 50
    env = ScriptedEnv([1.0])
    env.reset = lambda seed=None, *, options=None: (long, {})
    context = AppendContext(CharTokenizer())
    episode = asyncio.run(run_episode(env, ScriptedPolicy([[1]]), context, seed=0, max_total_tokens=20))
    assert not episode.turns
    (span,) = spans()
    assert span.name.startswith("invoke_agent")
    assert span.attributes["gem_core.episode.turns"] == 0
    assert span.attributes["gem_core.episode.stop_reason"] == episode.stop_reason


def test_off_by_default_without_importing_anything():
    code = (
        "import asyncio, sys\n"
        "from gem_chat import EnvPlayer, MessagesContext\n"
        "from gem_core.rollout import run_episode\n"
        "import gem_core\n"
        "env = gem_core.make('game:GuessTheNumber-v0-easy')\n"
        "asyncio.run(run_episode(env, EnvPlayer('oracle'), MessagesContext(), seed=0))\n"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_environment_variable(spans, monkeypatch):
    seen = []
    monkeypatch.setattr(_telemetry, "enable_otel", lambda: seen.append("on"))
    for value, expected in [("1", ["on"]), ("0", []), ("", [])]:
        seen.clear()
        monkeypatch.setenv(_telemetry.VARIABLE, value)
        monkeypatch.setattr(_telemetry, "_is_disabled", False)
        monkeypatch.setattr(_telemetry, "_tracer", None)
        asyncio.run(run_episode(ScriptedEnv([1.0]), Says(), MessagesContext(), seed=0))
        assert seen == expected


def test_disabled_spans_stay_off_despite_the_environment_variable(spans, monkeypatch):
    monkeypatch.setenv(_telemetry.VARIABLE, "1")
    disable_otel()
    for _ in range(2):
        asyncio.run(run_episode(ScriptedEnv([1.0]), Says(), MessagesContext(), seed=0))
        assert _telemetry._tracer is None
    assert spans() == ()


def test_without_the_package_there_is_a_hint(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingDependency, match=r"gem-core\[otel\]"):
        enable_otel()
