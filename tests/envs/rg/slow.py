"""Functions for `gem_envs._rg.trusted` to call, which fail or hang."""

from __future__ import annotations

import os


def add(a: int, b: int) -> int:
    return a + b


def forever() -> None:
    while True:
        pass


def one_long_operation() -> int:
    return len(str(7 ** (7**9)))


def eat_memory() -> int:
    return len(bytearray(2**40))


def fail() -> None:
    raise KeyError("no")


def chatter() -> str:
    os.write(1, b"noise on standard output\n")
    print("more noise")
    return "quiet"


def environment() -> list[str]:
    return sorted(os.environ)
