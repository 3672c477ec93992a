"""A model behind an OpenAI-compatible HTTP endpoint, as a `ChatPolicy`.

    policy = Endpoint("gpt-4o-mini", api_key=..., temperature=0.0)
    episode = await run_episode(env, policy, MessagesContext(), seed=0)

Works with OpenAI, vLLM, SGLang, llama.cpp, and any other server of ``/v1/chat/completions``. Transient
failures are retried with the same random seed, so an unreliable endpoint costs time but does not change the
requests.

Servers differ in the fields that they accept. A request holds ``max_tokens``, ``temperature``, ``seed``,
``top_p`` unless it is 1, and ``tools`` if they are offered; `extra_body` changes or drops all but the last.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from gem_core import Observation
from gem_core._observations import encodable
from gem_core._util.checks import expected
from gem_core._util.messages import error_text
from gem_core._util.seeds import derive_int
from gem_core._util.urls import without_secrets
from gem_core._util.visible import visible
from gem_core.errors import ConfigError, MissingDependency, ServiceError
from gem_core.rollout import ChatReply, ContextFull, RequestRejected
from gem_core.rollout._messages import Message
from gem_envs._proxies import proxy_for, via
from gem_lab._engines.endpoint_errors import everything_said, is_too_long
from gem_lab._engines.patience import Patience
from gem_lab._engines.rate_limits import RateLimit

logger = logging.getLogger(__name__)

CHARACTERS_PER_TOKEN = 40
"""Maximum number of characters per allowed token; a longer answer counts as cut by the length limit."""

CHARACTERS_PER_IMAGE = 4000
"""Size of an image for the rate limit: about 1000 tokens, typical for an image of 1000 by 1000 pixels."""

SILENCE = 60.0
"""Number of seconds beyond the time limit of an attempt after which a silent endpoint counts as down."""

OWN_FIELDS = ("model", "messages", "tools", "stream", "n")
"""Fields of a request that `extra_body` may not change."""


class Endpoint:
    """A model behind an HTTP endpoint.

    Args:
        model: Name by which the endpoint knows the model.
        base_url: Address of the endpoint. None reads ``OPENAI_BASE_URL``, or means OpenAI if it is not set.
        api_key: Key for the endpoint. None reads ``OPENAI_API_KEY``; with a `base_url`, a key is optional.
        temperature: Sampling temperature.
        top_p: Nucleus sampling: sample from the smallest set of tokens with this probability. 1 is not sent.
        seed: Random seed; with request id and turn it determines the seed that is sent. None sends no seed.
        extra_body: Fields for the body of each request, which replace those of the same name; None as a value
            leaves out the field, for endpoints that reject it.
        timeout: Time limit in seconds for one attempt.
        patience: Rules for retries; None gives up `SILENCE` seconds later than an attempt can take.
        requests_per_minute: Rate limit for requests; None means no limit.
        tokens_per_minute: Rate limit for tokens; a request counts its prompt and its maximum number of
            response tokens. None means no limit.

    Raises:
        MissingDependency: The package openai is not installed.
        ConfigError: Neither a key nor an address is given, or `extra_body` has one of `OWN_FIELDS`.
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
        base_url = (base_url or os.environ.get("OPENAI_BASE_URL") or "").strip() or None
        if base_url and not re.match(r"https?://[^\s/]", base_url, re.IGNORECASE):
            what = "an address such as http://127.0.0.1:8000/v1"
            raise expected("base_url", without_secrets(base_url), what)
        key = api_key or os.environ.get("OPENAI_API_KEY")
        if not key and not base_url:
            raise ConfigError(
                f"{model!r} is not a folder, so it must be served by an endpoint, but no address or key is "
                "set: give --base-url or set OPENAI_API_KEY"
            )
        check_extra_body(extra_body or {})
        self._openai = openai
        proxy = proxy_for(base_url or "https://api.openai.com")
        self._client = openai.AsyncOpenAI(
            base_url=base_url, api_key=key or "none", max_retries=0, timeout=timeout,
            http_client=_http_client(openai, proxy),
        )  # fmt: skip
        self.address = without_secrets(str(self._client.base_url)) + via(proxy)
        self._model = model
        self._sampling: dict[str, Any] = {"temperature": temperature}
        if top_p != 1:
            self._sampling["top_p"] = top_p
        self._extra_body = dict(extra_body or {})
        self._seed = seed
        self._patience = patience or Patience(timeout + SILENCE)
        self._rate = RateLimit(requests_per_minute, tokens_per_minute)
        self._limit_name = "max_tokens"
        """Name of the token limit; newer models of OpenAI reject the first one."""
        self._warned = False

    @property
    def repeated(self) -> int:
        """Number of retries so far."""
        return self._patience.repeated

    async def reply(
        self,
        messages: list[Message],
        *,
        max_tokens: int,
        request_id: str,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> ChatReply:
        """Ask for one answer; see `gem_core.rollout.ChatPolicy`.

        Raises:
            ContextFull: The endpoint reports that the conversation is too long.
            RequestRejected: The endpoint answers other conversations, but not this one.
            ServiceError: The endpoint rejects the request or no longer answers.
        """
        attempt, failed_at = 0, None
        while True:
            body = self._body(messages, max_tokens, request_id, tools)
            limits = [body.get(name) for name in ("max_tokens", "max_completion_tokens")]
            most = max((limit for limit in limits if isinstance(limit, int)), default=max_tokens)
            characters = sum(_characters(message["content"] or "") for message in messages)
            await self._rate.wait(1, most + characters / 4)
            try:
                reply = _read(await self._create(messages, body), most)
            except (self._openai.OpenAIError, _Unreadable, ValueError, RecursionError) as error:
                self._raise_if_too_long(error)
                if self._renames_limit(error, body):
                    continue
                filtered = await self._refusal(error, body)
                if filtered is not None:
                    return filtered
                attempt += 1
                failed_at = self._patience.now() if failed_at is None else failed_at
                pause = self._patience.pause(attempt, failed_at, _retry_after(error))
                if pause is None:
                    if await self._answers(body):
                        raise self._rejected(error) from error
                    raise ServiceError(
                        f"{self.address} does not answer ({_reason(error)}); finished episodes are kept; run "
                        f"the same command to continue{_advice(error, body)}"
                    ) from error
                if not self._warned:
                    self._warned = True
                    logger.warning("%s: %s; retrying", self.address, _reason(error))
                await asyncio.sleep(pause)
                continue
            self._patience.succeeded()
            return reply

    async def _create(self, messages: list[Message], body: Mapping[str, Any]) -> Any:
        return await self._client.chat.completions.create(
            model=self._model,
            messages=messages,
            extra_body=body or None,
        )

    async def _answers(self, body: Mapping[str, Any]) -> bool:
        """Return whether the endpoint answers a short message with the same fields.

        If it does, an error is about one conversation and not about the endpoint or the options.
        """
        try:
            _read(await self._create([{"role": "user", "content": "Hello"}], body), 1)
        except (self._openai.OpenAIError, _Unreadable, ValueError, RecursionError):
            return False
        return True

    def _rejected(self, error: Exception) -> RequestRejected:
        return RequestRejected(
            f"{self.address} answers other requests, but not this conversation: {_reason(error)}"
        )

    def _raise_if_too_long(self, error: Exception) -> None:
        status = getattr(error, "status_code", None)
        if status is None and not isinstance(error, _Unreadable):
            return
        if is_too_long(status, everything_said(error)):
            raise ContextFull(f"the conversation is too long for {self._model}: {_reason(error)}") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _body(
        self,
        messages: list[Message],
        max_tokens: int,
        request_id: str,
        tools: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Return the fields of a request other than ``model`` and ``messages``."""
        body = {**self._sampling, self._limit_name: max_tokens}
        if self._seed is not None:
            body["seed"] = derive_int(self._seed, request_id, len(messages), sep="/")
        if tools:
            body["tools"] = list(tools)
        body |= self._extra_body
        return {name: value for name, value in body.items() if value is not None}

    def _renames_limit(self, error: Exception, body: Mapping[str, Any]) -> bool:
        """Return whether the endpoint wants ``max_completion_tokens``, which later requests then hold."""
        wanted = "max_completion_tokens"
        if getattr(error, "status_code", None) not in (400, 422) or wanted not in _reason(error):
            return False
        if "max_tokens" not in body or wanted in body or "max_tokens" in self._extra_body:
            return False
        self._limit_name = wanted
        return True

    async def _refusal(self, error: Exception, body: Mapping[str, Any]) -> ChatReply | None:
        """Handle an error that a retry cannot fix.

        Returns:
            An empty reply if a content filter withheld the answer; None if the request may be retried.

        Raises:
            RequestRejected: The error is permanent, but the endpoint answers other conversations.
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
                f"{_advice(error, body)}"
            ) from None
        if code == "insufficient_quota":
            raise ServiceError(f"{self.address}: {text}") from None
        if error.status_code in (408, 409, 425, 429) or (
            error.status_code >= 500 and error.status_code != 501
        ):
            return None
        if code == "content_filter":
            return ChatReply("", notes={"withheld": text})
        if await self._answers(body):
            raise self._rejected(error) from None
        raise ServiceError(f"{self.address} rejects the request: {text}{_advice(error, body)}") from None


def _http_client(openai: Any, proxy: str | None) -> Any:
    """Return an HTTP client with this proxy, if any, and the certificates that the environment names."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    try:
        own = ssl.create_default_context(cafile=file, capath=folder) if file or folder else True
    except OSError as error:
        raise ConfigError(
            f"the certificates of SSL_CERT_FILE={file!r}, SSL_CERT_DIR={folder!r} cannot be read: {error}"
        ) from error
    chosen = {"proxy": proxy} if proxy else {}
    return openai.DefaultAsyncHttpxClient(trust_env=False, verify=own, **chosen)


def check_extra_body(fields: Mapping[str, Any]) -> None:
    """Raise a `ConfigError` if `fields` has one of `OWN_FIELDS`."""
    if own := [name for name in OWN_FIELDS if name in fields]:
        raise ConfigError(
            f"extra_body: {', '.join(own)} cannot be changed; it may hold any field except "
            f"{', '.join(OWN_FIELDS)}"
        )


def _advice(error: Exception, body: Mapping[str, Any]) -> str:
    """Return what to do if an error names a field of the request; empty if it names none."""
    text = f"{_reason(error)} {getattr(error, 'param', None) or ''}"
    named = [name for name in body if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)]
    if not hasattr(error, "status_code"):
        return ""
    name = next((name for name in named if name != "tools"), None)
    if name is None:
        about_tools = "tools" in body and "tool" in text.lower()
        return "; to send no tools, omit --native-tools" if about_tools else ""
    return (
        f"; to leave out {name!r}, add --extra-body '{json.dumps({name: None})}'; another value than null is "
        "sent instead"
    )


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
        error = getattr(completion, "error", None)  # some endpoints report errors with status 200
        raise _Unreadable(f"the response is not a completion: {str(error or completion)[:400]!r}")
    message = choices[0].message
    said, thought = _content(message.content)
    text = encodable(said)
    calls = _tool_calls(message)
    cut = choices[0].finish_reason == "length"
    most = CHARACTERS_PER_TOKEN * max_tokens
    if len(text) + sum(len(call["function"]["arguments"]) for call in calls) > most:  # it ignores the limit
        text, calls, cut = text[:most], (), True
    usage = getattr(completion, "usage", None)
    reasoning = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None) or thought
    return ChatReply(
        text,
        "length" if cut else "stop",
        getattr(usage, "prompt_tokens", None),
        getattr(usage, "completion_tokens", None),
        {"reasoning": encodable(str(reasoning))[:most]} if reasoning else {},
        calls,
    )


def _content(content: Any) -> tuple[str, str]:
    """Return the text of a message and its thinking; the content is a text or a list of parts."""
    if isinstance(content, str):
        return content, ""
    texts, thoughts = [], []
    for part in content if isinstance(content, list) else [content]:
        fields = part if isinstance(part, Mapping) else vars(part) if hasattr(part, "__dict__") else {}
        if isinstance(part, str):
            texts.append(part)
        elif "think" in str(fields.get("type")) or "reason" in str(fields.get("type")):
            inner = fields.get("thinking", fields.get("text"))
            thoughts.append(_content(inner)[0])
        elif isinstance(said := fields.get("text", fields.get("refusal", fields.get("content"))), str):
            texts.append(said)
        elif isinstance(said, Mapping) and isinstance(said.get("value"), str):
            texts.append(said["value"])
    return "".join(texts), "".join(thoughts)


def _tool_calls(message: Any) -> tuple[dict[str, Any], ...]:
    """Return the native tool calls of a message in one form, whatever the endpoint leaves out."""
    entries = [(call, getattr(call, "function", None)) for call in getattr(message, "tool_calls", None) or ()]
    if not entries and (old := getattr(message, "function_call", None)):  # the API before tools
        entries = [(old, old)]
    calls = []
    for index, (call, function) in enumerate(entries):
        arguments = getattr(function, "arguments", None)
        calls.append(
            {
                "id": getattr(call, "id", None) or f"call_{index}",
                "type": "function",
                "function": {
                    "name": encodable(str(getattr(function, "name", None) or "")),
                    "arguments": encodable(
                        arguments if isinstance(arguments, str) else json.dumps(arguments or {})
                    ),
                },
            }
        )
    return tuple(calls)


def _retry_after(error: Exception) -> float | None:
    response = getattr(error, "response", None)
    try:
        seconds = float(response.headers["retry-after"]) if response is not None else None
    except (KeyError, ValueError):  # absent, or a date
        return None
    return seconds if seconds is not None and 0 <= seconds < float("inf") else None


def _reason(error: Exception) -> str:
    """Return one line about an error, including the root cause or the body that its message hides."""
    text = error_text(error)
    body = getattr(getattr(error, "response", None), "text", "")
    if text == f"Error code: {getattr(error, 'status_code', None)}" and body:
        text += f" - {' '.join(body.split())}"
    cause: BaseException | None = error.__cause__
    while cause is not None and cause.__cause__ is not None:
        cause = cause.__cause__
    if cause is not None and str(cause) and str(cause) not in text:
        text += f" {' '.join(str(cause).split())}"
    return visible(without_secrets(text))[:400].removesuffix(".")
