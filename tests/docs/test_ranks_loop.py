"""The loop over several ranks trains the same weights in two processes as in one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import blocks

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

(LOOP,) = [b.code for b in blocks("docs/concepts/rebn.md") if "DistributedDataParallel" in b.code]


def start(folder: Path, rank: int, port: int, code: str) -> subprocess.Popen[bytes]:
    script = folder / f"{rank}.py"
    script.write_text(f"{code}\ntorch.save(policy.module.weight.detach(), {str(script) + '.pt'!r})\n")
    variables = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    settings = {name: str(value) for name, value in variables.items()}
    return subprocess.Popen([sys.executable, str(script)], env={**os.environ, **settings})


def weights(folder: Path, code: str) -> list[torch.Tensor]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [start(folder, rank, port, code) for rank in range(2)]
    assert [process.wait(120) for process in processes] == [0, 0]
    return [torch.load(folder / f"{rank}.py.pt") for rank in range(2)]


def test_two_processes_train_what_one_trains(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    with torch.random.fork_rng():
        exec(LOOP, names)
    one = names["policy"].module.weight.detach()
    assert not torch.equal(one, torch.nn.Embedding(8, 8).weight)
    for rank_weights in weights(tmp_path, LOOP):
        torch.testing.assert_close(rank_weights, one, atol=1e-5, rtol=0)
    alone, _ = weights(tmp_path, LOOP.replace(", process_group=dist.group.WORLD", ""))
    assert not torch.allclose(alone, one, atol=1e-3)  # the ranks need each other
