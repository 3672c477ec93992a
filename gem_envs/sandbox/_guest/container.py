"""Program inside a container: reads one request from standard input, runs it, and writes one answer.

Works with Python 3.8 and newer: the image's interpreter receives it as text. The program that it runs has the
same user, so this process is made unreadable first: ``/proc/1`` opens neither its memory nor its streams.
"""

import base64
import ctypes
import json
import os
import resource
import signal
import stat
import subprocess
import sys

PR_SET_DUMPABLE = 4


def main() -> None:
    if ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        sys.exit("the process of the sandbox cannot be protected: prctl failed")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    request = json.loads(sys.stdin.buffer.readline())
    os.makedirs("/program/run")
    os.chdir("/program/run")
    for name, text in request["files"].items():
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "wb") as file:
            file.write(base64.b64decode(text))
    with open("/program/code", "wb") as file:
        file.write(base64.b64decode(request["code"]))
    # The program reaches these files through its streams alone, and cannot put others in their places.
    streams = []
    for name in ("in", "out", "err"):
        path = f"/program/{name}"
        streams.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(path)
    with open(streams[0], "wb", closefd=False) as file:
        file.write(base64.b64decode(request["in"]))
    os.lseek(streams[0], 0, os.SEEK_SET)
    exit_code, timed_out = run(request, streams)
    stop_all()
    size = request["output_bytes"] + 1
    answer = {"id": request["id"], "exit": exit_code, "timed_out": timed_out}
    answer["out"], answer["err"] = (encoded(os.pread(stream, size, 0)) for stream in streams[1:])
    contents = {name: fetched(name, request["limits"][2]) for name in request["fetch"]}
    answer["files"] = {name: encoded(data) for name, data in contents.items() if data is not None}
    sys.stdout.write(json.dumps(answer) + "\n")


def run(request: dict, streams: list) -> tuple:  # type: ignore[type-arg]  # Python 3.8
    """Run the program; return its exit code and whether its time ran out."""
    cpu, memory, size, processes, files = request["limits"]

    def limit() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
        for kind, value in (
            (resource.RLIMIT_AS, memory),
            (resource.RLIMIT_FSIZE, size),
            (resource.RLIMIT_NPROC, processes),
            (resource.RLIMIT_NOFILE, files),
        ):
            resource.setrlimit(kind, (value, value))

    program = subprocess.Popen(
        [sys.executable, "-I", "/program/code"],
        stdin=streams[0], stdout=streams[1], stderr=streams[2], env=request["env"],
        start_new_session=True, preexec_fn=limit,
    )  # fmt: skip
    try:
        return program.wait(request["seconds"]), False
    except subprocess.TimeoutExpired:
        program.kill()
        return program.wait(), True


def stop_all() -> None:
    """End everything that the program started."""
    try:
        os.kill(-1, signal.SIGKILL)
        while True:
            os.wait()
    except OSError:
        pass  # nothing is left


def fetched(name: str, size: int) -> "bytes | None":
    """Return the beginning of a file in the program's folder; None if there is none, or a link leads out."""
    path = f"/program/run/{name}"
    if not os.path.realpath(path).startswith("/program/run/"):
        return None
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        return None
    return os.read(file, size)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


main()
