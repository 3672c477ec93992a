"""Commands end at a signal like at Ctrl-C: environments are closed, and no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gem_lab._cli._signals import ends_like_ctrl_c
from tests.support.recorded import IDS, Record, wait_until

CODE = (
    "import sys\nfrom gem_lab import main\nfrom tests.support import recorded\nrecorded.register()\n"
    "if __name__ == '__main__':\n    sys.exit(main(sys.argv[1:]))"
)


def start(*arguments, before=""):
    return subprocess.Popen([sys.executable, "-c", before + CODE, *arguments], start_new_session=True)


def running_in(session):
    """Return the processes of a session that run."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z" and int(fields[3]) == session:
            found.append(int(name))
    return found


@pytest.mark.parametrize(
    ("end", "before"),
    [
        (signal.SIGTERM, ""),
        (
            signal.SIGHUP,
            "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n",
        ),  # not as under nohup
        (signal.SIGTERM, "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"),  # as after `cmd &`
    ],
)
def test_an_evaluation_closes_its_environments(tmp_path, end, before):
    pytest.importorskip("openai", reason="needs the extra 'eval'")
    record = Record(tmp_path / "record")
    env = f"{IDS[1]}(path={str(record._path)!r},step=0.2)"
    process = start(
        "eval", "--model", "endpoint:m", "--base-url", "http://127.0.0.1:9/v1", "--env", env, "--episodes",
        "4", "--out", str(tmp_path / "run"), before=before,
    )  # fmt: skip  # nobody answers there, so the episodes wait
    try:
        wait_until(lambda: len(record.open()) >= 4)
        process.send_signal(end)
        assert process.wait(60) == 128 + end
        assert record.open() == set()
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes in /proc")
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_an_exam_ends_with_its_processes(tmp_path, end):
    process = start(
        "exam", "--workers", "2", "--budget", "100000000", "--tasks", "tool", "--stages", "initial"
    )
    try:
        wait_until(lambda: len(running_in(process.pid)) >= 3)  # with a process that multiprocessing starts
        process.send_signal(end)
        assert process.wait(60) == (143 if end == signal.SIGTERM else -signal.SIGKILL)
        wait_until(lambda: running_in(process.pid) == [])
    finally:
        for pid in running_in(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()


@pytest.fixture
def unhandled():
    """Nobody handles SIGTERM; a Ray of an earlier test in this process would."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def test_the_handlers_of_others_stay(unhandled):
    calls = []
    signal.signal(signal.SIGTERM, lambda number, _: calls.append(number))
    with ends_like_ctrl_c() as received:
        signal.raise_signal(signal.SIGTERM)
    assert calls == [signal.SIGTERM]
    assert received == []
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with pytest.raises(KeyboardInterrupt), ends_like_ctrl_c():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
