"""The pages of a gateway: models, model calls, and the grader's."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from gem_agents._api import EndpointFormat, Refused, bad
from gem_agents._endpoints.anthropic import AnthropicMessages
from gem_agents._endpoints.chat import ChatCompletions
from gem_agents._mcp import action_of, answer_message, observed, origin, tool_result
from gem_agents._session import Exchange, Session
from gem_agents._steps import Steps
from gem_agents._turns import ModelCall
from gem_core._util.foreign_json import read_json
from gem_core._util.waiting import Overdue, within
from gem_envs.serving import json_response
from gem_envs.serving._access import RequestRefused
from gem_envs.serving._http import SEND_SECONDS, read_body, send, web

_MODELS = ("policy",)
_CHAT, _ANTHROPIC = ChatCompletions(), AnthropicMessages()

logger = logging.getLogger(__name__)
_reported: set[str] = set()
"""Parameters without effect that were reported in this process."""


class GatewayPages:
    """Answers requests for the episodes of a gateway.

    An agent's addresses begin with ``/e/ID.KEY``, a grader's with ``/grader/ID.KEY``, and each has a key of
    its own: the model can read what the agent knows, and must not set its own rewards.

    Args:
        sessions: The episodes by id.
        max_body: Maximum size in bytes of a body.
        heartbeat: Number of seconds between two signs of life in a stream.
    """

    def __init__(self, sessions: Mapping[str, Session], max_body: int, heartbeat: float) -> None:
        self._sessions, self._max_body, self._heartbeat = sessions, max_body, heartbeat

    async def answer(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Answer a request."""
        if request.method in ("GET", "HEAD") and path == "/health":
            return json_response({"status": "healthy"})
        root, _, rest = path.strip("/").partition("/")
        name, _, page = rest.partition("/")
        endpoint: EndpointFormat = _ANTHROPIC if "/messages" in page else _CHAT
        try:
            session = self._session(root, name)
            try:
                if root == "grader":
                    return json_response(await self._grade(request, session, page))
                return await self._serve(request, session, page.removeprefix("v1/"))
            except Refused as refused:
                session.refuse(refused)
                raise
        except Refused as refused:
            return json_response(endpoint.error(refused), refused.status)

    def _session(self, root: str, name: str) -> Session:
        """Return the episode that a key opens; all wrong keys take the same time and get the same answer."""
        id, _, key = name.partition(".")
        session = self._sessions.get(id)
        expected = {"e": "agent_key", "grader": "grader_key"}.get(root)
        if expected is None:
            raise Refused(404, "not_found", "expected an address that begins with /e/KEY")
        right = "" if session is None else getattr(session, expected)
        same = hmac.compare_digest(key.encode("utf-8", "replace"), right.encode())
        if session is None or not same:
            raise Refused(401, "invalid_api_key", "this address is not valid; its episode may have ended")
        return session

    async def _serve(self, request: web.BaseRequest, session: Session, page: str) -> web.StreamResponse:
        if request.method in ("GET", "HEAD"):
            if page.startswith("models"):
                return json_response(_models(page.removeprefix("models").strip("/")))
            if not page:
                return json_response({"status": "ok"})
        elif request.method == "POST":
            if page == "messages/count_tokens":
                body = await self._body(request)
                return json_response({"input_tokens": session.count(_read(_ANTHROPIC, body))})
            endpoints: dict[str, EndpointFormat] = {
                "chat/completions": _CHAT,
                "messages": _ANTHROPIC,
                "responses": session.responses,
            }
            if page in endpoints:
                return await self._call(request, session, page, endpoints[page])
            if page == "step" and session.steps is not None:
                return await self._step(request, session, session.steps)
            if page == "mcp" and session.steps is not None:
                return await self._mcp(request, session, session.steps)
        if page == "mcp":
            raise Refused(405, "method_not_allowed", "this server sends nothing by itself; use POST")
        raise Refused(404, "not_found", f"there is no page {page[:80]!r} for {request.method}")

    async def _body(self, request: web.BaseRequest) -> dict[str, Any]:
        try:
            raw = await read_body(request, self._max_body)
        except RequestRefused as refusal:
            raise Refused(refusal.status, "invalid_request_error", str(refusal)) from refusal
        try:
            body = read_json(raw)
        except ValueError as error:
            raise bad(f"the body is not JSON: {error}") from error
        if not isinstance(body, dict):
            raise bad("expected a JSON object as the body")
        return body

    async def _call(
        self, request: web.BaseRequest, session: Session, page: str, endpoint: EndpointFormat
    ) -> web.StreamResponse:
        """Answer a model call; if the connection breaks, the response is kept for the agent's next try."""
        wanted = _read(endpoint, await self._body(request))
        _report(wanted.unserved)
        if session.on_request is not None:
            session.on_request(page, request.headers, wanted)
        marked = request.headers.get("x-stainless-retry-count", "0") not in ("", "0")
        exchange = session.exchange(wanted, marked)
        try:
            if wanted.stream:
                answer = await self._stream(request, session, endpoint, exchange)
            else:
                replies = await session.result(exchange)
                body = endpoint.answer(wanted, exchange.id, replies or [])
                exchange.deliver()  # before the agent can act on it
                answer = await send(request, json_response(body), written=exchange.note_written)
            return answer
        except (asyncio.CancelledError, ConnectionError):
            if exchange.delivered and not exchange.written:
                exchange.deliver(False)
            raise
        finally:
            exchange.waiting = False

    async def _stream(
        self, request: web.BaseRequest, session: Session, endpoint: EndpointFormat, exchange: Exchange
    ) -> web.StreamResponse:
        """Send a stream; its head, which fixes the status, waits for the first sign of life."""
        wanted = exchange.request
        answer = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        replies = await session.result(exchange, self._heartbeat)
        await answer.prepare(request)
        await _write(request, answer, endpoint.opening(wanted, exchange.id))
        try:
            while replies is None:
                await _write(request, answer, endpoint.heartbeat(wanted, exchange.id))
                replies = await session.result(exchange, self._heartbeat)
        except Refused as refused:
            session.refuse(refused)
            await _write(request, answer, endpoint.broken(wanted, exchange.id, refused))
        else:
            exchange.deliver()  # before the agent can act on it
            await _write(request, answer, endpoint.rest(wanted, exchange.id, replies), exchange.note_written)
        with contextlib.suppress(ConnectionError):  # Codex hangs up after the last event, which it has got
            await answer.write_eof()
        return answer

    async def _step(self, request: web.BaseRequest, session: Session, steps: Steps) -> web.StreamResponse:
        """Take an action in the environment; the turn of the response that made the call gets its reward."""
        body = await self._body(request)
        action, call_id = body.get("action"), body.get("call_id")
        if not isinstance(action, str):
            raise bad("action: expected a text")
        call = session.acting(None if call_id is None else str(call_id))
        return await self._act(request, session, steps, call, action, dict)

    async def _mcp(self, request: web.BaseRequest, session: Session, steps: Steps) -> web.StreamResponse:
        """Answer a message of an MCP client, whose tool is the environment."""
        message = await self._body(request)
        played = action_of(message)
        if played is None:
            answer = answer_message(message)
            return web.Response(status=202) if answer is None else json_response(answer)
        id: str | None = None
        try:
            call, id = origin(session, *played)
            session.played.update([id] if id else [])
            return await self._act(
                request, session, steps, call, played[0], lambda step: tool_result(message, observed(step))
            )
        except Refused as refused:  # the model may read it
            return json_response(tool_result(message, str(refused), failed=True))
        except (asyncio.CancelledError, ConnectionError):
            session.played.discard(id or "")  # the next try is the same call
            raise

    async def _act(
        self,
        request: web.BaseRequest,
        session: Session,
        steps: Steps,
        call: ModelCall,
        action: str,
        shown: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> web.StreamResponse:
        """Take an action for a response, and answer with what is shown of it."""
        task = steps.begin(call, action)
        got = False
        try:
            await asyncio.wait({task})
            answer = await send(request, json_response(shown(task.result())))
            got = True
        finally:
            if not got and not (task.done() and task.exception() is not None):
                steps.lose(call, action, task)
        if steps.ended is not None:
            session.end("the environment has ended")
        return answer

    async def _grade(self, request: web.BaseRequest, session: Session, page: str) -> dict[str, Any]:
        if request.method != "POST" or page not in ("reward", "end"):
            raise Refused(404, "not_found", "expected POST to reward or end")
        body = await self._body(request)
        if page == "end":
            session.end(str(body.get("reason") or "the grader ended it")[:200])
            return {}
        value, call_id, info = body.get("reward"), body.get("call_id"), body.get("info")
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise bad(f"reward is {str(value)[:40]!r}: expected a finite number")
        if not isinstance(info, dict | None):
            raise bad("info: expected an object")
        session.reward(float(value), None if call_id is None else str(call_id), info)
        return {}


def _read(endpoint: EndpointFormat, body: Mapping[str, Any]) -> Any:
    try:
        return endpoint.read(body)
    except (AttributeError, KeyError, TypeError) as error:  # a value of another type than the API has
        raise bad(f"the request is malformed: {error}") from error


def _report(names: tuple[str, ...]) -> None:
    new = sorted({*names} - _reported)
    if new:
        _reported.update(new)
        logger.warning(
            "agents ask for %s, which has no effect: the trainer decides how responses are sampled",
            ", ".join(new),
        )


def _models(name: str) -> dict[str, Any]:
    """Return the models, or one: every name is the policy's."""
    entries = [
        {
            "id": one, "object": "model", "created": 0, "owned_by": "gem-core",
            "type": "model", "display_name": one, "created_at": "1970-01-01T00:00:00Z",
        }
        for one in ((name,) if name else _MODELS)
    ]  # fmt: skip
    if name:
        return entries[0]
    return {
        "object": "list", "data": entries, "has_more": False, "first_id": _MODELS[0], "last_id": _MODELS[-1]
    }  # fmt: skip


async def _write(
    request: web.BaseRequest,
    answer: web.StreamResponse,
    data: bytes,
    written: Callable[[], object] | None = None,
) -> None:
    """Write a part of a stream; if the client does not read it in time, the connection ends."""
    if not data:
        return
    transport = request.transport

    async def write() -> None:
        await answer.write(data)
        if written is not None:
            written()

    try:
        await within(SEND_SECONDS, write())
    except Overdue:
        if transport is not None:
            transport.abort()
        raise ConnectionResetError("the client did not read its answer in time") from None
