"""Child of the fork server: runs the programs that arrive through its channel."""

from __future__ import annotations

import atexit
import builtins
import json
import os
import resource
import socket
import sys
import time
import traceback
import types
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from gem_envs.sandbox._guest.devices import WORK, close_devices, open_devices
else:
    from _guest.devices import WORK, close_devices, open_devices


QUEUED_SIGNALS = 256
"""Number of signals that can wait for the processes of a program, and of their POSIX timers."""


def open_streams() -> tuple[TextIO, TextIO, TextIO]:
    """Open the standard streams on descriptors 0 to 2; each request replaces the files behind these."""
    return (
        open(0, encoding="utf-8", errors="surrogateescape", closefd=False),
        open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False, buffering=1),
        open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1),
    )


STREAMS = open_streams()


class Child:
    """Runs the programs of one channel."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.module: types.ModuleType | None = None
        exec(compile("0", "", "exec"), {})  # touch the memory that the first program needs

    def serve(self) -> None:
        while True:
            message, descriptors, _, _ = socket.recv_fds(self.channel, 65536, 8)
            if not message:
                os._exit(0)
            request = json.loads(message)
            exit_code = self.run(request, descriptors)
            self.channel.send(json.dumps({"exit": exit_code}).encode())
            if not request["session"]:
                os._exit(exit_code)

    def run(self, request: dict[str, Any], descriptors: list[int]) -> int:
        code, standard_in, out, err, files = descriptors
        source = read_all(code)
        unpack(files)
        for index, descriptor in enumerate((standard_in, out, err)):
            os.dup2(descriptor, index)
        for descriptor in (code, standard_in, out, err):
            os.close(descriptor)
        if request["session"]:  # the previous program may have left data in the buffers
            sys.stdin, sys.stdout, sys.stderr = open_streams()
        open_devices(source)
        set_limits(request["limits"], request["session"])
        result = self.execute(source)
        if not request["session"]:
            end_interpreter()
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            try:
                if stream is not None:
                    stream.flush()
            except Exception:
                result = result or 120
        close_devices(source)
        pack(files, request["fetch"])
        os.close(files)
        return result

    def execute(self, source: bytes) -> int:
        if self.module is None:
            builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]  # as module site, which is not loaded, would
            self.module = types.ModuleType("__main__")
            self.module.__file__ = "main.py"
            sys.modules["__main__"] = self.module
            sys.argv = ["main.py"]
            sys.path.insert(0, WORK)
        try:
            exec(compile(source.decode("utf-8", "surrogatepass"), "main.py", "exec"), self.module.__dict__)
        except SystemExit as stop:
            if stop.code is None or isinstance(stop.code, int):
                return (stop.code or 0) & 255
            sys.stderr.write(f"{stop.code}\n")
            return 1
        except BaseException as error:
            show(error, source)
            return 1
        return 0


def end_interpreter() -> None:
    """Wait for threads and call the functions of atexit, as an interpreter does when its program ends."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()


def show(error: BaseException, source: bytes) -> None:
    """Print the traceback as Python does, without the frames of this file."""
    import linecache  # imported here, in the child, because few programs fail

    text = source.decode("utf-8", "replace")
    linecache.cache["main.py"] = (len(text), None, text.splitlines(True), "main.py")
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    try:
        traceback.print_exception(type(error), error, trace)
    except BaseException:  # an exception whose __str__ raises
        sys.stderr.write(f"{type(error).__name__}\n")


def set_limits(limits: list[int], session: bool) -> None:
    cpu_seconds, memory_bytes, file_bytes, processes, open_files = limits
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = int(time.process_time()) if session else 0
    soft = used + cpu_seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY if session else soft + 1))
    for kind, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_SIGPENDING, QUEUED_SIGNALS),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)


def unpack(descriptor: int) -> None:
    """Write the files of the request. Each is a line of JSON (name and size), followed by its bytes."""
    data = read_all(descriptor)
    position = 0
    while position < len(data):
        end = data.index(b"\n", position)
        name, size = json.loads(data[position:end])
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "wb") as file:
            file.write(data[end + 1 : end + 1 + size])
        position = end + 1 + size


def pack(descriptor: int, names: list[str]) -> None:
    """Replace the contents of the descriptor by files of the program, in the format of `unpack`."""
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    for name in names:
        try:
            with open(name, "rb") as file:
                data = file.read()
            os.write(descriptor, json.dumps([name, len(data)]).encode() + b"\n")
            written = 0
            while written < len(data):
                written += os.write(descriptor, data[written:])
        except OSError:
            continue


def read_all(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with open(descriptor, "rb", closefd=False) as file:
        return file.read()
