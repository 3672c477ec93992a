"""Calls between the process of the program and the one of its tests, through two pipes.

Each process is a `Peer` that can ask the other one for something while it answers a question itself, so a
test can pass a function of its own to the program. The program is asked to do what `OPERATIONS` lists; the
tests answer calls of the functions that they passed, and nothing else.
"""

from __future__ import annotations

import builtins
import json
import operator
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_envs.graders._guest.values import Packer
else:
    from grading.values import Packer

OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda target, *arguments, **named: target(*arguments, **named),
    "get": getattr,
    "set": setattr,
    "item": operator.getitem,
    "put": operator.setitem,
    "iter": iter,
    "next": next,
    "len": len,
    "bool": bool,
    "str": str,
    "repr": repr,
}
_MOST_BYTES = 2**28
"""Maximum number of bytes of a message."""
_MOST_MESSAGES = 50_000
"""Maximum number of messages that the tests send: how long they wait for an answer depends on the machine."""


class Ended(BaseException):
    """Raised when the other process has ended, or breaks the rules of the exchange."""


class Peer:
    """One of the two processes.

    Args:
        reader: What the other one writes.
        writer: What the other one reads.
        answers_all: Whether it is the process of the program, which has no secrets.
    """

    def __init__(self, reader: IO[bytes], writer: IO[bytes], answers_all: bool) -> None:
        self._reader, self._writer = reader, writer
        self._answers_all = answers_all
        self._exports: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._remotes: dict[int, Remote] = {}
        self._named: set[int] = set()
        self._parts: set[int] = set()
        self._packer = Packer(self._export, self.remote, _number_of, lambda number: self._exports[number])
        self.classes = self._packer.classes
        self.ended = False
        """Whether `Ended` was raised, which a test may have caught."""
        self._messages = 0

    def root(self, name: str, *arguments: Any) -> Any:
        """Return the result of a method of the object that the other process serves."""
        method = self.ask("get", 0, (name,), {})
        return self.ask("call", _place(method)[1], arguments, {})

    def remote(self, number: int) -> Remote:
        """Return the stand-in for an object of the other process."""
        if number not in self._remotes:
            self._remotes[number] = Remote(self, number)
        return self._remotes[number]

    def ask(self, operation: str, number: int, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Return the result of an operation on an object of the other process.

        Raises:
            BaseException: The operation raised an exception of the same type.
            Ended: The other process has ended.
        """
        slots, table, objects = self._packer.pack([*arguments, *named.values()])
        self._send({"ask": operation, "of": number, "names": [*named], "slots": slots, "table": table})
        while True:
            message = self._receive()
            if "ask" in message:
                self._answer(message)
                continue
            values, _ = self._packer.read(message["slots"], message["table"], objects, table)
            if "raised" in message:
                raise _exception(message["raised"], values, operation)
            (result,) = values
            if type(result) is Remote and self.is_named(number):
                self.name(result)
            return result

    def name(self, remote: Remote) -> None:
        """Mark an object of the program as one that the test names, and not only a result."""
        self._named.add(_place(remote)[1])

    def is_named(self, number: int) -> bool:
        """Return whether the test names an object, or got it from one that it names."""
        return number in self._named

    def part(self, remote: Remote) -> None:
        """Mark an object of the program as an attribute of a result."""
        self._parts.add(_place(remote)[1])

    def is_part(self, number: int) -> bool:
        """Return whether an object is an attribute of a result."""
        return number in self._parts

    def serve(self, root: Any) -> None:
        """Answer until the other process ends; it knows `root` by the number 0.

        Raises:
            Ended: It has ended.
        """
        self._export(root)
        while True:
            self._answer(self._receive())

    def _answer(self, message: dict[str, Any]) -> None:
        sent = message["table"]
        known: list[Any] = []
        try:
            operation = OPERATIONS[message["ask"]]
            if not self._answers_all and message["ask"] != "call":
                raise TypeError("only functions of a test can be called")
            values, known = self._packer.read(message["slots"], sent)
            count = len(values) - len(message["names"])
            named = dict(zip(message["names"], values[count:], strict=True))
            result = operation(self._exports[message["of"]], *values[:count], **named)
            slots, table, _ = self._packer.pack([result], known)
            answer: dict[str, Any] = {"slots": slots, "table": table}
        except Ended:
            raise
        except BaseException as error:
            answer = {"raised": [kind.__name__ for kind in type(error).__mro__]}
            try:
                slots, table, _ = self._packer.pack(error.args, known)
            except BaseException:
                slots, table = [], sent[: len(known)]
            answer |= {"slots": slots, "table": table}
        self._send(answer)

    def _export(self, value: Any) -> int:
        """Return the number of an object that stays here."""
        if not self._answers_all and not callable(value):  # its attributes could lead to the test
            raise TypeError(f"a test cannot pass an object of the type {type(value).__name__}")
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._exports)
            self._exports.append(value)
        return self._numbers[id(value)]

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        self._messages += 1
        if self._messages > _MOST_MESSAGES and not self._answers_all:
            raise self._end()
        try:
            self._writer.write(len(data).to_bytes(8, "big") + data)
            self._writer.flush()
        except OSError:
            raise self._end() from None

    def _receive(self) -> dict[str, Any]:
        size = int.from_bytes(self._read(8), "big")
        if size > _MOST_BYTES:
            raise self._end()
        message = json.loads(self._read(size))
        if not isinstance(message, dict):
            raise self._end()
        return message

    def _read(self, size: int) -> bytes:
        data = self._reader.read(size)
        if len(data) < size:
            raise self._end()
        return data

    def _end(self) -> Ended:
        self.ended = True
        return Ended()


class Remote:
    """Stands for an object of the program.

    It equals only itself, and has no order and no arithmetic: the program must not decide about a comparison,
    nor see what a test compares. For the same reason, a result has no index, and its methods take no
    arguments, as in ``f(1).startswith("a")``, unless it is of a class that the test names.
    """

    __slots__ = ("_number", "_peer")

    def __init__(self, peer: Peer, number: int) -> None:
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        peer, number = _place(self)
        if (arguments or named) and peer.is_part(number):
            raise TypeError("a method of a result would see what the test compares")
        return _ask(self, "call", *arguments, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _ask(self, "get", name)
        peer, number = _place(self)
        if type(value) is Remote and not peer.is_named(number):
            peer.part(value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        _ask(self, "set", name, value)

    def __getitem__(self, key: Any) -> Any:
        peer, number = _place(self)
        if not peer.is_named(number):
            raise TypeError("a result would see the index")
        return _ask(self, "item", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _ask(self, "put", key, value)

    def __iter__(self) -> Iterator[Any]:
        result = _ask(self, "iter")
        return result if isinstance(result, Remote) else iter(result)

    def __next__(self) -> Any:
        return _ask(self, "next")

    def __len__(self) -> int:
        return int(_ask(self, "len"))

    def __bool__(self) -> bool:
        return bool(_ask(self, "bool"))

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __str__(self) -> str:
        return str(_ask(self, "str"))

    def __repr__(self) -> str:
        return str(_ask(self, "repr"))


def _ask(remote: Remote, operation: str, *arguments: Any, **named: Any) -> Any:
    peer, number = _place(remote)
    return peer.ask(operation, number, arguments, named)


def _place(remote: Remote) -> tuple[Peer, int]:
    return object.__getattribute__(remote, "_peer"), object.__getattribute__(remote, "_number")


def _number_of(value: Any) -> int | None:
    return _place(value)[1] if type(value) is Remote else None


def _exception(names: list[str], arguments: list[Any], operation: str) -> BaseException:
    """Return the exception of the most special type in `names` that is built in.

    An exception that ends a loop is one only when an iterator was asked for its next value; else a program
    could end the loop of a test.
    """
    for name in names:
        kind = getattr(builtins, name, None)
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            continue
        if operation != "next" and issubclass(kind, (StopIteration, StopAsyncIteration, GeneratorExit)):
            return RuntimeError("the program raised " + name)
        try:
            return kind(*arguments)
        except TypeError:  # a type that needs other arguments
            continue
    return RuntimeError("the program failed")
