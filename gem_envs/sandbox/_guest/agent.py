"""Runs one foreign program, such as a coding agent, inside a container, and relays a port to a Unix socket.

Works with Python 3.8 and newer: the image's interpreter receives `foreign` and this file as one text. It
reads a request, one line of JSON, and writes one when the program starts and one when it has ended. A further
line asks the program to end; when the input ends, the caller has gone, and so does the container. As in
`container`, the program has the same user, so this process is made unreadable first.
"""

import asyncio
import base64
import ctypes
import functools
import io
import json
import os
import signal
import sys
import tempfile
import threading
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_envs.sandbox._guest.foreign import collect, reap_others, signal_group, start, unpack

PR_SET_DUMPABLE = 4
CHUNK = 2**16


async def main() -> None:
    if ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        sys.exit("the process of the sandbox cannot be protected: prctl failed")
    request = json.loads(sys.stdin.buffer.readline())
    unpack(io.BytesIO(base64.b64decode(request["files"])), "/", os.getuid())
    given, output = (tempfile.TemporaryFile(dir="/tmp") for _ in range(2))  # noqa: SIM115  # for its life
    given.write(base64.b64decode(request["stdin"]))
    given.seek(0)
    if request["port"]:
        relay = functools.partial(relay_connection, request["socket"])
        await asyncio.start_server(relay, "127.0.0.1", request["port"], backlog=1024)
    # Proxies are those of the caller's machine, of which the program knows nothing and reaches nothing.
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    request["env"] = dict(kept, **request["env"])
    answers = os.fdopen(os.dup(1), "w")
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    write_answer(answers, {"id": request["id"]})
    changed, asked = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGCHLD, changed.set)
    program = start(request, given.fileno(), os.setsid)
    threading.Thread(target=watch, args=(loop, asked), daemon=True).start()
    ended, asking = asyncio.ensure_future(finish(program, changed)), asyncio.ensure_future(asked.wait())
    await asyncio.wait({ended, asking}, return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        signal_group(program, signal.SIGTERM)
        await asyncio.wait({ended}, timeout=request["grace"])
        signal_group(program, signal.SIGKILL)
    status = await ended
    end_others()
    archive, shown = io.BytesIO(), max(0, output.seek(0, io.SEEK_END) - request["shown"])
    most = request["result_bytes"]
    whole = collect(archive, "/app", most) and archive.tell() <= most * 3 // 2  # long names take more
    output.seek(shown)
    write_answer(answers, {
        "id": request["id"],
        "status": status,
        "output": base64.b64encode(output.read()).decode(),
        "files": base64.b64encode(archive.getvalue()).decode() if whole else None,
    })  # fmt: skip
    os._exit(0)


def write_answer(answers: "IO[str]", answer: "dict[str, Any]") -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def watch(loop: asyncio.AbstractEventLoop, asked: asyncio.Event) -> None:
    """Wait for a line, which asks the program to end, and for the end of the input."""
    if sys.stdin.buffer.readline():
        loop.call_soon_threadsafe(asked.set)
        sys.stdin.buffer.readline()
    os._exit(1)


async def finish(program: int, changed: asyncio.Event) -> int:
    """Wait until the program ends, and return its exit code."""
    while True:
        changed.clear()
        reap_others(program)
        found = os.waitid(os.P_PID, program, os.WEXITED | os.WNOHANG)
        if found is not None:
            return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        await changed.wait()


def end_others() -> None:
    """End everything that the program left running."""
    if os.getpid() != 1:  # these are not all processes of a container
        return
    try:
        os.kill(-1, signal.SIGKILL)
        while True:
            os.wait()
    except OSError:
        pass  # nothing is left


async def relay_connection(path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Relay a connection of the program to the socket of the caller."""
    try:
        answers, requests = await asyncio.open_unix_connection(path)
    except OSError:
        writer.transport.abort()
        return
    await asyncio.gather(pump(reader, requests), pump(answers, writer))
    for one in (requests, writer):
        one.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy what arrives, and its end."""
    try:
        while True:
            data = await reader.read(CHUNK)
            if not data:
                break
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:  # one side hung up, so the other one does
        writer.transport.abort()


signal.signal(signal.SIGINT, signal.SIG_DFL)  # of process 1, the kernel then ignores it
asyncio.run(main())
