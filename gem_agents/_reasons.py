"""`why_opened`: why a request of an agent begins a row of tokens instead of going on with one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import takewhile

from gem_agents._api import Request
from gem_agents._history import Found, key_of
from gem_agents._turns import Draft, ModelCall, Reason
from gem_chat._histories import ChatMessage

_COMPARED = 32
"""Maximum number of earlier rows with which a request is compared."""
_SHOWN = 30
"""Number of characters that are shown on each side of a difference."""
_TASK = 20
"""Minimum number of characters of an argument that is found inside a longer text."""


def why_opened(
    request: Request,
    found: Found[ModelCall],
    parent: ModelCall | None,
    drafts: Sequence[Draft],
    calls: Sequence[ModelCall],
) -> Reason:
    """Return why a request begins a row.

    Args:
        request: The request.
        found: What is recognized of it.
        parent: The call that its prompt extends; None if the prompt extends none.
        drafts: The newest draft of each earlier row.
        calls: The responses so far.
    """
    if not drafts:
        return Reason("first", "the first call")
    messages = request.messages
    nearest, shared = _nearest(request, found, drafts[-_COMPARED:])
    old = _conversation(nearest)
    fresh = not found.known and not any(message.role != "system" for message in messages[:shared])
    if fresh and (caller := _caller(messages, calls)):
        return Reason("sub-agent", "a conversation of its own, whose task is in a call", caller)
    if not request.schemas and nearest.request.schemas:
        return Reason("no tools", "a request without tools, as for a title or a summary")
    if fresh and _first_task(messages) != _first_task(old):
        begins = _first_task(messages) or messages[0].content
        return Reason("conversation", f"another conversation; it begins with {_short(begins)}")
    made_up = [index for index in found.foreign if index >= max(shared, found.start)]
    if parent is not None and parent is found.last and (shared == len(old) or not made_up):
        return Reason("branch", "another call continues the same answer: in parallel, or a step back", parent)
    if shared == len(messages):
        if shared == len(nearest.request.messages):
            return Reason("repeated", "the same request again")
        return Reason("cut back", f"the history ends after message {shared}, as in an earlier call")
    if changed := _changed_tools(nearest.request, request):
        return Reason("tools", f"another list of tools: {changed}")
    if shared == len(old):
        what = "the chat template shows earlier messages differently"
        if made_up:
            text = _short(_text(messages[made_up[0]]))
            place = f"before message {made_up[0] + 1}, an answer that was not sampled here: {text}"
            return Reason("foreign", f"{what} {place}")
        return Reason("template", f"{what} in this prompt", found.last)
    if len(messages) <= len(nearest.request.messages):
        what = f"history compacted: {len(old)} messages became {len(messages)}, from message {shared + 1} on"
        return Reason("compacted", f"{what}, which is {_short(messages[shared].content)}")
    was, now = old[shared], messages[shared]
    role = now.role if was.role == now.role else f"{was.role}, now {now.role}"
    what = f"message {shared + 1} ({role}) was rewritten: {_difference(_text(was), _text(now))}"
    same = [call for call in calls if key_of(call.message) == key_of(was)]
    return Reason("rewritten", what, same[-1] if same else None)


def _nearest(request: Request, found: Found[ModelCall], drafts: Sequence[Draft]) -> tuple[Draft, int]:
    """Return the draft whose conversation shares most first messages, and their number.

    Of equal ones, it is one with the same tools, and the newest.
    """
    best, most = drafts[-1], (-1, False)
    for draft in reversed(drafts):
        keys = [*draft.found.keys, *([] if draft.said is None else [key_of(draft.said)])]
        pairs = zip(found.keys, keys, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        rank = shared, draft.request.schemas == request.schemas
        if rank > most:
            best, most = draft, rank
    return best, most[0]


def _conversation(draft: Draft) -> list[ChatMessage]:
    """Return the messages of a draft, and its response if there is one."""
    return [*draft.request.messages, *([] if draft.said is None else [draft.said])]


def _first_task(messages: Sequence[ChatMessage]) -> str | None:
    return next((message.content.strip() for message in messages if message.role == "user"), None)


def _caller(messages: Sequence[ChatMessage], calls: Sequence[ModelCall]) -> ModelCall | None:
    """Return the newest response with a call that has the task of a conversation as an argument."""
    task = _first_task(messages)
    if not task:
        return None
    for call in reversed(calls):
        for one in call.message.calls:
            for value in one.arguments.values():
                text = value.strip() if isinstance(value, str) else ""
                if text and (text == task or (len(text) >= _TASK and text in task)):
                    return call
    return None


def _changed_tools(old: Request, new: Request) -> str:
    """Return how the tools of two requests differ; empty if they do not."""
    before, after = (
        {schema["function"]["name"]: json.dumps(schema, sort_keys=True) for schema in request.schemas}
        for request in (old, new)
    )
    changes = [
        *(f"+{name}" for name in after if name not in before),
        *(f"-{name}" for name in before if name not in after),
        *(f"{name} changed" for name in after if name in before and before[name] != after[name]),
    ]
    return ", ".join(changes) or ("in another order" if [*before] != [*after] else "")


def _text(message: ChatMessage) -> str:
    calls = [f"{call.name}({json.dumps(dict(call.arguments), ensure_ascii=False)})" for call in message.calls]
    return "\n".join(filter(None, (message.content.strip(), *calls)))


def _difference(old: str, new: str) -> str:
    """Return the texts around the first difference of two texts."""
    place = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    start = max(place - _SHOWN, 0)
    return f"was {_short(old[start:], bool(start))}, is {_short(new[start:], bool(start))}"


def _short(text: str, cut: bool = False) -> str:
    short = text[: 2 * _SHOWN]
    return f"{'…' if cut else ''}{short!r}{'…' if len(short) < len(text) else ''}"
