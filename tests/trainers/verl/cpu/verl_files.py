"""A checkpoint engine for verl that passes weights through files, for tests on a machine without GPUs.

verl's other engines need NCCL or RDMA. Loaded through `checkpoint_engine.custom_backend_module`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry


@CheckpointEngineRegistry.register("files")
class FileCheckpointEngine(CheckpointEngine):
    """Writes each version of the weights to a file in the folder of the spies."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self.path = Path()

    def prepare(self) -> dict[str, Any]:
        return {}

    @classmethod
    def build_topology(
        cls, actors: int, rollouts: int, metadata: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        name = uuid4().hex
        return {"name": [name] * actors}, {"name": [name] * rollouts}

    def init_process_group(self, name: str) -> None:
        self.path = Path(os.environ["GEM_SPY"], f"{name}.weights")

    def finalize(self) -> None:
        self.path.unlink(missing_ok=True)

    async def send_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None
    ) -> None:
        part = self.path.with_suffix(".part")
        torch.save({name: weight.detach().cpu().clone() for name, weight in weights}, part)
        part.replace(self.path)

    async def receive_weights(
        self, global_steps: int | None = None
    ) -> AsyncIterator[tuple[str, torch.Tensor]]:
        while not self.path.exists():
            await asyncio.sleep(0.05)
        for name, weight in torch.load(self.path).items():
            yield name, weight
