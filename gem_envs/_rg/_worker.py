"""The process behind `gem_envs._rg.trusted`: ``python -m gem_envs._rg._worker MODULE``.

The module is imported once. A forked child then serves requests until one of them exceeds its CPU time or
memory and the kernel kills it; the next child is ready a millisecond later, with the module already imported.
A request is a length and a pickle on stdin, a reply a length and JSON on stdout.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import resource
import signal
import struct
import sys

_MEMORY = 3 * 2**30
DIED = b'{"died": true}'


def main() -> None:
    """Serve until stdin is closed."""
    replies = os.dup(1)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)  # output of a library must not mix with replies
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    importlib.import_module(sys.argv[1])  # once for all children
    while True:
        child = os.fork()
        if not child:
            _limit(resource.RLIMIT_AS, _MEMORY)
            _serve(replies)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            return
        _write(replies, DIED)


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _serve(replies: int) -> None:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # kills the process even during a single long operation
    while header := _read(4):
        function, args, seconds = pickle.loads(_read(*struct.unpack("!I", header)))
        module, _, name = function.partition(":")
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            reply = {"value": getattr(importlib.import_module(module), name)(*args)}
        except BaseException as error:
            reply = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
        signal.setitimer(signal.ITIMER_PROF, 0)
        _write(replies, json.dumps(reply).encode())


def _read(size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = os.read(0, size - len(data))
        if not part:
            return b""
        data += part
    return data


def _write(descriptor: int, data: bytes) -> None:
    data = struct.pack("!I", len(data)) + data
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main()
