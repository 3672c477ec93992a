from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("package", "config", "extra"),
    [
        ("mcp", "mcp(command='x')", "mcp"),
        ("bm25s", "search(corpus='multihop:3')", "search"),
        ("sentence_transformers", "search(backend='dense', corpus='multihop')", "dense"),
    ],
)
def test_a_missing_package_is_named_with_its_command(package, config, extra, tmp_path, monkeypatch):
    monkeypatch.setenv("GEM_CORE_CACHE", str(tmp_path))
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from gem_core.errors import MissingDependency\n"
        "from gem_chat.tools import make_tools\n"
        f"try: make_tools({config!r})\n"
        "except MissingDependency as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"pip install 'gem-core[{extra}]'" in done.stdout, done.stderr
    assert not list(tmp_path.rglob("index.json"))
