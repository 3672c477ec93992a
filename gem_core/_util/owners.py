"""What the running calls in threads work for, so that no object is closed during a call that uses it.

    with calls_of(env):
        await env.astep(action)  # every thread that this call starts, also in other tasks, works for `env`
    after_calls(env, env.close)  # now, or when the last of these threads has returned

A call that was canceled or took too long is known to the function that started it; here, it is known to
whoever closes the environment.
"""

from __future__ import annotations

import contextlib
import contextvars
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from gem_core._util.forks import ForkSafeLock, after_fork

_owners: contextvars.ContextVar[tuple[weakref.ref[Any], ...]] = contextvars.ContextVar("owners", default=())
"""What the calls of the running code work for. The references are weak, because a task that this code starts
keeps its context."""
_calls: dict[int, set[Future[Any]]] = {}
"""Running calls by the `id` of the object that they work for, which lives until they have returned."""
_calls_lock = ForkSafeLock()


@contextlib.contextmanager
def calls_of(owner: object) -> Iterator[None]:
    """Note that every `ThreadCall` of this block, and of the tasks that it starts, works for `owner`.

    Blocks can be nested; a call then works for the owners of all of them.

    Args:
        owner: Any object that can be referenced weakly; for an environment, the one below its wrappers.
    """
    outer = _owners.get()
    if not any(reference() is owner for reference in outer):
        _owners.set((*outer, weakref.ref(owner)))
    try:
        yield
    finally:
        _owners.set(outer)  # no reset(token): a coroutine that is destroyed ends in another context


def note_call(call: Future[Any]) -> None:
    """Note that a call works for the owners of the running block; the future is done when it has returned."""
    for reference in _owners.get():
        owner = reference()
        if owner is not None:
            _note(owner, call)


def _note(owner: object, call: Future[Any]) -> None:
    with _calls_lock:
        _calls.setdefault(id(owner), set()).add(call)

    def returned(call: Future[Any]) -> None:
        with _calls_lock:
            others = _calls.get(id(owner), set())  # this function keeps the owner alive
            others.discard(call)
            if not others:
                _calls.pop(id(owner), None)

    call.add_done_callback(returned)


def running_call(owner: object) -> Future[Any] | None:
    """Return a call that works for `owner` and has not returned, abandoned or not; None if there is none."""
    with _calls_lock:
        return next((call for call in _calls.get(id(owner), ()) if not call.done()), None)


def after_calls(owner: object, then: Callable[[], object]) -> None:
    """Call `then` once no call works for `owner`: now, or in the thread of the last call."""
    call = running_call(owner)
    if call is None:
        then()
    else:
        call.add_done_callback(lambda _: after_calls(owner, then))


after_fork(_calls.clear)  # the threads of these calls belong to the parent
