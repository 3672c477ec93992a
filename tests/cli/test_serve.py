from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from gem_envs.tools.search import open_searcher
from gem_lab import main


def served(*arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "gem_lab", "serve", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_search_is_served_until_it_is_ended(tmp_path, end):
    pytest.importorskip("bm25s", reason="building an index needs the extra 'search'")
    pytest.importorskip("aiohttp", reason="needs the extra 'serve'")
    (tmp_path / "a.txt").write_text("The lamp is red.")
    with served("search", "--corpus", str(tmp_path), "--port", "0", GEM_CORE_CACHE=str(tmp_path)) as process:
        line = process.stdout.readline()
        found = re.fullmatch(r"1 documents at (http://127\.0\.0\.1:\d+)/retrieve\n", line)
        assert found, line + process.stderr.read()
        with open_searcher("server", url=found[1]) as client:
            assert client.search("lamp", k=1)[0].document["text"] == "The lamp is red."
        process.send_signal(end)
        assert process.wait(60) == 0
    (index,) = (tmp_path / "search").glob("bm25-*")
    with served("search", "--index", str(index), "--port", "0") as process:
        assert process.stdout.readline().startswith("1 documents at ")
        process.kill()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["search", "--corpus", "/no/such"], "corpus '/no/such' does not exist"),
        (["search", "--index", "/no/such"], "contains no bm25 index"),
        (["search", "--port", "99999"], "99999: expected a whole number from 0 to 65535"),
        (["search", "--index", "x", "--backend", "dense"], "--index takes a BM25 index"),
        (["mcp", "game:Nothing"], "unknown environment 'game:Nothing'"),
        (["mcp", "game:GuessTheNumber-v0", "--kwargs", "depth=3"], "depth"),
        (["openenv", "game:Nothing"], "unknown environment 'game:Nothing'"),
        (["openenv", "game:GuessTheNumber-v0(depth=3)"], "unexpected keyword argument 'depth'"),
        (
            ["openenv", "game:GuessTheNumber-v0(depth=3)", "--package", "/no/such"],
            "unexpected keyword argument",
        ),
        (["openenv", "game:GuessTheNumber-v0", "--tls-key", "key.pem"], "--tls-key needs --tls-cert"),
        (["openenv", "game:GuessTheNumber-v0", "--token-file", "/no/such"], "/no/such"),
        ([], "required: KIND"),
    ],
)
def test_a_mistake_is_reported_in_one_line(arguments, said, capsys):
    if arguments:
        pytest.importorskip("aiohttp", reason="needs the extra 'serve'")
    assert main(["serve", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_taken_port_is_reported_in_one_line(tmp_path, capsys, monkeypatch):
    pytest.importorskip("bm25s", reason="building an index needs the extra 'search'")
    pytest.importorskip("aiohttp", reason="needs the extra 'serve'")
    import socket

    monkeypatch.setenv("GEM_CORE_CACHE", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", "search", "--port", str(taken.getsockname()[1])]) == 2
    assert "in use" in capsys.readouterr().err
