"""A gateway with a policy whose tokens no encoder would produce, and a check that every row is exact."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from gem_agents._gateway import Gateway, GatewayLimits
from gem_agents._session import Session, SessionLimits
from gem_agents._turns import turns_of
from gem_chat import AppendContext
from gem_core.rollout import Episode, Generation
from gem_core.rollout._dialogue import TokenLimits
from tests.rollout.jinja_tokenizer import JinjaTokenizer
from tests.rollout.test_tool_turns import FAMILIES

_PAIRS = 0x200000
_LETTERS = range(ord("a"), ord("z") + 1)
THINKING = "<think>Which one?</think>\n"
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Looks up a word.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}


def call(query: str, spaces: str = " ") -> str:
    """Return a call as a model writes it, with its own spaces in the JSON."""
    return (
        f'<tool_call>\n{{"name":{spaces}"search", "arguments":{spaces}{{"query": "{query}"}}}}\n</tool_call>'
    )


class PairTokenizer(JinjaTokenizer):
    """Encodes two adjacent letters as one token, so single letters that were sampled look unusual."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        ids: list[int] = []
        for id in super().encode(text):
            if ids and id in _LETTERS and ids[-1] in _LETTERS:
                ids[-1] = _PAIRS + ids[-1] * 256 + id
            else:
                ids.append(id)
        return ids

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = False, **options: Any) -> str:
        texts = [
            chr((id - _PAIRS) // 256) + chr((id - _PAIRS) % 256)
            if id >= _PAIRS
            else super(PairTokenizer, self).decode([id], skip_special_tokens=skip_special_tokens)
            for id in token_ids
        ]
        return "".join(texts)


def tokenizer(family: str = "hermes") -> PairTokenizer:
    return PairTokenizer(FAMILIES[family].template, FAMILIES[family].specials)


class Script:
    """A policy that samples texts letter by letter, and keeps what it was asked.

    Args:
        texts: The responses, one after the other; or a function from the number of a request to its response.
        tokenizer: Tokenizer of the responses.
        seconds: Number of seconds that a response takes.
    """

    def __init__(
        self,
        texts: Sequence[str] | Callable[[int], str],
        tokenizer: JinjaTokenizer,
        seconds: float = 0.0,
    ) -> None:
        self._texts = texts if callable(texts) else list(texts).__getitem__
        self._tokenizer, self._seconds = tokenizer, seconds
        self.requests: list[tuple[list[int], str]] = []
        self.sampled: list[tuple[list[int], list[int]]] = []
        self.gate: asyncio.Event | None = None

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        number = len(self.requests)
        self.requests.append((list(prompt_ids), request_id))
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(self._seconds)
        text = self._texts(number)
        if not text:
            return Generation([], None, "stop")
        ids = [*map(ord, text), self._tokenizer.eos_token_id][:max_tokens]
        finish = "stop" if ids[-1] == self._tokenizer.eos_token_id else "length"
        self.sampled.append((list(prompt_ids), ids))
        return Generation(ids, [-0.1 * (n % 7) for n in range(len(ids))], finish)


class Stage:
    """One episode behind a gateway.

    Attributes:
        base: Address for the agent.
        session: The episode.
        policy: The policy.
    """

    def __init__(self, gateway: Gateway, session: Session, policy: Script) -> None:
        self.gateway, self.session, self.policy = gateway, session, policy
        self.base, self.grader = gateway.address(session), gateway.grader_address(session)
        self.clients: list[Any] = []

    def openai(self, retries: int = 0, **options: Any) -> Any:
        from openai import AsyncOpenAI

        base = f"{self.base}/v1"
        self.clients.append(AsyncOpenAI(base_url=base, api_key="none", max_retries=retries, **options))
        return self.clients[-1]

    def anthropic(self, retries: int = 0, **options: Any) -> Any:
        from anthropic import AsyncAnthropic

        base = self.base
        self.clients.append(AsyncAnthropic(base_url=base, api_key="none", max_retries=retries, **options))
        return self.clients[-1]

    def episode(self) -> Episode:
        """Return the episode, after the check that each row holds what the policy saw and sampled."""
        turns, mode = turns_of(self.session.delivered())
        episode = Episode("agent", 0, turns, True, False, "terminated", context_mode=mode)
        samples = [(*prompt, -1, *response) for prompt, response in self.policy.sampled]
        for row in episode.rows("turn"):
            prompt, response = row.prompt_ids, row.response_ids
            assert (*prompt, -1, *response) in samples
        return episode


@contextlib.asynccontextmanager
async def stage(
    texts: Sequence[str] | Callable[[int], str] = (),
    *,
    family: str = "hermes",
    calls: int = 100,
    tokens: TokenLimits = TokenLimits(2000),  # noqa: B008
    seconds: float = 0.0,
    policy: Any = None,
    limits: GatewayLimits | None = None,
    **options: Any,
) -> AsyncIterator[Stage]:
    """Open one episode behind a gateway of its own."""
    words = tokenizer(family)
    policy = policy or Script(texts, words, seconds)
    gateway = Gateway(limits)
    session = await gateway.open(
        policy, AppendContext(words, **options), SessionLimits(calls, tokens), "episode"
    )
    at = Stage(gateway, session, policy)
    try:
        yield at
    finally:
        for client in at.clients:
            await client.close()
        await gateway.stop()
