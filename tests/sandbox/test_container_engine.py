"""What level ``container`` asks of its engine and makes of the answers, with a stub of the engine's command.

`tests.sandbox.test_container` runs the same level in a real Podman.
"""

from __future__ import annotations

import base64
import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from gem_core.errors import SandboxError
from gem_envs.sandbox import ProgramLimits
from gem_envs.sandbox._container import Container, _counts

pytestmark = pytest.mark.once

STUB = """
import json, pathlib, sys, time
folder, *words = map(str, sys.argv[1:])
folder = pathlib.Path(folder)
if words[-1] == "pass":  # whether memory can be limited
    sys.exit((folder / "counts").exists() - 1)
with (folder / "commands.jsonl").open("a") as file:
    file.write(json.dumps(words) + "\\n")
if words[0] == "run":
    asked = sys.stdin.readline()
    (folder / "request.json").write_text(asked)
    profile = next(word for word in words if word.startswith("seccomp=")).removeprefix("seccomp=")
    (folder / "profile.json").write_text(pathlib.Path(profile).read_text())
    reply = json.loads((folder / "reply.json").read_text())
    time.sleep(reply["wait"])
    print(reply["out"].replace("@ID@", json.loads(asked)["id"]))
    print(reply["err"], file=sys.stderr)
    sys.exit(reply["code"])
"""


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Engine:
    """Stub of an engine: records its commands, and answers `run` with a given text."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "engine.py").write_text(STUB)
        self.sandbox = Container(
            image="an-image", engine=f"{sys.executable} {folder}/engine.py {folder}", disk_bytes=4096
        )

    def answer(self, out: Any, *, err: str = "", code: int = 0, wait: float = 0.0) -> None:
        text = out if isinstance(out, str) else json.dumps(out)
        reply = {"out": text, "err": err, "code": code, "wait": wait}
        (self.folder / "reply.json").write_text(json.dumps(reply))

    def finish(self, out: str = "", err: str = "", *, status: int = 0, timed_out: bool = False) -> None:
        files = {"b.txt": encoded("made")}
        self.answer(
            {
                "id": "@ID@",
                "out": encoded(out),
                "err": encoded(err),
                "exit": status,
                "timed_out": timed_out,
                "files": files,
            }
        )

    @property
    def commands(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "commands.jsonl").read_text().splitlines()]

    def read(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path)


def test_a_program_reaches_the_engine_with_its_limits(engine: Engine) -> None:
    engine.finish("typed\n")
    limits = ProgramLimits(wall_seconds=3, output_bytes=10, open_files=99, processes=5)
    result = engine.sandbox.run(
        "print(input())", stdin="é", files={"a": b"\0"}, fetch=["b.txt"], limits=limits
    )
    assert (result.stdout, result.stderr, result.ending, result.exit_code) == ("typed\n", "", "ok", 0)
    assert (dict(result.files), result.cut, result.level) == ({"b.txt": b"made"}, False, "container")
    run, removed = engine.commands
    name = run[run.index("--name") + 1]
    assert removed == ["rm", "--force", name]
    for words in (
        ["--network", "none"], ["--cap-drop", "ALL"], ["--security-opt", "no-new-privileges"],
        ["--user", "65534:65534"], ["--tmpfs", "/program:rw,size=4096,mode=1777"], ["--read-only"],
        ["--tmpfs", "/tmp:rw,size=4096,mode=1777"], ["--init=false"], ["--ulimit", "msgqueue=0:0"],
        ["--ulimit", "nofile=99:99"], ["--ulimit", "nproc=13:13"], ["an-image", "python3", "-I", "-c"],
    ):  # fmt: skip
        assert any(run[at : at + len(words)] == words for at in range(len(run))), words
    request = engine.read("request.json")
    decoded = {key: base64.b64decode(request[key]).decode() for key in ("code", "in")}
    assert decoded == {"code": "print(input())", "in": "é"}
    assert {name: base64.b64decode(data) for name, data in request["files"].items()} == {"a": b"\0"}
    assert (request["fetch"], request["seconds"], request["output_bytes"]) == (["b.txt"], 3, 10)
    assert request["limits"] == list(limits.kernel_limits())
    denied = {name for rule in engine.read("profile.json")["syscalls"] for name in rule["names"]}
    assert {"ptrace", "mount", "unshare", "clone3", "semget", "splice", "mmap"} <= denied


@pytest.mark.parametrize("stream", ["out", "err"])
@pytest.mark.parametrize("size", [9, 10, 11])
def test_output_is_cut_at_the_limit(engine: Engine, stream: str, size: int) -> None:
    engine.finish(**{stream: "x" * size})
    result = engine.sandbox.run("", limits=ProgramLimits(output_bytes=10))
    assert (result.stdout + result.stderr, result.cut) == ("x" * min(size, 10), size > 10)


@pytest.mark.parametrize(
    ("answer", "ending"),
    [
        ({"status": 0}, "ok"),
        ({"status": 1}, "failed"),
        ({"status": -9, "timed_out": True}, "timeout"),
        ({"status": -11}, "killed"),
    ],
)
def test_endings(engine: Engine, answer: dict[str, Any], ending: str) -> None:
    engine.finish(**answer)
    assert engine.sandbox.run("").ending == ending


WHOLE = {"id": "@ID@", "out": "", "err": "", "exit": 0, "timed_out": False, "files": {}}
BAD: list[Any] = [
    *("", "{", "[1]", "7", '{"out": ""}', "[" * 50_000, '{"a":' * 50_000, "NaN", "\0"),
    {**WHOLE, "id": "0" * 32},
    {**WHOLE, "id": None},
    {name: value for name, value in WHOLE.items() if name != "id"},
    *({name: value for name, value in WHOLE.items() if name != left} for left in WHOLE),
    *({**WHOLE, "out": out} for out in (1, None, [], "not base64", "é", "A")),
    *({**WHOLE, "exit": code} for code in ("x", None, [], float("inf"), float("nan"))),
    *({**WHOLE, "files": files} for files in (1, None, "b.txt", ["b.txt"], {"b.txt": 1}, {"b.txt": "é"})),
]


@pytest.mark.parametrize("out", BAD)
def test_an_answer_that_cannot_be_read_means_a_program_that_was_killed(engine: Engine, out: Any) -> None:
    engine.answer(out, err="the guest was lost")
    result = engine.sandbox.run("", fetch=["b.txt"])
    assert (result.ending, result.exit_code) == ("killed", -9)
    assert result.stderr in ("the guest was lost", "the answer cannot be read")
    assert engine.commands[-1][0] == "rm"


def test_only_the_files_that_were_asked_for_come_back(engine: Engine) -> None:
    names = ["b.txt", "../../evil", "/etc/evil", "c.txt", "", "\n"]
    engine.answer({**WHOLE, "files": dict.fromkeys(names, encoded("x"))})
    assert dict(engine.sandbox.run("", fetch=["b.txt"]).files) == {"b.txt": b"x"}


@pytest.mark.parametrize("name", ["out", "file"])
def test_an_answer_that_is_longer_than_its_limits_is_not_read(engine: Engine, name: str) -> None:
    limits = ProgramLimits(output_bytes=100, file_bytes=1000)
    fetch = ["b.txt"] if name == "file" else []
    for size, ending in ((100, "ok"), (10**6, "killed")):
        data = encoded("x" * size)
        engine.answer({**WHOLE, "files": {"b.txt": data}} if fetch else {**WHOLE, "out": data})
        assert engine.sandbox.run("", limits=limits, fetch=fetch).ending == ending


def test_a_flood_of_the_engine_takes_no_memory(engine: Engine) -> None:
    engine.answer("x" * (16 * 2**20))
    tracemalloc.start()
    try:
        assert engine.sandbox.run("", limits=ProgramLimits(output_bytes=10)).ending == "killed"
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_a_whole_container_has_limits_if_the_engine_can(engine: Engine) -> None:
    engine.finish()
    limits = ProgramLimits(memory_bytes=2**28, processes=5)
    engine.sandbox.run("", limits=limits)
    assert not {"--memory", "--pids-limit"} & set(engine.commands[0])
    assert "cannot limit" in engine.sandbox.about
    (engine.folder / "counts").touch()
    _counts.cache_clear()
    engine.sandbox.run("", limits=limits)
    run = engine.commands[-2]
    assert run[run.index("--memory") :][:4] == ["--memory", str(2**30), "--pids-limit", "13"]
    assert engine.read("request.json")["limits"][3] == 4096  # would count the processes of all containers
    assert "engine limits" in engine.sandbox.about


@pytest.mark.parametrize("code", [125, 126, 127])
def test_an_engine_that_starts_nothing_is_an_error(engine: Engine, code: int) -> None:
    engine.answer("", err="no such image", code=code)
    with pytest.raises(SandboxError, match="the container did not start: no such image"):
        engine.sandbox.run("")
    assert engine.commands[-1][0] == "rm"


def test_an_engine_that_hangs_is_a_timeout(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gem_envs.sandbox._container.START_SECONDS", 0.5)
    engine.answer("", wait=60)
    assert engine.sandbox.run("", limits=ProgramLimits(wall_seconds=0.5)).ending == "timeout"
    assert engine.commands[-1][0] == "rm"


def test_without_an_engine_or_an_image_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEM_CORE_SANDBOX_IMAGE", raising=False)
    monkeypatch.delenv("GEM_CORE_SANDBOX_ENGINE", raising=False)
    with pytest.raises(SandboxError, match="set GEM_CORE_SANDBOX_IMAGE"):
        Container(engine="podman")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SandboxError, match="needs podman or docker"):
        Container(image="an-image")
    with pytest.raises(SandboxError, match="cannot be started"):
        Container(image="an-image", engine="/no/such/engine").run("")
