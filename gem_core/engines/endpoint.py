"""A model behind an OpenAI-compatible HTTP endpoint, as a `ChatPolicy`.

    policy = Endpoint("gpt-4o-mini", api_key=..., temperature=0.0)
    episode = await run_episode(env, policy, MessagesContext(), seed=0)

Works with OpenAI, vLLM, SGLang, llama.cpp and whatever else speaks ``/v1/chat/completions``. A call
that fails for a reason that may pass is made again with the same random seed, so an unreliable
endpoint costs time and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from gem_core._util.messages import error_text
from gem_core._util.seeds import derive_int
from gem_core.core import Observation
from gem_core.engines.rate_limits import Patience, RateLimit
from gem_core.errors import ConfigError, MissingDependency, ServiceError
from gem_core.observations import encodable
from gem_core.rollout.messages import ChatReply, ContextFull, Message

logger = logging.getLogger(__name__)

CHARACTERS_A_TOKEN = 40
"""An answer longer than this for each token it was allowed counts as cut by the length limit."""

CHARACTERS_PER_IMAGE = 4000
"""An image counts as a thousand tokens, about what models take for one of a thousand pixels a side."""

_TOO_LONG = ("context length", "context window", "context size", "maximum context", "too many tokens")


class Endpoint:
    """Asks a model for answers.

    Args:
        model: Its name at the endpoint.
        base_url: None reads ``OPENAI_BASE_URL``, else it is OpenAI's.
        api_key: None reads ``OPENAI_API_KEY``; an endpoint with a `base_url` of its own may need none.
        temperature: Of sampling.
        top_p: Sent where it is not 1.
        seed: Of sampling; with the request's id and its turn it decides the seed that is sent. None
            sends none.
        extra_body: More for the body of each request.
        timeout: Seconds for one attempt.
        patience: When to try again; None is `Patience(60)`.
        requests_per_minute: Limit of the endpoint.
        tokens_per_minute: Limit of the endpoint; a request counts its prompt and the most it may answer.

    Raises:
        MissingDependency: The package openai is not installed.
        ConfigError: There is neither a key nor an address.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        seed: int | None = 0,
        extra_body: Mapping[str, Any] | None = None,
        timeout: float = 120.0,
        patience: Patience | None = None,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
    ) -> None:
        try:
            import openai
        except ImportError as error:
            raise MissingDependency(
                "an endpoint is asked through the package openai: pip install 'gem-core[eval]'"
            ) from error
        base_url = base_url or os.environ.get("OPENAI_BASE_URL")
        key = api_key or os.environ.get("OPENAI_API_KEY")
        if not key and not base_url:
            raise ConfigError(
                f"{model!r} is no folder, so it is asked for at an endpoint, and there is neither an address "
                "nor a key: give --base-url, or set OPENAI_API_KEY"
            )
        self._openai = openai
        self._client = openai.AsyncOpenAI(
            base_url=base_url, api_key=key or "none", max_retries=0, timeout=timeout
        )
        self.address = str(self._client.base_url)
        self._model = model
        self._sampling: dict[str, Any] = {"temperature": temperature}
        if top_p != 1:
            self._sampling["top_p"] = top_p
        self._extra_body = dict(extra_body or {})
        self._seed = seed
        self._patience = patience or Patience(60.0)
        self._requests = RateLimit(requests_per_minute)
        self._tokens = RateLimit(tokens_per_minute)
        self._limit_name = "max_tokens"
        self._told = False

    @property
    def repeated(self) -> int:
        """Attempts that followed a failure."""
        return self._patience.repeated

    async def reply(self, messages: list[Message], *, max_tokens: int, request_id: str) -> ChatReply:
        """Ask for one answer; see `gem_core.rollout.ChatPolicy`.

        Raises:
            ContextFull: The endpoint says that the conversation is too long.
            ServiceError: It refuses the request, or does not answer any more.
        """
        began = time.monotonic()
        attempt = 0
        while True:
            await self._requests.wait()
            characters = sum(_characters(message["content"]) for message in messages)
            await self._tokens.wait(max_tokens + characters / 4)
            try:
                completion = await self._ask(messages, max_tokens, request_id)
                reply = _read(completion, max_tokens)
            except (self._openai.OpenAIError, _Unreadable, ValueError) as error:
                filtered = self._refusal(error)
                if filtered is not None:
                    return filtered
                attempt += 1
                pause = self._patience.pause(attempt, began, _asked_pause(error))
                if pause is None:
                    raise ServiceError(
                        f"{self.address} gives no answer ({_reason(error)}); what is finished is kept, so "
                        "the same command goes on from here"
                    ) from error
                if not self._told:
                    self._told = True
                    logger.warning("%s: %s; trying again", self.address, _reason(error))
                await asyncio.sleep(pause)
                continue
            self._patience.succeeded()
            return reply

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask(self, messages: list[Message], max_tokens: int, request_id: str) -> Any:
        options = {**self._sampling, self._limit_name: max_tokens}
        if self._seed is not None:
            options["seed"] = derive_int(self._seed, request_id, len(messages), sep="/")
        return await self._client.chat.completions.create(
            model=self._model,
            messages=messages,  # type: ignore[arg-type]  # plain dicts are what is sent
            extra_body=self._extra_body or None,
            **options,
        )

    def _refusal(self, error: Exception) -> ChatReply | None:
        """Sort out what trying again does not change; an empty reply for an answer that was withheld.

        Raises:
            ContextFull: The conversation is too long.
            ServiceError: The endpoint will never answer this.
        """
        if not isinstance(error, self._openai.APIStatusError):
            return None
        text, code = _reason(error), str(getattr(error, "code", None) or "")
        if error.status_code in (401, 403):
            raise ServiceError(f"{self.address} refuses the key: {text}") from None
        if error.status_code == 404:
            raise ServiceError(
                f"{self.address} has no model {self._model!r}, or no such page: {text}"
            ) from None
        if code == "insufficient_quota":
            raise ServiceError(f"{self.address}: {text}") from None
        if error.status_code in (408, 409, 425, 429) or error.status_code >= 500:
            return None
        if code == "content_filter":
            return ChatReply("", notes={"withheld": text})
        if "context_length" in code or any(words in text.lower() for words in _TOO_LONG):
            raise ContextFull(f"the conversation is too long for {self._model}: {text}") from None
        if "max_completion_tokens" in text and self._limit_name == "max_tokens":
            self._limit_name = "max_completion_tokens"  # what newer models call it; ask once more
            return None
        raise ServiceError(f"{self.address} refuses the request: {text}") from None


def _characters(content: Observation) -> int:
    """As many as count for the rate limit: an image costs tokens, but not by the length of its file."""
    if isinstance(content, str):
        return len(content)
    return sum(len(part["text"]) if part["type"] == "text" else CHARACTERS_PER_IMAGE for part in content)


class _Unreadable(Exception):
    """An answer that is not a completion."""


def _read(completion: Any, max_tokens: int) -> ChatReply:
    choices = getattr(completion, "choices", None)
    if not choices or getattr(choices[0], "message", None) is None:
        raise _Unreadable(f"the answer is no completion: {str(completion)[:200]!r}")
    message = choices[0].message
    text = encodable(message.content) if isinstance(message.content, str) else ""
    cut = choices[0].finish_reason == "length"
    most = CHARACTERS_A_TOKEN * max_tokens
    if len(text) > most:  # an endpoint that knows no limit
        text, cut = text[:most], True
    usage = getattr(completion, "usage", None)
    reasoning = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
    return ChatReply(
        text,
        "length" if cut else "stop",
        getattr(usage, "prompt_tokens", None),
        getattr(usage, "completion_tokens", None),
        {"reasoning": encodable(str(reasoning))[:most]} if reasoning else {},
    )


def _asked_pause(error: Exception) -> float | None:
    response = getattr(error, "response", None)
    try:
        seconds = float(response.headers["retry-after"]) if response is not None else None
    except (KeyError, ValueError):  # absent, or a date
        return None
    return seconds if seconds is not None and 0 <= seconds < float("inf") else None


def _reason(error: Exception) -> str:
    """One line about what went wrong, with the cause that a connection error hides."""
    text = error_text(error)
    cause: BaseException | None = error.__cause__
    while cause is not None and cause.__cause__ is not None:
        cause = cause.__cause__
    if cause is not None and str(cause) and str(cause) not in text:
        text += f" {' '.join(str(cause).split())}"
    return text[:400]
