"""Runs the statements of a test in one process, and the program that they use in another.

The program's process is forked before the test, the expected values in it, and the proof of a pass are read,
so nothing of them is in its memory. It keeps no descriptor but its two pipes. The statements see values of
types of the standard library, which were made in their own process, and stand-ins for all other objects
(`peer`). The proof is written once all statements have run.
"""

from __future__ import annotations

import builtins
import enum
import json
import os
import signal
import sys
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_envs.graders._guest.load import RECURSION_LIMIT, find, load
    from gem_envs.graders._guest.peer import Ended, Peer, Remote
else:
    from grading.load import RECURSION_LIMIT, find, load
    from grading.peer import Ended, Peer, Remote

OUT_OF_TIME = 128 + signal.SIGXCPU
"""Exit status when the program has used up its CPU time."""


def main() -> None:
    """Answer the request in the file ``request.json`` with its proof on standard output, if the test passes.

    The test must raise nothing. What it uses of the prelude is not what the program made of it.
    """
    to_program, from_program = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        _be_program(to_program[0], from_program[1])
    os.close(to_program[0])
    os.close(from_program[1])
    with open("request.json", encoding="utf-8") as file:
        request = json.load(file)
    os.remove("request.json")
    sys.setrecursionlimit(RECURSION_LIMIT)
    proof = os.dup(1)  # nothing else goes to standard output
    os.dup2(2, 1)
    peer = Peer(os.fdopen(from_program[0], "rb"), os.fdopen(to_program[1], "wb"), answers_all=False)
    try:
        _run(peer, request)
        if peer.ended:
            raise Ended
    except Ended:
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
            os._exit(OUT_OF_TIME)
        raise SystemExit("the program ended during the test") from None
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.write(proof, request["proof"].encode())


def _run(peer: Peer, request: dict[str, Any]) -> None:
    prelude: dict[str, Any] = {"__name__": "test"}
    exec(compile(request["prelude"], "prelude.py", "exec", dont_inherit=True), prelude)
    own = {name: value for name, value in prelude.items() if _is_own(value)}
    peer.root("load", request["names"], request["prelude"], request["code"], list(own))
    peer.classes.update(own)
    if request["entry_point"]:
        candidate = peer.root("look_up", request["entry_point"])
        names = {**prelude, "candidate": candidate, request["entry_point"]: candidate}
    else:
        names = {**prelude, **_names(peer, prelude, request)}
    for text in (request["setup"], request["test"]):
        exec(compile(text, "test.py", "exec", dont_inherit=True), names)


def _is_own(value: Any) -> bool:
    """Return whether a value is a class of the prelude whose objects have attributes and nothing else."""
    if not isinstance(value, type) or value.__module__ != "test" or issubclass(value, enum.Enum):
        return False
    try:
        return hasattr(object.__new__(value), "__dict__")
    except TypeError:  # a subclass of a builtin type
        return False


def _names(peer: Peer, prelude: Mapping[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Return the names that a test uses and does not define.

    The program must not replace what a result is compared with. So names of the prelude and of modules are
    the test's own; so are those that ``imports`` defines, unless the test uses no other name of the program,
    and builtin names, unless there are none of these either.
    """
    ours: dict[str, Any] = {}
    exec(request["imports"], ours)
    defined = set(peer.root("names")) - prelude.keys()
    theirs = (defined & {*request["used"]}) - {*request["modules"]}
    for own in (vars(builtins).keys(), ours.keys()):
        theirs = theirs - own or theirs
    found = {name: peer.root("look_up", name) for name in theirs}
    for name, value in found.items():
        if name[:1].isupper() and isinstance(value, Remote):  # a class
            peer.name(value)
    return {**ours, **found}


class _Program:
    """What the tests ask of the program's process first."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._module: types.ModuleType

    def load(self, names: str, prelude: str, code: str, classes: list[str]) -> None:
        self._module = load(names, code, prelude)
        found = ((name, getattr(self._module, name, None)) for name in classes)
        self._peer.classes.update((name, value) for name, value in found if isinstance(value, type))

    def names(self) -> list[str]:
        return list(vars(self._module))

    def look_up(self, name: str) -> Any:
        return vars(self._module)[name] if name in vars(self._module) else find(self._module, name)


def _be_program(reader: int, writer: int) -> None:
    """Run the program until the tests end; never return."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        first, last = sorted((reader, writer))
        os.closerange(3, first)
        os.closerange(first + 1, last)
        os.closerange(last + 1, 65536)
        peer = Peer(os.fdopen(reader, "rb"), os.fdopen(writer, "wb"), answers_all=True)
        peer.serve(_Program(peer))
    finally:
        os._exit(1)
