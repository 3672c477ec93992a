"""Every code block of README.md and the documentation works.

The blocks of one page run in order, in one temporary folder: python blocks share a namespace, and bash blocks
run under ``bash -eu`` with ``gem-core`` on the path. If a block has only ``gem-core`` commands and commands
that show a result, ``gem-core`` runs in this process, because starting it takes longer than running it. A
block marked ``gpu`` is parsed instead of run; a block marked ``slow`` runs only if GEM_CORE_DOCS_SLOW is set
(``make docs-slow``).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from gem_envs.sandbox import self_check
from gem_lab import main
from gem_lab._cli import build_parser
from tests.docs.blocks import Block, blocks, extra_of, pages, parse

MODULES = {
    "train": ("torch", "transformers", "rich", "matplotlib"),
    "ray": ("ray",),
    "docs": ("mkdocs",),
    "eval": ("openai",),
    "otel": ("opentelemetry.sdk",),
    "rg": ("reasoning_gym",),
    "search": ("bm25s", "aiohttp"),  # the page also runs a server
    "serve": ("aiohttp",),
    "mcp": ("mcp",),
    "terminal": ("yaml",),
    "vision": ("PIL",),
    "gymnasium": ("gymnasium",),
    "pettingzoo": ("pettingzoo",),
    "textarena": ("textarena",),
    "skyrl": ("skyrl_gym",),
    "verifiers": ("verifiers",),
}
SLOW = bool(os.environ.get("GEM_CORE_DOCS_SLOW"))
LONG = "docs/concepts/exam.md"
"""A page whose code takes half a minute, and needs only numpy."""
SHOWS = ("head", "ls")
"""Programs that show a result of the commands before them."""
_QUOTED = re.compile(r"'[^']*'|(?<!\S)#.*")
_SHELL = re.compile(r"[^\w\s.,:/@%+=-]")
"""Characters with a meaning in the shell, and all that might have one, outside of single quotes."""
MARKED = [block for page in pages() for block in blocks(page) if block.marks]


def needs(page: str) -> None:
    extra = extra_of(page)
    if extra == "terminal":  # also needs a sandbox level that not every machine has
        check = self_check()["namespace"]
        if not check.available:
            pytest.skip(check.reason)
    for module in MODULES[extra] if extra else ():
        pytest.importorskip(module, reason=f"{page} needs the extra '{extra}'")


def run_bash(block: Block, folder: Path) -> None:
    commands = own_commands(block.code)
    if commands:
        with open(os.devnull) as nothing, mock.patch("sys.stdin", nothing):
            for words in commands:
                code = subprocess.call(words, cwd=folder) if words[0] in SHOWS else main(words[1:])
                assert code == 0, f"{block.where} ended with {code}: {shlex.join(words)}"
        return
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", block.code],
        cwd=folder, env={**os.environ, "PATH": path}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{block.where} ended with {done.returncode}:\n{done.stdout}"


def own_commands(code: str) -> list[list[str]]:
    """Return the words of each command; empty unless all are `gem-core` or `SHOWS` without shell syntax."""
    commands = []
    for line in filter(None, code.replace("\\\n", " ").splitlines()):
        words = shlex.split(line, comments=True)
        if words and (words[0] not in ("gem-core", *SHOWS) or _SHELL.search(_QUOTED.sub("", line))):
            return []
        commands += [words] if words else []
    return commands


def run_python(block: Block, namespace: dict[str, Any]) -> None:
    source = "\n" * (block.line - 1) + block.code  # makes tracebacks show the line of the page
    exec(compile(source, block.page, "exec"), namespace)


def parse_bash(block: Block) -> None:
    """Read a block that cannot run here: shell syntax, and the arguments of our own commands."""
    done = subprocess.run(["bash", "-n", "-c", block.code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{block.where}: {done.stderr}"
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["gem-core"]:
            build_parser().parse_args(words[1:])  # SystemExit fails the test


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.once) if page == LONG else page for page in pages()]
)
def test_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registry: None) -> None:
    needs(page)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    for block in blocks(page):
        if "gpu" in block.marks or ("slow" in block.marks and not SLOW):
            continue  # test_marked_block accounts for them
        if block.language == "python":
            run_python(block, namespace)
        elif block.language == "bash":
            run_bash(block, tmp_path)
        elif block.language == "json":
            json.loads(block.code)


@pytest.mark.parametrize("block", MARKED, ids=[f"{block.where}-{min(block.marks)}" for block in MARKED])
def test_marked_block(block: Block) -> None:
    if block.language == "python":
        compile(block.code, block.page, "exec")
    else:
        parse_bash(block)
    if "slow" in block.marks and not SLOW:
        slow = [other for other in MARKED if "slow" in other.marks]
        pytest.skip(f"parsed, not run: one of {len(slow)} slow blocks, which `make docs-slow` runs")


def test_a_block_needs_a_known_language_and_marks() -> None:
    for text, message in (
        ("```\nx\n```", "x.md:1: a block says one of"),
        ("\n```python later\nx\n```", "x.md:2: a block says one of"),
        ("```bash\nx", "never closed"),
    ):
        with pytest.raises(ValueError, match=message):
            parse("x.md", text)


def test_blocks_keep_their_line_and_lose_their_indent() -> None:
    (block,) = parse("x.md", 'a\n\n    ```bash gpu title="t"\n    gem-core envs\n    ```\n')
    assert block == Block("x.md", 4, "bash", frozenset({"gpu"}), "gem-core envs\n")


def test_only_blocks_of_our_own_plain_commands_run_in_this_process() -> None:
    assert own_commands("gem-core envs 'game:*' \\\n  --json  # all & sundry\n\ngem-core doctor\n") == [
        ["gem-core", "envs", "game:*", "--json"], ["gem-core", "doctor"]
    ]  # fmt: skip
    assert own_commands("gem-core new A\nhead -n 1 a.py") == [
        ["gem-core", "new", "A"],
        ["head", "-n", "1", "a.py"],
    ]
    shell = (
        "\npwd",
        " && ls",
        " | head",
        " > x",
        " *",
        " $X",
        ' "$X"',
        " ~",
        " a{b,c}",
        " a;ls",
        " a &",
        " [ab]",
    )
    for code in ("pwd", "X=1 gem-core envs", "# nothing", *(f"gem-core envs{rest}" for rest in shell)):
        assert own_commands(code) == []


def test_a_failing_block_names_the_page_and_line(tmp_path: Path) -> None:
    python, bash, own, wrong = parse(
        "x.md",
        "```python\n1 / 0\n```\n```bash\nfalse\ntrue\n```\n```bash\ngem-core envs\ngem-core check x\n```\n"
        "```bash gpu\ngem-core nope\n```",
    )
    with pytest.raises(ZeroDivisionError) as caught:
        run_python(python, {})
    assert (caught.traceback[-1].frame.code.path, caught.traceback[-1].lineno) == ("x.md", 1)
    with pytest.raises(AssertionError, match=r"x\.md:5 ended with 1"):
        run_bash(bash, tmp_path)
    with pytest.raises(AssertionError, match=r"x\.md:9 ended with 2: gem-core check x"):
        run_bash(own, tmp_path)
    with pytest.raises(SystemExit):
        parse_bash(wrong)
