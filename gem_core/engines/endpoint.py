"""A model behind an OpenAI-compatible HTTP endpoint, as a `ChatPolicy`.

    policy = Endpoint("gpt-4o-mini", api_key=..., temperature=0.0)
    episode = await run_episode(env, policy, MessagesContext(), seed=0)

Works with OpenAI, vLLM, SGLang, llama.cpp, and any other server of ``/v1/chat/completions``. Transient
failures are retried with the same random seed, so an unreliable endpoint costs time but does not change the
requests.
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

CHARACTERS_PER_TOKEN = 40
"""Maximum number of characters per allowed token; a longer answer counts as cut by the length limit."""

CHARACTERS_PER_IMAGE = 4000
"""Size of an image for the rate limit: about 1000 tokens, typical for an image of 1000 by 1000 pixels."""

_TOO_LONG = ("context length", "context window", "context size", "maximum context", "too many tokens")


class Endpoint:
    """A model behind an HTTP endpoint.

    Args:
        model: Name by which the endpoint knows the model.
        base_url: Address of the endpoint. None reads ``OPENAI_BASE_URL``, or means OpenAI if it is not set.
        api_key: Key for the endpoint. None reads ``OPENAI_API_KEY``; with a `base_url`, a key is optional.
        temperature: Sampling temperature.
        top_p: Nucleus sampling: sample from the smallest set of tokens with this probability. 1 is not sent.
        seed: Random seed; with request id and turn it determines the seed that is sent. None sends no seed.
        extra_body: Additional fields for the body of each request.
        timeout: Time limit in seconds for one attempt.
        patience: Rules for retries; None means `Patience(60)`.
        requests_per_minute: Rate limit for requests; None means no limit.
        tokens_per_minute: Rate limit for tokens; a request counts its prompt and its maximum number of
            response tokens. None means no limit.

    Raises:
        MissingDependency: The package openai is not installed.
        ConfigError: Neither a key nor an address is given.
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
                "an endpoint needs the package 'openai': pip install 'gem-core[eval]'"
            ) from error
        base_url = base_url or os.environ.get("OPENAI_BASE_URL")
        key = api_key or os.environ.get("OPENAI_API_KEY")
        if not key and not base_url:
            raise ConfigError(
                f"{model!r} is not a folder, so it must be served by an endpoint, but no address or key is "
                "set: give --base-url or set OPENAI_API_KEY"
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
        self._warned = False

    @property
    def repeated(self) -> int:
        """Number of retries so far."""
        return self._patience.repeated

    async def reply(self, messages: list[Message], *, max_tokens: int, request_id: str) -> ChatReply:
        """Ask for one answer; see `gem_core.rollout.ChatPolicy`.

        Raises:
            ContextFull: The endpoint reports that the conversation is too long.
            ServiceError: The endpoint rejects the request or no longer answers.
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
                pause = self._patience.pause(attempt, began, _retry_after(error))
                if pause is None:
                    raise ServiceError(
                        f"{self.address} does not answer ({_reason(error)}); finished episodes are kept; run "
                        "the same command to continue"
                    ) from error
                if not self._warned:
                    self._warned = True
                    logger.warning("%s: %s; retrying", self.address, _reason(error))
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
            messages=messages,  # type: ignore[arg-type]  # the client sends plain dicts
            extra_body=self._extra_body or None,
            **options,
        )

    def _refusal(self, error: Exception) -> ChatReply | None:
        """Handle an error that a retry cannot fix.

        Returns:
            An empty reply if a content filter withheld the answer; None if the request may be retried.

        Raises:
            ContextFull: The conversation is too long.
            ServiceError: The error is permanent.
        """
        if not isinstance(error, self._openai.APIStatusError):
            return None
        text, code = _reason(error), str(getattr(error, "code", None) or "")
        if error.status_code in (401, 403):
            raise ServiceError(f"{self.address} rejects the key: {text}") from None
        if error.status_code == 404:
            raise ServiceError(
                f"{self.address} has no model {self._model!r}, or the address is wrong: {text}"
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
            self._limit_name = "max_completion_tokens"  # the name for newer models; retry
            return None
        raise ServiceError(f"{self.address} rejects the request: {text}") from None


def _characters(content: Observation) -> int:
    """Return the number of characters to count for the rate limit; each image counts the same."""
    if isinstance(content, str):
        return len(content)
    return sum(len(part["text"]) if part["type"] == "text" else CHARACTERS_PER_IMAGE for part in content)


class _Unreadable(Exception):
    """Raised when the answer is not a completion."""


def _read(completion: Any, max_tokens: int) -> ChatReply:
    choices = getattr(completion, "choices", None)
    if not choices or getattr(choices[0], "message", None) is None:
        raise _Unreadable(f"the response is not a completion: {str(completion)[:200]!r}")
    message = choices[0].message
    text = encodable(message.content) if isinstance(message.content, str) else ""
    cut = choices[0].finish_reason == "length"
    most = CHARACTERS_PER_TOKEN * max_tokens
    if len(text) > most:  # the endpoint ignores the limit
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


def _retry_after(error: Exception) -> float | None:
    response = getattr(error, "response", None)
    try:
        seconds = float(response.headers["retry-after"]) if response is not None else None
    except (KeyError, ValueError):  # absent, or a date
        return None
    return seconds if seconds is not None and 0 <= seconds < float("inf") else None


def _reason(error: Exception) -> str:
    """Return one line about an error, including the root cause that a connection error hides."""
    text = error_text(error)
    cause: BaseException | None = error.__cause__
    while cause is not None and cause.__cause__ is not None:
        cause = cause.__cause__
    if cause is not None and str(cause) and str(cause) not in text:
        text += f" {' '.join(str(cause).split())}"
    return text[:400]
