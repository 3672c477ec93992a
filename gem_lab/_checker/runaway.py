"""Sends texts that may never return: in another process, which is stopped when a step takes too long.

A query or a pattern that runs in C can block a whole process, so nothing in the process of the check could
interrupt it. `send` therefore leaves the steps to a worker process, which announces each text before it sends
it. The worker is started once per process, and again after a text has stopped it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from gem_core import Env, EnvSpec, make
from gem_core._util import orphans
from gem_core._util.forks import ForkSafeLock, renew_after_fork
from gem_envs.sandbox._levels import weak_programs_held
from gem_lab._checker.subject import Subject, broken, clip

STARTUP = 300.0
"""Seconds until the worker has built the environment."""
FACTOR = 4
"""A text is stopped after this many times the patience, in seconds of wall time."""
LONGEST = 10_000_000
"""Maximum number of characters of an observation."""


def portable_spec(subject: Subject, env: Env) -> EnvSpec | None:
    """Return a spec from which another process can build `env`; None if there is none."""
    spec = subject.spec
    if spec is None:
        kind = type(env)
        args, kwargs = env._init_args
        if args or getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is not kind:
            return None
        spec = EnvSpec("check:Env-v0", f"{kind.__module__}:{kind.__qualname__}", dict(kwargs))
    if not isinstance(spec.entry_point, str) or spec.entry_point.startswith("__main__:"):
        return None
    try:
        return EnvSpec.from_json(spec.to_json())
    except (TypeError, ValueError):
        return None


def send(spec: EnvSpec, seed: int, texts: Sequence[tuple[str, str, str]], patience: float) -> None:
    """Send texts to an environment in the worker.

    Args:
        spec: The environment.
        seed: Seed of the episodes.
        texts: Name, form, and text of each payload.
        patience: Maximum number of seconds of CPU time for each step.

    Raises:
        RuleBroken: A step did not return, took too long, or ended the worker.
    """
    _worker.send({"spec": spec.to_json(), "seed": seed, "texts": list(texts), "patience": patience})


class _Worker:
    """The process that takes the steps."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = ForkSafeLock()
        renew_after_fork(self)

    def forget_parent(self) -> None:
        self._process = None

    def send(self, task: Mapping[str, Any]) -> None:
        with self._lock:
            try:
                self._send(task)
            except BaseException:
                self.stop()
                raise

    def _send(self, task: Mapping[str, Any]) -> None:
        if self._process is None or self._process.poll() is not None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        current, limit = "the start of the environment", STARTUP
        while True:
            try:
                message = self._messages.get(timeout=limit)
            except queue.Empty:
                broken(f"{current} did not return within {limit:g} s", _ADVICE)
            if message is None:
                self._errors.seek(0)
                last = self._errors.read().strip().splitlines()[-1:]
                broken(f"{current} ended the process of the check: {clip(last)}", _ADVICE)
            if "failure" in message:
                if message["failure"] is not None:
                    broken(*message["failure"])
                return
            current, limit = f"the payload {message['text']}", FACTOR * task["patience"]

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # lives with the process
        command, pipes = orphans.announced(
            [sys.executable, "-c", "from gem_lab._checker import runaway; runaway.work()"]
        )
        self._process = subprocess.Popen(
            command,
            pass_fds=pipes,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,  # so that programs started by the environment are stopped with it
        )
        orphans.end_with_us(self._process.pid)
        self._messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=_read, args=(self._process.stdout, self._messages), daemon=True).start()

    def stop(self) -> None:
        """Stop the process and every program that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        orphans.release(process.pid)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
        self._errors.close()


def _read(lines: Any, messages: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    with lines:
        for line in lines:
            messages.put(json.loads(line))
    messages.put(None)


_worker = _Worker()
atexit.register(_worker.stop)


def work() -> None:
    """Take the steps requested on stdin until it is closed."""
    results = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # keeps the output of the environment out of the results
    tasks, stdin = os.fdopen(os.dup(0)), os.open(os.devnull, os.O_RDONLY)
    os.dup2(stdin, 0)  # a program that reads its input must not wait for the next task
    for line in tasks:
        task = json.loads(line)
        with weak_programs_held(), make(EnvSpec.from_json(task["spec"])) as env:
            failure = _failure(env, task, results)
        results.write(json.dumps({"failure": failure}) + "\n")


def _failure(env: Env, task: Mapping[str, Any], results: Any) -> tuple[str, str] | None:
    """Return evidence and advice if a text breaks the rule; None if all return in time."""
    from gem_lab._checker.sending import Sender
    from gem_lab._checker.subject import RuleBroken

    sender = Sender(env, task["seed"], task["patience"])
    for payload, form, text in task["texts"]:
        results.write(json.dumps({"text": f"{payload!r} ({form}), {clip(text, 60)},"}) + "\n")
        try:
            observation = sender.send(payload, form, text)
        except RuleBroken as error:
            return error.seen, error.advice
        if len(str(observation)) > max(LONGEST, 10 * len(text)):
            return (
                f"the payload {payload!r} ({form}), {clip(text, 60)}, was answered with "
                f"{len(str(observation))} characters",
                "limit the length of what an observation shows",
            )
    return None


_ADVICE = (
    "limit the time of queries, patterns, and programs: a progress handler for SQL, no pattern of the model "
    "in `re`, and gem_envs.sandbox for programs"
)
