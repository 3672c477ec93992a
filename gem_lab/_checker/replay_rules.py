"""Rules on repeating an episode: by seed, from a saved state, and in other threads and processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from gem_core import Env, EnvSpec, make
from gem_core._util.messages import error_line
from gem_core.errors import ResetNeeded
from gem_lab._checker.rules import ignores_options, rule
from gem_lab._checker.subject import (
    Frame,
    Recording,
    Subject,
    as_text,
    broken,
    clip,
    expect_same,
    follow,
    layers,
    replay,
    reset,
    reset_frame,
    skip,
    step,
    step_frame,
)

_OWN_RANDOM = "draw everything from self.random, and set up everything in reset()"
_STATE_FIELDS = "name every attribute that an episode changes in state_fields"
_REPLAY = ("twins_are_equal", "sampling_changes_nothing")
"""Rules that must hold if a recorded episode is to be compared with another one."""


@rule()
def global_random_is_left_alone(subject: Subject) -> None:
    """The generators of `random` and `numpy.random` are neither used nor seeded."""
    for index, recording in enumerate(subject.recordings()):
        with _other_global_random(index):
            marks = {"": _global_random()}
            env = subject.fresh()
            marks["the constructor"] = _global_random()
            reset(env, recording.seed)
            marks["reset()"] = _global_random()
            for action in recording.actions:
                env.sample_random_action()
                if step(env, action).ended:
                    break
            marks["step()"] = _global_random()
        for old, (phase, new) in pairwise(marks.items()):
            if old[1] != new:
                broken(f"{phase} used or seeded the global generator", "draw from self.random")


@rule("deterministic", relies_on=("global_random_is_left_alone",))
def twins_are_equal(subject: Subject) -> None:
    """The same seed and actions give the same episode and the same following reset without a seed."""
    for index, recording in enumerate(subject.recordings()):
        twins = [subject.fresh(), subject.fresh()]
        first = replay(twins[0], recording)
        with _other_global_random(index):
            second = replay(twins[1], recording)
        expect_same(first, second, f"played twice with seed {recording.seed}", _OWN_RANDOM)
        first, second = ([reset(twin, None)] for twin in twins)
        expect_same(first, second, f"without a seed, after the episode of seed {recording.seed}", _OWN_RANDOM)


@rule("deterministic", relies_on=("twins_are_equal",))
def sampling_changes_nothing(subject: Subject) -> None:
    """`sample_random_action` and `oracle_action` do not change the episode."""
    for recording in subject.recordings():
        env = subject.fresh()
        frames = [reset(env, recording.seed)]
        for action in recording.actions:
            for _ in range(3):
                env.sample_random_action()
            env.oracle_action()  # once, because it may search for seconds
            frames.append(step(env, action))
        expect_same(
            recording.frames, frames, f"with actions sampled in between (seed {recording.seed})",
            "draw random actions from self.action_random, and change no state",
        )  # fmt: skip


@rule("deterministic", relies_on=_REPLAY)
def episodes_leave_no_trace(subject: Subject) -> None:
    """An episode abandoned midway does not change the next one."""
    env = subject.fresh()
    for recording in (*subject.recordings(), subject.recordings()[0]):
        expect_same(
            _without_previous(recording.frames), _without_previous(replay(env, recording)),
            f"with seed {recording.seed} on a reused instance", _OWN_RANDOM,
        )  # fmt: skip
        reset(env, recording.seed)
        follow(env, recording.actions[: len(recording.actions) // 2])


@rule("deterministic", relies_on=_REPLAY)
def instances_are_independent(subject: Subject) -> None:
    """Episodes interleaved on several instances equal the same episodes played alone."""
    recordings = subject.recordings()
    envs = [subject.fresh() for _ in recordings]
    frames = [[reset(env, recording.seed)] for env, recording in zip(envs, recordings, strict=True)]
    for turn in range(max(len(recording.actions) for recording in recordings)):
        for env, recording, seen in zip(envs, recordings, frames, strict=True):
            if turn < len(recording.actions):
                seen.append(step(env, recording.actions[turn]))
    for recording, seen in zip(recordings, frames, strict=True):
        expect_same(
            recording.frames, seen, f"with seed {recording.seed} interleaved with other instances",
            "keep no state in module or class attributes",
        )  # fmt: skip


@rule("deterministic", relies_on=("instances_are_independent",))
def threads_change_nothing(subject: Subject) -> None:
    """Episodes played concurrently in threads equal the same episodes played alone."""
    recordings = subject.recordings()
    envs = [subject.fresh() for _ in recordings]
    with ThreadPoolExecutor(len(recordings)) as pool:
        for recording, seen in zip(recordings, pool.map(replay, envs, recordings), strict=True):
            expect_same(
                recording.frames, seen, f"with seed {recording.seed} in a thread",
                "use no signals, thread-local state, or shared state",
            )  # fmt: skip


@rule("deterministic", relies_on=("threads_change_nothing",))
def async_is_the_same(subject: Subject) -> None:
    """`areset` and `astep` return the same results as `reset` and `step`."""

    async def play(env: Env, recording: Recording) -> list[Frame]:
        first = reset_frame(await env.areset(recording.seed))
        return [first, *[step_frame(await env.astep(action)) for action in recording.actions]]

    with ThreadPoolExecutor(1) as pool:  # the caller may have an event loop running
        for recording in subject.recordings():
            env = subject.fresh()
            frames = pool.submit(asyncio.run, play(env, recording)).result()
            expect_same(
                recording.frames, frames, f"with areset and astep (seed {recording.seed})",
                "override areset and astep together with reset and step, and call one method from both",
            )  # fmt: skip


# -- state ------------------------------------------------------------------------------------


@rule("stateful", relies_on=("reset_is_needed", "instances_are_independent"))
def states_survive_json(subject: Subject) -> None:
    """A state survives a JSON round trip at any point: the episode and its generator continue from there."""
    for recording in subject.recordings():
        for turn in sorted({0, len(recording.actions) // 2, len(recording.actions)}):
            env, other = subject.fresh(), subject.fresh()
            reset(env, recording.seed)
            follow(env, recording.actions[:turn])
            live = env.get_state()
            state = _as_json(live)
            rest = _finish(env, recording, turn)
            if _as_json(live) != state:
                broken("the result of get_state() changed in later steps", "return copies of lists and dicts")
            for which, restored in (("the same", env), ("a new", other)):
                restored.set_state(json.loads(state))
                if _as_json(restored.get_state()) != state:
                    seen = f"get_state() after set_state() differs (seed {recording.seed}, turn {turn})"
                    broken(seen, _STATE_FIELDS)
                where = f"from the state of seed {recording.seed} after turn {turn}, on {which} instance"
                expect_same(rest, _finish(restored, recording, turn), where, _STATE_FIELDS)


@rule("stateful", relies_on=("states_survive_json",))
def forks_are_equal_and_independent(subject: Subject) -> None:
    """`spawn(same_state=True)` returns an independent sibling that continues identically."""
    for recording in subject.recordings():
        half = len(recording.actions) // 2
        env = subject.fresh()
        reset(env, recording.seed)
        follow(env, recording.actions[:half])
        fork = subject.adopt(env.spawn(same_state=True))
        first = _finish(fork, recording, half)
        second = _finish(env, recording, half)
        where = f"after a fork of seed {recording.seed} at turn {half}"
        expect_same(recording.frames[half + 1 :], first[:-1], f"{where}, in the fork", _STATE_FIELDS)
        expect_same(first, second, f"{where}, in its origin", "share no mutable state with a sibling")


@rule("stateful", relies_on=("states_survive_json",))
def resets_start_from_a_state(subject: Subject) -> None:
    """`reset(options={"state": ...})` continues from a saved state, unless options are ignored."""
    if ignores_options(subject):
        skip("reset ignores its options")
    for recording in subject.recordings():
        half = len(recording.actions) // 2
        env, other = subject.fresh(), subject.fresh()
        reset(env, recording.seed)
        follow(env, recording.actions[:half])
        options: Any = {"state": json.loads(_as_json(env.get_state()))}
        reset(other, None, options=options)
        expect_same(
            recording.frames[half + 1 :], follow(other, recording.actions[half:]),
            f"after a reset from the state of seed {recording.seed} after turn {half}",
            "call self.set_state(options['state']) in reset() instead of starting a new episode",
        )  # fmt: skip


# -- other processes and closing --------------------------------------------------------------


@rule("deterministic", relies_on=_REPLAY)
def specs_travel(subject: Subject) -> None:
    """The `EnvSpec` survives pickle and JSON, and an environment made from it plays the same episodes."""
    spec = _portable_spec(subject)
    copies = [pickle.loads(pickle.dumps(spec)), EnvSpec.from_json(spec.to_json())]
    for copy, form in zip(copies, ("pickle", "JSON"), strict=True):
        if copy != spec:
            broken(
                f"the spec came back from {form} as {copy}",
                "use JSON-serializable keyword arguments, no tuples",
            )
        recording = subject.recording(subject.seeds[0])
        frames = replay(subject.adopt(make(copy)), recording)
        expect_same(
            recording.frames, frames, f"made from the spec after a round trip through {form}", _OWN_RANDOM
        )


@rule("deterministic", relies_on=_REPLAY)
def processes_change_nothing(subject: Subject) -> None:
    """Another process with a different hash seed plays the same episodes, and its players act alike."""
    spec = _portable_spec(subject)
    if isinstance(spec.entry_point, str) and spec.entry_point.startswith("__main__:"):
        skip("the environment is defined in __main__, where another process cannot find it")
    recordings = subject.recordings()
    task = {"spec": spec.to_json(), "episodes": [[r.seed, r.actions] for r in recordings]}
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    child = subprocess.run(
        [sys.executable, "-c", "from gem_lab._checker import replay_rules; replay_rules.play_in_child()"],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    if child.returncode:
        broken(
            f"a child process failed: {clip(child.stderr.strip().splitlines()[-1:])}",
            "make the module of the entry point importable without the program that registered it",
        )
    for recording, (texts, moves) in zip(recordings, json.loads(child.stdout), strict=True):
        frames = [frame._replace(text=text) for frame, text in zip(recording.frames, texts, strict=True)]
        expect_same(
            recording.frames, frames, f"with seed {recording.seed} in another process",
            "sort sets before drawing from them; use neither hash() nor id()",
        )  # fmt: skip
        own = first_moves(subject.adopt(make(spec)), recording.seed)  # without the actions of the caller
        if own != moves:
            broken(
                f"the first actions of the players with seed {recording.seed} are {clip(own)}, and "
                f"{clip(moves)} in another process",
                "sort sets before an oracle or a random player iterates over them",
            )


def play_in_child() -> None:
    """Play the episodes requested on stdin, and write their frames as text to stdout."""
    task = json.load(sys.stdin)
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps the output of the environment out of the results
    episodes = []
    for seed, actions in task["episodes"]:
        with make(EnvSpec.from_json(task["spec"])) as env:
            texts = [frame.text for frame in replay(env, Recording(seed, actions))]
            episodes.append([texts, first_moves(env, seed)])
    with results:
        json.dump(episodes, results)


def first_moves(env: Env, seed: int | None) -> list[str | None]:
    """Return the oracle's first action and three random ones; None for an action that does not exist."""
    reset(env, seed)
    moves: list[str | None] = [env.oracle_action()]
    for _ in range(3):
        try:
            moves.append(env.sample_random_action())
        except NotImplementedError:
            moves.append(None)
    return moves


@rule()
def closing_twice_is_fine(subject: Subject) -> None:
    """`close` may be called more than once, before and during an episode."""
    for started in (False, True):
        env = subject.make()
        if started:
            reset(env, subject.seeds[0])
        for _ in range(2):
            try:
                env.close()
            except Exception as error:
                broken(f"close() raised {error_line(error)}", "make a second close() do nothing")


# -- helpers ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _other_global_random(offset: int) -> Iterator[None]:
    """Seed the global generators, each offset differently, and restore them at the end."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002  # on purpose: the global generator
    random.seed(123_456 + offset)  # seeds that no caller uses
    np.random.seed(123_456 + offset)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002


def _global_random() -> bytes:
    return pickle.dumps((random.getstate(), np.random.get_state(legacy=False)))  # noqa: NPY002


def _without_previous(frames: list[Frame]) -> list[Frame]:
    """Return the frames without the info keys ``prev_ep_*``, which describe the previous episode."""
    plain = []
    for frame in frames:
        info = {key: value for key, value in frame.info.items() if not key.startswith("prev_ep_")}
        plain.append(frame._replace(text=as_text([*frame[:4], info])))
    return plain


def _as_json(state: dict[str, Any]) -> str:
    try:
        return json.dumps(state, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        broken(
            f"get_state() is not JSON-serializable ({error})",
            "save lists and dicts with str keys, no objects",
        )


def _finish(env: Env, recording: Recording, turn: int) -> list[Frame]:
    """Play the episode from `turn` and the reset after it; if it has already ended, expect `ResetNeeded`."""
    frames = follow(env, recording.actions[turn:])
    if recording.ended and turn == len(recording.actions):
        try:
            env.step("")
        except ResetNeeded:
            pass
        else:
            broken("a state saved after the end allowed another step", _STATE_FIELDS)
    return [*frames, reset(env, None)]


def _portable_spec(subject: Subject) -> EnvSpec:
    spec = subject.spec
    if spec is None:
        skip("the environment has no registered id")
    if not isinstance(spec.entry_point, str):
        skip("the entry point of the spec is a callable, so the spec has no JSON form")
    if len(layers(subject.fresh())) != len(layers(subject.adopt(make(spec)))):
        skip("a wrapper is a callable, which the spec cannot store")
    return spec
