"""A persistent shell, driven from outside the sandbox by requests.

`Driver` keeps one bash. It sends each command as one line and reads its output and exit status from pipes. A
command that takes too long is interrupted. If that does not help, everything except this process is killed
and a new bash is started in the same folder: the files stay, variables and background jobs are lost.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import re
import select
import shlex
import signal
import stat
import subprocess
import sys
import time
from typing import Any

HOME = "/app"
"""The folder that the shell starts in."""
PR_SET_DUMPABLE = 4
TICK, GRACE, START = 0.05, 2.0, 15.0
NO_TERMINAL = re.compile(r"bash: \[\d+: \d+ \(\d+\)\] tcsetattr: Inappropriate ioctl for device\n")
"""Message of an interactive bash about a job that was ended by a signal."""


class Driver:
    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.folder = HOME
        self.count = 0
        self.config: dict[str, Any] = {}
        self.descriptors: tuple[int, int, int] = (-1, -1, -1)  # bash's input, output, marks

    def answer(self, text: bytes) -> str:
        """Answer a request in JSON, with the id of the request."""
        request = json.loads(text)
        return json.dumps({**self.handle(request), "id": request["id"]})

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request: start, run, write, renew, fetch, or read."""
        kind = request["kind"]
        if kind == "start":
            self.config = request
            os.makedirs(os.path.realpath(HOME), exist_ok=True)
            return {}
        if kind == "run":
            return self.run(request["command"], request["seconds"], request["characters"])
        if kind == "write":
            for entry in request["entries"]:
                write_entry(request["base"], *entry)
            return {}
        if kind == "renew":
            self.stop()
            renew(request["base"])
            return {}
        if kind == "fetch":
            self.stop()
            return {"data": fetch(request["path"], request["bytes"])}
        return self.read(request["bytes"])

    # -- commands -----------------------------------------------------------------------------

    def run(self, command: str, seconds: float, most: int) -> dict[str, Any]:
        """Run a command until it ends or its time is up."""
        output = Output(4 * most)
        if self.process is None and not self.start():
            return {"output": "", "left_out": 0, "status": 126, "ending": "failed", "folder": self.folder}
        ending, status = self.exchange(command, seconds, output)
        if ending == "lost":
            status = self.stop() or 0
        elif self.process is not None:
            drain(self.descriptors[1], output)
        reap(self.process)
        text, left_out = output.text(most)
        return {
            "output": text, "left_out": left_out, "status": status, "ending": ending, "folder": self.folder
        }  # fmt: skip

    def start(self) -> bool:
        """Start bash; return False if the process limit is exhausted."""
        inside, ours_in = os.pipe()
        ours_out, out = os.pipe()
        ours_mark, mark = os.pipe()
        folder = next(path for path in (self.folder, HOME, "/") if os.path.isdir(path))
        try:
            self.process = subprocess.Popen(
                ["bash", "--noprofile", "--norc", "--noediting", "-i"],
                stdin=inside, stdout=out, stderr=out, pass_fds=(mark,), preexec_fn=default_interrupt,
                cwd=folder, env={**self.config["env"], "PWD": folder}, start_new_session=True,
            )  # fmt: skip
        except OSError:
            for descriptor in (ours_in, ours_out, ours_mark):
                os.close(descriptor)
            return False
        finally:
            for descriptor in (inside, out, mark):
                os.close(descriptor)
        self.descriptors, self.mark = (ours_in, ours_out, ours_mark), mark
        for descriptor in self.descriptors:
            os.set_blocking(descriptor, False)
        cpu, memory, size, processes, files = self.config["limits"]
        limits = {"t": cpu, "v": memory // 1024, "f": size // 1024, "u": processes, "n": files}
        begin = "set +H +o history; PS1= PS2=; unset MAILCHECK HISTFILE; "
        begin += "; ".join(f"ulimit -{letter} {value}" for letter, value in limits.items())
        greeting = Output(1000)  # bash has no job control, or a limit is lower already
        return self.exchange(begin, START, greeting)[0] == "ok"

    def exchange(self, command: str, seconds: float, output: Output) -> tuple[str, int]:
        """Send a command; return how it ended ("ok", "timeout", "exited", or "lost") and its exit status."""
        self.count += 1
        sign = f"{self.count}-{os.urandom(8).hex()}"
        line = f"eval {shlex.quote(command)} </dev/null\n"
        line += f'printf "\\0%s %s %s\\0" {sign} "$?" "$PWD" >&{self.mark}\n'
        waiting = line.encode("utf-8", "surrogatepass")
        end, overdue, marks = time.monotonic() + seconds, False, b""
        give, out, mark = self.descriptors
        while True:
            ready, free, _ = select.select([out, mark], [give] if waiting else [], [], TICK)
            if out in ready:
                output.add(read(out))
            if free:
                try:
                    waiting = waiting[os.write(give, waiting) :]
                except BlockingIOError:
                    pass
                except OSError:  # bash has exited
                    waiting = b""
            if mark in ready:
                marks = (marks + read(mark))[-65536:]
                for record in marks.split(b"\0")[:-1]:
                    words = record.decode("utf-8", "replace").split(" ", 2)
                    if len(words) == 3 and words[0] == sign and words[1].isdigit():
                        self.folder = words[2]
                        return "timeout" if overdue else "ok", int(words[1])
            if self.process is None or self.process.poll() is not None:
                if overdue:
                    return "lost", 137
                drain(out, output)
                status = self.stop()
                return "exited", status
            now = time.monotonic()
            if now > end and not overdue:
                overdue, end = True, now + GRACE
                signal_all(signal.SIGINT)
            elif now > end:
                return "lost", 137

    def stop(self) -> int:
        """End bash and everything that it started; return its exit status."""
        signal_all(signal.SIGKILL)
        status = 137
        if self.process is not None:
            self.process.wait()
            code = self.process.returncode
            status = code if code >= 0 else 128 - code
            self.process = None
            for descriptor in self.descriptors:
                os.close(descriptor)
        reap(None)
        return status

    # -- files --------------------------------------------------------------------------------

    def read(self, most: int) -> dict[str, Any]:
        """End everything that still runs; return the files below the folder."""
        self.stop()
        entries: list[list[Any]] = []
        left = most
        for folder, folders, files in os.walk(os.path.realpath(HOME)):
            for name in sorted(folders + files):
                entry = read_entry(os.path.join(folder, name), left)
                if entry is None:
                    continue
                left -= len(json.dumps(entry)) + 2
                if left < 0:
                    return {"entries": [], "whole": False}
                entries.append(entry)
        return {"entries": entries, "whole": True}


class Output:
    """The beginning and the end of the output, of bounded size."""

    def __init__(self, most: int) -> None:
        self.half = max(1, most // 2)
        self.head, self.tail, self.total = b"", b"", 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self.half - len(self.head)
        self.head += data[:room]
        self.tail = (self.tail + data[max(0, room) :])[-self.half :]

    def text(self, most: int) -> tuple[str, int]:
        """Return at most `most` characters, and the number of omitted bytes."""
        dropped = self.total - len(self.head) - len(self.tail)
        if not dropped:
            whole = NO_TERMINAL.sub("", (self.head + self.tail).decode("utf-8", "replace"))
            if len(whole) <= most:
                return whole, 0
        head = self.head.decode("utf-8", "replace")[: most // 2]
        rest = (self.tail if dropped else self.head + self.tail).decode("utf-8", "replace")
        tail = rest[-(most - most // 2) :]
        left_out = max(1, self.total - len(head.encode()) - len(tail.encode()))
        return f"{head}\n... ({left_out} bytes left out) ...\n{tail}", left_out


def default_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""


def drain(descriptor: int, output: Output) -> None:
    """Read the output that is available now; a background job may keep writing forever."""
    for _ in range(64):
        data = read(descriptor)
        if not data:
            return
        output.add(data)


def signal_all(number: int) -> None:
    """Signal every process except this one; all of them belong to this sandbox."""
    try:
        os.kill(-1, number)
    except OSError:
        pass


def reap(shell: subprocess.Popen[bytes] | None) -> None:
    """Reap processes that have ended and whose parent no longer exists."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or (shell is not None and ended.si_pid == shell.pid):
            return
        os.waitpid(ended.si_pid, 0)


def write_entry(base: str, kind: str, path: str, mode: int, data: str) -> None:
    """Create a file, folder, or link, with the same time stamps as every other."""
    target = os.path.join(os.path.realpath(base), path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if kind == "folder":
        os.makedirs(target, exist_ok=True)
    elif kind == "link":
        os.symlink(data, target)
        return
    else:
        with open(target, "wb") as file:
            file.write(base64.b64decode(data))
    os.chmod(target, mode)
    os.utime(target, (1_700_000_000, 1_700_000_000))


def renew(base: str) -> None:
    """Replace a folder by an empty one, whatever is in its place; a link of the player is not followed.

    Raises:
        OSError: That is not possible.
    """
    first, *rest = base.strip("/").split("/")
    path = f"/{first}"
    if os.path.islink(path):  # of the sandbox, whose root is read-only
        path = os.path.join("/", os.readlink(path))
    unlock(os.path.dirname(path))
    for name in rest:
        if os.path.islink(path) or not os.path.isdir(path):
            remove(path)
            os.mkdir(path, 0o755)
        unlock(path)
        path = os.path.join(path, name)
    remove(path)
    os.mkdir(path, 0o755)
    if not os.path.samefile(path, base) or os.listdir(base):
        raise OSError(f"{base} is not new")


def unlock(folder: str) -> None:
    mode = stat.S_IMODE(os.stat(folder).st_mode)
    if os.stat(folder).st_uid == os.geteuid() and mode & 0o700 != 0o700:
        os.chmod(folder, mode | 0o700)


def remove(path: str) -> None:
    """Remove a file, a link, or a folder with its contents, if it exists."""
    if os.path.isdir(path) and not os.path.islink(path):
        unlock(path)
        for name in os.listdir(path):
            remove(os.path.join(path, name))
        os.rmdir(path)
    elif os.path.lexists(path):
        os.unlink(path)


def fetch(path: str, most: int) -> str | None:
    """Return the bytes of a file in base64; "" for a large file or another kind, None if nothing is there."""
    if not os.path.lexists(path):
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return ""
    with open(descriptor, "rb") as file:
        data = file.read(most + 1)
    return base64.b64encode(data).decode() if len(data) <= most else ""


def read_entry(path: str, left: int) -> list[Any] | None:
    """Return kind, path, mode, and data; the kind is "other" for what is not read; None if it is gone."""
    name = os.path.relpath(path, os.path.realpath(HOME))
    try:
        status = os.lstat(path)
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(status.st_mode):
            return ["link", name, mode, os.readlink(path)]
        if stat.S_ISDIR(status.st_mode):
            if mode & 0o700 != 0o700:
                os.chmod(path, 0o700)  # os.walk enters this folder later
            return ["folder", name, mode, ""]
        if not stat.S_ISREG(status.st_mode) or status.st_size * 4 > left * 3:
            return ["other", name, mode, ""]
        if not mode & 0o400:
            os.chmod(path, mode | 0o400)
        with open(path, "rb") as file:
            return ["file", name, mode, base64.b64encode(file.read()).decode()]
    except OSError:
        return None


def warm_up() -> None:
    """Do nothing: only the imports are slow."""


def protect() -> Driver:
    """Return a driver that needs no further imports, ignores interrupts, and cannot be read from inside.

    A command has the same user, and in a container it sees ``/proc/1``, which must not open the memory or the
    streams of this process.
    """
    sys.path[:] = [path for path in sys.path if path not in ("", "/program")]
    if ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        sys.exit("the driver of the shell cannot be protected: prctl failed")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return Driver()


def serve() -> None:
    """Read requests as lines of JSON from standard input; write an answer to each to standard output."""
    driver = protect()
    for line in sys.stdin.buffer:
        sys.stdout.write(driver.answer(line) + "\n")
        sys.stdout.flush()
