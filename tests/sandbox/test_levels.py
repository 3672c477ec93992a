from __future__ import annotations

import subprocess
import sys

import pytest

from gem_core.errors import ConfigError, SandboxError
from gem_envs.sandbox import LEVELS, ProgramLimits, _levels, open_sandbox, self_check
from gem_envs.sandbox._levels import LevelCheck, close_sandboxes
from tests.sandbox.support import needs_namespace


@pytest.mark.parametrize("level", ["none", "process", pytest.param("namespace", marks=needs_namespace)])
def test_levels_have_one_interface(level):
    sandbox = open_sandbox(level)
    assert sandbox is open_sandbox(level)
    code = (
        "from pathlib import Path\nprint(input())\n"
        "print(Path('a.txt').read_text())\nPath('b.txt').write_text('out')"
    )
    result = sandbox.run(code, stdin="typed", files={"a.txt": b"given"}, fetch=["b.txt", "c.txt"])
    assert result[:4] == ("typed\ngiven\n", "", "ok", 0)
    assert (result.level, dict(result.files)) == (level, {"b.txt": b"out"})
    failed = sandbox.run("1/0")
    assert failed.ending == "failed"
    assert failed.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert sandbox.run("raise SystemExit(3)").exit_code == 3
    for stream in ("stdout", "stderr"):
        for size in (10, 11, 100):
            code = f"import sys\nsys.{stream}.write('x' * {size})"
            result = sandbox.run(code, limits=ProgramLimits(output_bytes=10))
            assert (getattr(result, stream), result.cut) == ("x" * 10, size > 10)
    with pytest.raises(SandboxError, match="expected a relative path"):
        sandbox.run("", files={"../x": b""})


def test_sessions_exist_where_they_are_promised():
    session = open_sandbox("none").session()
    session.run("x = 1")
    assert session.run("print(x)").stdout == "1\n"
    with pytest.raises(SandboxError, match="use level 'namespace'"):
        open_sandbox("process").session()


def test_a_requested_link_is_not_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s")
    code = f"import os\nos.symlink({str(secret)!r}, 'a')\nos.symlink({str(tmp_path)!r}, 'b')\nopen('c', 'w')"
    result = open_sandbox("process").run(code, fetch=["a", "b/secret", "c"])
    assert dict(result.files) == {"c": b""}


def test_the_self_test_names_every_level():
    checks = self_check()
    assert list(checks) == list(LEVELS)
    assert checks["none"].available
    assert checks["process"].available
    assert all(check.reason for check in checks.values())


def test_the_default_is_the_strongest_fast_level_that_works(monkeypatch):
    works = self_check()["namespace"].available
    assert open_sandbox().level == ("namespace" if works else "process")
    monkeypatch.setattr(
        _levels, "_checks", {"namespace": LevelCheck("namespace", False, "user namespaces are off")}
    )
    assert open_sandbox().level == "process"
    with pytest.raises(SandboxError, match=r"only level 'process' .*\(user namespaces are off\)"):
        open_sandbox(min_level="namespace")
    with pytest.raises(SandboxError, match="min_level='process'"):
        open_sandbox("none", min_level="process")
    with pytest.raises(ConfigError, match="Available: none, process, namespace, container"):
        open_sandbox("jail")


def test_a_program_that_escapes_makes_a_level_unavailable(monkeypatch):
    weak = open_sandbox("process")
    monkeypatch.setattr(_levels, "_make", lambda *_: weak)
    check = _levels._check("namespace")
    assert not check.available
    assert "can escape" in check.reason


@needs_namespace
def test_closed_sandboxes_are_created_again():
    first = open_sandbox("namespace")
    close_sandboxes()
    assert open_sandbox("namespace") is not first
    assert open_sandbox("namespace").run("print(1)").stdout == "1\n"


@pytest.mark.parametrize("engine", [None, "engine-that-is-not-there"])
def test_a_container_says_what_it_lacks(monkeypatch, engine):
    from gem_envs.sandbox._container import Container

    monkeypatch.delenv("GEM_CORE_SANDBOX_IMAGE", raising=False)
    monkeypatch.delenv("GEM_CORE_SANDBOX_ENGINE", raising=False)
    if engine is None:
        with pytest.raises(SandboxError, match=r"needs (podman|an image)"):
            Container()
    else:
        with pytest.raises(SandboxError, match="cannot be started"):
            Container(image="x", engine=engine).run("1")


@pytest.mark.parametrize("level", ["process", "namespace"])
def test_an_interpreter_that_cannot_be_started_is_what_the_machine_lacks(level, tmp_path):
    """As for a user of a virtual environment whose interpreter lies in another user's home."""
    code = f"""
import sys
sys.executable = {str(tmp_path / "python")!r}
from gem_core.errors import SandboxError
from gem_envs.sandbox import open_sandbox
try:
    open_sandbox({level!r}).run("print(1)")
except SandboxError as error:
    print(error)
"""
    (tmp_path / "python").touch()  # nobody may execute it
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.stderr == ""
    assert f"{tmp_path}/python cannot be started (Permission denied)" in done.stdout
