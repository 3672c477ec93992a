"""OpenTelemetry spans of episodes and turns, off by default: `enable_otel`.

    enable_otel()  # or GEM_CORE_OTEL=1 in the environment
    episode = await run_episode(env, policy, context, seed=0)

An episode is a span with one child per turn; a turn contains a span of the generation and a span of the
environment's step. Attributes have their names in the semantic conventions for generative AI (``gen_ai.*``);
names of other attributes begin with ``gem_core.``. Spans contain no text of observations or responses.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from gem_core.errors import MissingDependency
from gem_core.rollout._calls import CheckedStep
from gem_core.rollout._dialogue import Answer, Dialogue
from gem_core.rollout._trajectory import Episode

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider
    from opentelemetry.util.types import AttributeValue

VARIABLE = "GEM_CORE_OTEL"
"""Environment variable that enables spans in programs that do not call `enable_otel`, such as trainers."""

_tracer: Tracer | None = None
_is_disabled = False


def enable_otel(provider: TracerProvider | None = None) -> None:
    """Record a span for each episode and turn that `run_episode` plays in this process from now on.

    Args:
        provider: Provider of the tracer; None for the global one, which ``opentelemetry-instrument`` or
            ``opentelemetry.trace.set_tracer_provider`` sets.

    Raises:
        MissingDependency: opentelemetry-api is not installed.
    """
    global _tracer, _is_disabled
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise MissingDependency("spans need opentelemetry-api: pip install 'gem-core[otel]'") from error
    _tracer = trace.get_tracer("gem_core", tracer_provider=provider)
    _is_disabled = False


def disable_otel() -> None:
    """Record no spans from now on."""
    global _tracer, _is_disabled
    _tracer, _is_disabled = None, True


class Stepping(Protocol):
    """The part of an environment that the episode loop uses."""

    async def step(self, action: str) -> CheckedStep:
        """Return the checked result of a step."""
        ...


def start_spans(episode: Episode, request_id: str) -> EpisodeSpans | None:
    """Start the span of an episode; None if spans are off."""
    if _tracer is None and not _is_disabled and os.environ.get(VARIABLE, "") not in ("", "0"):
        enable_otel()
    return None if _tracer is None else EpisodeSpans(_tracer, episode, request_id)


class EpisodeSpans:
    """The spans of one episode, the outermost of which is current until `end`."""

    def __init__(self, tracer: Tracer, episode: Episode, request_id: str) -> None:
        from opentelemetry import context, trace

        self._tracer = tracer
        self._episode = episode
        self._model = str(episode.metadata.get("model", ""))
        self._ends: list[int] = []
        self._span = tracer.start_span(
            f"invoke_agent {episode.env_id}".strip(),
            attributes=_attributes(
                {
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.conversation.id": request_id,
                    "gen_ai.request.model": self._model or None,
                    "gem_core.env.id": episode.env_id,
                    "gem_core.env.seed": episode.seed,
                    "gem_core.task": episode.metadata.get("task"),
                    "gem_core.sample": episode.metadata.get("sample"),
                    "gem_core.step": episode.metadata.get("step"),
                }
            ),
        )
        self._turn: Span | None = None
        self._turns = 0
        self._token = context.attach(trace.set_span_in_context(self._span))

    def around(self, calls: Stepping, dialogue: Dialogue) -> tuple[Stepping, Dialogue]:
        """Wrap both, so that every generation and every step has a span."""
        return _Steps(calls, self), _Answers(dialogue, self)

    def begin_turn(self) -> Span:
        """Start the span of the next turn."""
        self._turns += 1
        self._turn = self._tracer.start_span(f"turn {self._turns}", attributes={"gem_core.turn": self._turns})
        return self._turn

    def child(self, name: str, attributes: Mapping[str, AttributeValue]) -> Any:
        """Return a context manager with a span in the current turn."""
        from opentelemetry import trace

        parent = None if self._turn is None else trace.set_span_in_context(self._turn)
        return self._tracer.start_as_current_span(name, context=parent, attributes=attributes)

    def end_turn(self, **attributes: Any) -> None:
        """End the span of the current turn, if there is one."""
        if self._turn is not None:
            self._turn.set_attributes(
                _attributes({f"gem_core.{name}": value for name, value in attributes.items()})
            )
            self._turn.end()
            self._turn = None

    def count_tokens(self, answer: Answer) -> dict[str, AttributeValue]:
        """Return the attributes of a generation."""
        before = 0 if answer.parent is None or not self._ends else self._ends[answer.parent]
        prompt = before + len(answer.context_ids)
        self._ends.append(prompt + len(answer.response_ids))
        return _attributes(
            {
                "gen_ai.usage.input_tokens": prompt or answer.notes.get("prompt_tokens"),
                "gen_ai.usage.output_tokens": len(answer.response_ids) or answer.notes.get("response_tokens"),
                "gen_ai.response.finish_reasons": [answer.finish_reason],
            }
        )

    @property
    def chat(self) -> tuple[str, dict[str, AttributeValue]]:
        """Name and attributes of the span of a generation."""
        known = _attributes({"gen_ai.operation.name": "chat", "gen_ai.request.model": self._model or None})
        return f"chat {self._model}".strip(), known

    def end(self, error: BaseException | None = None) -> None:
        """End all spans of the episode.

        Args:
            error: Exception that ended it early; None if the episode was completed.
        """
        from opentelemetry import context
        from opentelemetry.trace import Status, StatusCode

        episode = self._episode
        self.end_turn()
        if error is not None:
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        else:
            self._span.set_attributes(
                _attributes(
                    {
                        "gem_core.episode.return": sum(episode.rewards),
                        "gem_core.episode.success": episode.success,
                        "gem_core.episode.turns": len(episode.turns),
                        "gem_core.episode.stop_reason": episode.stop_reason,
                        "gem_core.episode.trainable": episode.trainable,
                    }
                )
            )
            if episode.error is not None:
                self._span.set_status(Status(StatusCode.ERROR, episode.error))
        context.detach(self._token)
        self._span.end()


class _Answers:
    """A dialogue whose generations have spans."""

    def __init__(self, dialogue: Dialogue, spans: EpisodeSpans) -> None:
        self._dialogue = dialogue
        self._spans = spans
        self.begin = dialogue.begin
        self.observe = dialogue.observe

    async def answer(self) -> Answer | None:
        self._spans.begin_turn()
        name, attributes = self._spans.chat
        with self._spans.child(name, attributes) as span:
            answer = await self._dialogue.answer()
            if answer is not None:
                span.set_attributes(self._spans.count_tokens(answer))
        return answer


class _Steps:
    """An environment whose steps have spans, which also end the turns."""

    def __init__(self, calls: Stepping, spans: EpisodeSpans) -> None:
        self._calls = calls
        self._spans = spans

    async def step(self, action: str) -> CheckedStep:
        with self._spans.child("env.step", {}):
            result = await self._calls.step(action)
        self._spans.end_turn(
            reward=result.reward,
            terminated=result.terminated,
            truncated=result.truncated,
            invalid=result.info.get("invalid"),
        )
        return result


def _attributes(values: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Return the values that a span can hold."""
    kinds = (str, bool, int, float, list)
    return {name: value for name, value in values.items() if isinstance(value, kinds)}
