"""A real endpoint: llama.cpp's server with SmolLM2, or vLLM's with the folder GEM_CORE_EVAL_MODEL.

`nox -s eval` uses the former. The server runs during the tests of this folder; a skip says what is missing.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

MODEL = "smollm2"
START = 600.0
"""Time limit for a server to load its model, in seconds."""


def server_command(port: int) -> list[str]:
    """Return the command that starts the server, or skip the tests."""
    if not os.environ.get("GEM_CORE_EVAL"):
        pytest.skip("needs a real endpoint, and GEM_CORE_EVAL=1; `nox -s eval` has both")
    pytest.importorskip("openai", reason="needs the extra 'eval'")
    if find_spec("xllamacpp"):
        return [sys.executable, str(Path(__file__).with_name("serve_llama.py")), str(port)]
    folder = os.environ.get("GEM_CORE_EVAL_MODEL")
    vllm = os.environ.get("GEM_CORE_EVAL_VLLM") or shutil.which("vllm")
    if not vllm or not folder:
        pytest.skip("needs xllamacpp, or vllm and a model folder in GEM_CORE_EVAL_MODEL")
    options = [
        "--max-model-len",
        "2048",
        "--enforce-eager",
        "--dtype",
        "float32",
        "--no-enable-prefix-caching",
    ]
    options += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)]
    return [vllm, "serve", folder, *options]


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    with open(log, "wb") as output:
        server = subprocess.Popen(server_command(port), stdout=output, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}/v1"
    try:
        wait_for(f"{url}/models", server, log)
        yield url
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            assert server.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < end, f"no server after {START:g} s: {log.read_text()[-3000:]}"
            time.sleep(0.5)
