"""Native tool calls in the conversation of one episode: `NativeTools`.

An environment reads and writes text, but a chat API exchanges schemas, calls, and results as fields of
messages. The environment therefore gets the calls of a reply as text in its own format, and the conversation
holds them as the API sent them, each followed by a message with its result.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gem_chat._tools import CallReader, schema
from gem_chat.tools import ToolCall
from gem_core import Env, Observation
from gem_core.rollout import ChatReply
from gem_core.rollout._messages import Message

logger = logging.getLogger(__name__)

SILENCE = "(no answer)"
"""Replaces an empty answer in the conversation, because many endpoints reject empty messages."""

IN_NEXT_MESSAGE = "See the next message."
"""Result of a call whose own result is not known, such as a call that the environment did not read."""

_SAFE_ID = re.compile(r"[\w.:-]{1,64}")
"""Ids of calls that a model may give. Others are replaced, because templates write them into results."""

_reported: set[str] = set()
"""Environments without tools whose native calls were reported in this process."""


class CallResult(NamedTuple):
    """The result of a call in a response.

    Attributes:
        name: Name of the tool.
        id: Id of the call; empty if the model gave none.
        text: The result.
    """

    name: str
    id: str
    text: str


class NativeTools:
    """The tools of an environment, as a chat API exchanges them.

    Args:
        env: The environment of the episode, after its reset.
        offered: Whether the model gets the schemas, and the conversation holds calls as the API sent them.
    """

    def __init__(self, env: Env, offered: bool) -> None:
        self._env = env
        self._readers: Sequence[CallReader] = env.call_readers
        self.tools = [tool for reader in self._readers for tool in reader.tools] if offered else []
        self.schemas = [schema(tool) for tool in self.tools]

    def action(self, reply: ChatReply) -> str:
        """Return the text that the environment plays; a reply with calls becomes text in its format."""
        if not reply.tool_calls or reply.finish_reason == "length":  # cut calls are incomplete
            return reply.text
        if self._readers:
            message = {"content": reply.text, "tool_calls": reply.tool_calls}
            return self._readers[0].native_text(message, self._readers)
        name = self._env.spec.id if self._env.spec else type(self._env).__name__
        if name not in _reported:
            _reported.add(name)
            called = ", ".join(sorted({str(call["function"].get("name")) for call in reply.tool_calls}))
            logger.warning(
                "%s has no tools, but the model called %s with native tool calls; the environment gets only "
                "the text of the reply, which is a format error if it is empty, and the trace has the calls",
                name, called,
            )  # fmt: skip
        return reply.text

    def messages(self, reply: ChatReply, observation: Observation) -> list[Message] | None:
        """Return the messages that a turn with native calls adds; None if the turn adds plain messages."""
        if not self.schemas or not reply.tool_calls or reply.finish_reason == "length":
            return None
        calls = [dict(call) for call in reply.tool_calls]
        said: Message = {"role": "assistant", "content": reply.text or None, "tool_calls": calls}
        texts, rest = self._results(len(calls), observation)
        results: list[Message] = [
            {"role": "tool", "tool_call_id": call["id"], "content": text if text.strip() else SILENCE}
            for call, text in zip(calls, texts, strict=True)
        ]
        return [said, *results, *([{"role": "user", "content": rest}] if rest else [])]

    def call_results(
        self, calls: Sequence[ToolCall], observation: Observation
    ) -> tuple[list[CallResult], str] | None:
        """Return the results of the calls of a response in tokens, and what else the observation holds.

        None if the observation has images besides the results.
        """
        texts, rest = self._results(len(calls), observation)
        if not isinstance(rest, str):
            return None
        known = {tool.name for tool in self.tools}
        results = [
            CallResult(
                call.name if call.name in known else self.tools[0].name,
                call.id if _SAFE_ID.fullmatch(call.id) else "",
                text if text.strip() else SILENCE,
            )
            for call, text in zip(calls, texts, strict=True)
        ]
        return results, rest

    def _results(self, count: int, observation: Observation) -> tuple[list[str], Observation]:
        """Return the result of each call, and what the observation holds besides the results."""
        for reader in self._readers:
            named = list(reader.call_results)[:count]
            shown = reader.format.results(named)
            if named and isinstance(observation, str) and observation.startswith(shown):
                texts = [text for _, text in named]
                note = observation[len(shown) :].strip()  # such as the announcement of the last use
                if count > len(texts):
                    return [*texts, *[note or IN_NEXT_MESSAGE] * (count - len(texts))], ""
                return [*texts[:-1], f"{texts[-1]}\n\n{note}" if note else texts[-1]], ""
        return [IN_NEXT_MESSAGE] * count, observation


def entries_of(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Return calls that were read from tokens as ``tool_calls``; one that is invalid has an ``error``."""
    return [
        {"id": call.id, "function": {"name": call.name, "arguments": dict(call.arguments)}}
        | ({} if call.error is None else {"error": call.error})
        for call in calls
    ]


def takes_native_calls(env: Env) -> bool:
    """Return whether `env` has tools, none of which has to be called in text."""
    return bool(env.call_readers) and all(getattr(reader, "native", True) for reader in env.call_readers)


def hide_instructions(env: Env) -> None:
    """Make `env` leave out the explanation of its tools, for a model that gets their schemas."""
    for reader in env.call_readers:
        if reader.instructions is True:
            reader.instructions = False


def notes_of(calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the native calls of a reply for the trace."""
    return {"tool_calls": [dict(call["function"]) for call in calls]} if calls else {}
