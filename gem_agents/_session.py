"""`Session`: the calls of one episode that an agent plays."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gem_agents._api import Refused, Reply, Request, bad
from gem_agents._endpoints.responses import Responses
from gem_agents._history import CallHistory, Found, key_of, link
from gem_agents._log import SessionLog
from gem_agents._reasons import why_opened
from gem_agents._steps import Steps
from gem_agents._turns import Counts, Draft, ModelCall, Reason
from gem_chat._conversation import check_generation
from gem_chat._histories import ChatMessage, GrowingConversations
from gem_core._util.waiting import cancel_all
from gem_core.errors import ConfigError, UnsupportedTemplate
from gem_core.rollout import Generation, Policy
from gem_core.rollout._dialogue import TokenLimits
from gem_envs._background import on_loop

MOST_OPEN = 64
"""Maximum number of responses of one episode that are sampled at the same time; further calls wait."""


@dataclass(frozen=True)
class SessionLimits:
    """Limits of an episode.

    Attributes:
        calls: Maximum number of responses.
        tokens: Limits on tokens; those of the whole episode apply to each row.
    """

    calls: int
    tokens: TokenLimits


class Exchange:
    """A request and its answer, which outlives the connection.

    Attributes:
        id: Random id, which is in all ids of the answer.
        request: The request.
        calls: Task that samples the responses.
        waiting: Whether a connection waits for the answer.
        delivered: Whether a connection got it.
        written: Whether all of it was written to the last connection.
    """

    def __init__(self, request: Request) -> None:
        self.id = secrets.token_hex(9)
        self.request = request
        self.calls: asyncio.Task[list[ModelCall]]
        self.waiting, self.delivered, self.written = True, False, False

    def note_written(self) -> None:
        """Note that all of the answer was written."""
        self.written = True

    def deliver(self, got: bool = True) -> None:
        """Note whether the agent got the answer."""
        self.delivered = got
        for call in self.calls.result():
            call.delivered = got


class Session:
    """One episode.

    It belongs to the loop of the gateway; the policy is called on the loop of the trainer.

    Args:
        policy: The policy.
        loop: Event loop of the policy.
        conversations: Encodes prompts and reads responses.
        limits: Limits of the episode.
        request_id: Id of the episode, with which the policy is called. Rows of tokens after the first one
            have ``ID/1``, ``ID/2``, and so on, so no two open calls share an id.
        places: Places for open calls, which all episodes of the process share.

    Attributes:
        id: Id of the episode in addresses.
        agent_key: Key of the agent.
        grader_key: Key of the grader, which can set rewards and end the episode.
        calls: The responses, in the order in which they were sampled.
        counts: What happened.
        log: What happened, in words.
        over: Why the episode is over, for the agent; None while it runs.
        failure: Error of the policy; None if there was none.
        full: Whether the last request was refused because its prompt is too long.
        empty: Whether the policy returned no token.
        started: Number of responses that were asked for.
        open_calls: Number of responses that are being sampled.
        steps: The environment; None if the agent does not act through the gateway.
        played: Ids of the calls whose actions were played.
        responses: The Responses endpoint.
        on_request: Called with the page, the headers, and the body of each model call; None if nobody asks.
    """

    def __init__(
        self,
        policy: Policy,
        loop: asyncio.AbstractEventLoop,
        conversations: GrowingConversations,
        limits: SessionLimits,
        request_id: str,
        places: asyncio.Semaphore,
    ) -> None:
        self.id, self.agent_key, self.grader_key = (secrets.token_urlsafe(18) for _ in range(3))
        self._policy, self._loop, self._conversations = policy, loop, conversations
        self._limits, self._request_id = limits, request_id
        self._places, self._open = places, asyncio.Semaphore(MOST_OPEN)
        self._history: CallHistory[ModelCall] = CallHistory()
        self._model_ids: dict[str, str] = {}
        self._exchanges: dict[str, list[Exchange]] = {}
        self.started = self.segments = self.open_calls = 0
        self.calls: list[ModelCall] = []
        self.counts, self.log = Counts(), SessionLog()
        self.over: str | None = None
        self.failure: BaseException | None = None
        self.full = self.empty = False
        self.steps: Steps | None = None
        self.played: set[str] = set()
        self.responses = Responses()
        self.on_request: Callable[[str, Mapping[str, str], Request], None] | None = None

    # -- requests -----------------------------------------------------------------------------

    def exchange(self, request: Request, marked: bool = False) -> Exchange:
        """Return the exchange of a request: a lost one with the same content, else a new one.

        Some agents do not mark a request that they repeat, and two equal requests may each want a response.
        Therefore a request gets an old answer only if the connection of that broke, or if it is marked.

        Args:
            request: The request.
            marked: Whether the agent marked it as repeated.

        Raises:
            Refused: The episode is over, or the request exceeds a limit.
        """
        if self.over is not None:
            raise self._ended()
        content = _content(request)
        for old in reversed(self._exchanges.get(content, [])):
            broke = not old.waiting and not old.delivered
            if (broke or marked) and not _failed(old):
                self.counts.replayed += 1
                old.request, old.waiting, old.written = request, True, False
                return old
        exchange = Exchange(request)
        drafts = self._drafts(request)
        self._exchanges.setdefault(content, []).append(exchange)
        exchange.calls = asyncio.ensure_future(self._sample_all(exchange, drafts))
        return exchange

    async def result(self, exchange: Exchange, seconds: float | None = None) -> list[Reply] | None:
        """Wait for the answer of an exchange; None if it is not there in time.

        Raises:
            Refused: The episode ended meanwhile, or the policy failed.
        """
        await asyncio.wait({exchange.calls}, timeout=seconds)
        if not exchange.calls.done():
            return None
        if exchange.calls.cancelled():
            self.end("its call was canceled")  # by the loop of the policy, unless the episode is over
            raise self._ended()
        return [call.reply for call in exchange.calls.result()]

    def count(self, request: Request) -> int:
        """Return the number of tokens in the prompt of a request."""
        return len(self._prompt(request, self.find(request))[0])

    def find(self, request: Request) -> Found[ModelCall]:
        """Return what is recognized of the conversation of a request."""
        return self._history.find(request.messages, request.schemas)

    def end(self, reason: str) -> None:
        """End the episode; open calls are answered, and add no turn."""
        if self.over is None:
            self.over = reason
            for exchange in self._all():
                exchange.calls.cancel()

    async def close(self) -> None:
        """End the episode, and wait until no call is open."""
        self.end("the agent has ended")
        await cancel_all([exchange.calls for exchange in self._all()])
        if self.steps is not None:
            await self.steps.close()
        self.counts.lost = sum(not call.delivered for call in self.calls)

    def delivered(self) -> list[ModelCall]:
        """Return the responses that the agent got, in the order in which they were sampled."""
        return [call for call in self.calls if call.delivered]

    def summary(self) -> dict[str, Any]:
        """Return what happened, as data for the trace."""
        counts = {name: value for name, value in vars(self.counts).items() if name != "unserved"}
        return {
            "calls": len(self.calls),
            "rows": self.segments,
            **counts,
            "unserved": sorted(self.counts.unserved),
        }

    def call_ids(self) -> list[str]:
        """Return the ids with which the policy was called."""
        return [self._call_id(segment) for segment in range(self.segments)]

    # -- rewards ------------------------------------------------------------------------------

    def refuse(self, refused: Refused) -> None:
        """Note a request that gets an error."""
        self.counts.refused += 1
        self.log.refuse(refused, len(self.calls))

    def acting(self, call_id: str | None = None) -> ModelCall:
        """Return the response that made a call; without an id, the newest one that the agent got.

        Raises:
            Refused: There is no such response.
        """
        calls = self.delivered()
        if call_id is not None:
            calls = [call for call in calls if call_id in {one.id for one in call.message.calls}]
        if not calls:
            what = (
                "the agent has no response yet" if call_id is None else f"there is no call {call_id[:80]!r}"
            )
            raise Refused(404, "unknown_call", what)
        return calls[-1]

    def reward(self, value: float, call_id: str | None = None, info: Mapping[str, Any] | None = None) -> None:
        """Add a reward to the turn that made a call; without an id, to the newest turn."""
        call = self.acting(call_id)
        call.reward += value
        call.info.update(info or {})

    # -- sampling -----------------------------------------------------------------------------

    def _all(self) -> list[Exchange]:
        return [exchange for same in self._exchanges.values() for exchange in same]

    def _ended(self) -> Refused:
        return Refused(400, "episode_over", f"the episode is over: {self.over}")

    def _call_id(self, segment: int) -> str:
        return f"{self._request_id}/{segment}" if segment else self._request_id

    def _prompt(self, request: Request, found: Found[ModelCall]) -> tuple[list[int], ModelCall | None, int]:
        """Return the prompt, the call that it extends, and the index of the first new message."""
        messages, last = request.messages, found.last
        try:
            if last is not None and max(found.known) < found.start < len(messages):
                tail = self._conversations.tail(
                    last.message, messages[found.start :], last.generation.token_ids, self._model_ids
                )
                if tail is not None:
                    return [*last.tokens, *tail], last, found.start
            sampled = {index: call.generation.token_ids for index, call in found.known.items()}
            prompt = self._conversations.whole(messages, request.schemas, sampled, self._model_ids)
        except (UnsupportedTemplate, ConfigError) as error:
            raise bad(f"the chat template of the model cannot show this conversation: {error}") from error
        for index, call in reversed(found.known.items()):
            if prompt[: len(call.tokens)] == call.tokens:
                return prompt, call, index + 1
        answers = [index for index, message in enumerate(messages) if message.role == "assistant"]
        return prompt, None, answers[-1] + 1 if answers else 0

    def _drafts(self, request: Request) -> list[Draft]:
        """Return a draft for each response, all within the limits."""
        if self.started + request.count > self._limits.calls:
            self.end(f"it has had {self._limits.calls} calls, the maximum")
            raise self._ended()
        found = self.find(request)
        prompt_ids, parent, start = self._prompt(request, found)
        self._note(request, found)
        drafts = []
        for number in range(request.count):
            extends = parent is not None and parent.child is None
            segment = parent.draft.segment if parent is not None and extends else self.segments
            first = parent.draft.first if parent is not None and extends else len(prompt_ids)
            limits = self._limits.tokens.after(first, "append")
            self.full = limits.room(prompt_ids) < 1
            if self.full:
                most = (limits.total or 0) - 1
                text = f"prompt is too long: {len(prompt_ids)} tokens > {most} maximum"
                raise Refused(400, "context_length_exceeded", text)
            draft = Draft(request, prompt_ids, parent, start, segment, first, found)
            if parent is not None and extends:
                parent.child = draft
            else:
                self.segments += 1
                newest = [*self.log.newest.values()]
                draft.why = (
                    Reason("sample", f"answer {number + 1} of {request.count} to one request")
                    if number
                    else why_opened(request, found, parent, newest, self.calls)
                )
            self.log.add(draft)
            drafts.append(draft)
        self.started += request.count
        return drafts

    def _note(self, request: Request, found: Found[ModelCall]) -> None:
        on_path = sum(index < found.start for index in found.known)
        for call in found.known.values():
            call.delivered = True  # also if its connection broke
        self.counts.recognized += on_path
        self.counts.spliced += len(found.known) - on_path
        self.counts.foreign += len(found.foreign)
        self.log.note_foreign(request, found, len(self.calls))
        self.counts.unserved.update(request.unserved)

    async def _sample_all(self, exchange: Exchange, drafts: Sequence[Draft]) -> list[ModelCall]:
        sampling = [
            asyncio.ensure_future(self._sample(exchange, draft, number))
            for number, draft in enumerate(drafts)
        ]
        try:
            return await asyncio.gather(*sampling)
        except (Refused, asyncio.CancelledError):
            await cancel_all(sampling)
            raise

    async def _sample(self, exchange: Exchange, draft: Draft, number: int) -> ModelCall:
        done = False
        try:
            self.open_calls += 1
            async with self._open, self._places:
                call = await self._generate(exchange, draft, number)
            done = True
        finally:
            self.open_calls -= 1
            if not done and draft.parent is not None and draft.parent.child is draft:
                draft.parent.child = None  # its tokens can still be extended
        draft.said = call.message
        self.calls.append(call)
        self._history.add(call)
        return call

    async def _generate(self, exchange: Exchange, draft: Draft, number: int) -> ModelCall:
        request = draft.request
        limits = self._limits.tokens.after(draft.first, "append")
        room = min(limits.room(draft.prompt_ids), request.max_tokens or 1 << 62)
        takes_stop = bool(request.stop) and getattr(self._policy, "takes_stop", False)
        arguments: dict[str, Any] = {"stop": request.stop} if takes_stop else {}
        try:
            generation = await on_loop(
                self._loop,
                self._policy.generate(
                    list(draft.prompt_ids),
                    max_tokens=room,
                    request_id=self._call_id(draft.segment),
                    **arguments,
                ),
            )
            check_generation(generation, room)
        except Exception as error:  # whatever the engine raises
            self.failure = error
            self.end("the policy failed")
            raise self._ended() from error
        if not generation.token_ids:
            self.empty = True
            self.end("the policy returned no token")
            raise self._ended()
        return self._call(exchange, draft, generation, number)

    def _call(self, exchange: Exchange, draft: Draft, generation: Generation, number: int) -> ModelCall:
        request = draft.request
        generation, stop = self._stopped(generation, request.stop)
        said, malformed = self._conversations.read(generation.token_ids, request.schemas)
        if stop is not None:
            said = replace(said, content=said.content.partition(stop)[0])
        calls = []
        for index, call in enumerate(said.calls):
            id = f"call_{exchange.id}{number:x}{index:x}"
            self._model_ids[id] = call.id
            calls.append(replace(call, id=id, error=None))
        message = ChatMessage("assistant", said.content, tuple(calls), said.thought)
        parent = draft.parent
        reply = Reply(
            message,
            generation.finish_reason,
            stop,
            len(draft.prompt_ids),
            len(generation.token_ids),
            0 if parent is None else len(parent.tokens),
        )
        return ModelCall(draft, generation, reply, link(draft.found.chain, key_of(message)), malformed)

    def _stopped(self, generation: Generation, stop: Sequence[str]) -> tuple[Generation, str | None]:
        """Return a generation up to the token with which it holds a stop string, and that string.

        The text of a policy that takes no stop strings goes on after it.
        """
        ids = list(generation.token_ids)
        if not stop:
            return generation, None

        def held(count: int) -> list[str]:
            text = self._conversations.text(ids[:count])
            return [one for one in stop if one in text]

        if not held(len(ids)):
            return generation, None
        low, high = 1, len(ids)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if held(middle) else (middle + 1, high)
        logprobs = None if generation.logprobs is None else list(generation.logprobs[:low])
        return Generation(ids[:low], logprobs, "stop"), held(low)[0]


def _failed(exchange: Exchange) -> bool:
    done = exchange.calls.done()
    return done and (exchange.calls.cancelled() or exchange.calls.exception() is not None)


def _content(request: Request) -> str:
    """Return what two equal requests share; whether the answer is a stream is no part of it."""
    parts = (
        [key_of(message) for message in request.messages],
        [message.call_id for message in request.messages],
        request.schemas,
        request.max_tokens,
        request.stop,
        request.count,
        request.model,
    )
    return hashlib.blake2b(repr(parts).encode("utf-8", "replace"), digest_size=16).hexdigest()
