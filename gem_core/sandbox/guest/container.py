"""Program inside a container: reads one request from standard input, runs it, and writes one answer.

Works with Python 3.8 and newer: the image's interpreter receives it as text.
"""

import base64
import json
import os
import resource
import signal
import subprocess
import sys


def main() -> None:
    request = json.loads(sys.stdin.buffer.readline())
    os.makedirs("/program/run")
    os.chdir("/program/run")
    for name, text in request["files"].items():
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "wb") as file:
            file.write(base64.b64decode(text))
    for name in ("code", "in"):
        with open(f"/program/{name}", "wb") as file:
            file.write(base64.b64decode(request[name]))
    cpu, memory, size, processes, files = request["limits"]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
        for kind, value in (
            (resource.RLIMIT_AS, memory),
            (resource.RLIMIT_FSIZE, size),
            (resource.RLIMIT_NPROC, processes),
            (resource.RLIMIT_NOFILE, files),
        ):
            resource.setrlimit(kind, (value, value))

    with (
        open("/program/in", "rb") as standard_in,
        open("/program/out", "wb") as out,
        open("/program/err", "wb") as err,
    ):
        program = subprocess.Popen(
            [sys.executable, "-I", "/program/code"],
            stdin=standard_in, stdout=out, stderr=err, env=request["env"],
            start_new_session=True, preexec_fn=limit,
        )  # fmt: skip
        timed_out = False
        try:
            program.wait(request["seconds"])
        except subprocess.TimeoutExpired:
            timed_out = True
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
    fetched = {name: head(name, size) for name in request["fetch"] if os.path.isfile(name)}
    answer = {"exit": program.returncode, "timed_out": timed_out, "files": fetched}
    for name in ("out", "err"):
        answer[name] = head(f"/program/{name}", request["output_bytes"] + 1)
    sys.stdout.write(json.dumps(answer) + "\n")


def head(path: str, size: int) -> str:
    with open(path, "rb") as file:
        return base64.b64encode(file.read(size)).decode()


main()
