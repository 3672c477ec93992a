"""Stubs of the parts of SGLang that RL2 imports, for tests on a CPU; the server is `rl2_engine`.

The requests between RL2 and the server are real HTTP, through SGLang's real router.
"""

from __future__ import annotations

import base64
import io
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import requests
import torch


@dataclass
class ServerArgs:
    """The arguments that RL2 passes."""

    model_path: str
    host: str
    port: int
    tp_size: int = 1
    dtype: str = "float32"
    mem_fraction_static: float = 0.6
    enable_memory_saver: bool = False
    log_level: str = "error"

    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


def launch_server(args: ServerArgs) -> None:
    """Turn this forked process into the server."""
    os.execv(sys.executable, [sys.executable, "-m", "rl2_engine", args.model_path, args.host, str(args.port)])


def launch_server_process(args: ServerArgs) -> multiprocessing.Process:
    """Start a server and wait until it answers."""
    process = multiprocessing.Process(target=launch_server, args=(args,))
    process.start()
    while process.is_alive():
        try:
            if requests.get(f"{args.url()}/health_generate", timeout=5).ok:
                return process
        except requests.ConnectionError:
            time.sleep(0.1)
    raise RuntimeError("the server ended")


class MultiprocessingSerializer:
    """Serializes objects with tensors as bytes or text."""

    @staticmethod
    def serialize(value: Any, output_str: bool = False) -> bytes | str:
        buffer = io.BytesIO()
        torch.save(value, buffer)
        return base64.b64encode(buffer.getvalue()).decode() if output_str else buffer.getvalue()

    @staticmethod
    def deserialize(data: bytes | str) -> Any:
        content = base64.b64decode(data) if isinstance(data, str) else data
        return torch.load(io.BytesIO(content), weights_only=False)


@dataclass
class LocalSerializedTensor:
    """One serialized tensor per rank."""

    values: list[bytes]


@dataclass
class TensorMetadata:
    """Position of a tensor in a bucket."""

    name: str
    shape: torch.Size
    dtype: torch.dtype
    start: int
    end: int


class FlattenedTensorBucket:
    """Named tensors, stored in one tensor of bytes."""

    def __init__(
        self,
        named_tensors: Iterable[tuple[str, torch.Tensor]] = (),
        flattened_tensor: torch.Tensor | None = None,
        metadata: list[TensorMetadata] | None = None,
    ) -> None:
        parts, self.metadata = [], list(metadata or [])
        for name, tensor in named_tensors:
            parts.append(tensor.contiguous().flatten().view(torch.uint8))
            start = self.metadata[-1].end if self.metadata else 0
            end = start + parts[-1].numel()
            self.metadata.append(TensorMetadata(name, tensor.shape, tensor.dtype, start, end))
        self.flattened_tensor = torch.cat(parts) if flattened_tensor is None else flattened_tensor

    def get_flattened_tensor(self) -> torch.Tensor:
        return self.flattened_tensor

    def get_metadata(self) -> list[TensorMetadata]:
        return self.metadata

    def reconstruct_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for entry in self.metadata:
            content = self.flattened_tensor[entry.start : entry.end].clone()
            yield entry.name, content.view(entry.dtype).view(entry.shape)


def named_tensors(sent: list[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """Return the weights in an ``update_weights_from_tensor`` request of either version of RL2."""
    value = MultiprocessingSerializer.deserialize(sent[0])
    if isinstance(value, dict):
        bucket = FlattenedTensorBucket(flattened_tensor=value["flattened_tensor"], metadata=value["metadata"])
        yield from bucket.reconstruct_tensors()
    else:
        for name, local in value:
            yield name, MultiprocessingSerializer.deserialize(local.values[0])


MODULES: dict[str, dict[str, Any]] = {
    "sglang": {},
    "sglang.srt": {},
    "sglang.srt.server_args": {"ServerArgs": ServerArgs},
    "sglang.srt.entrypoints": {},
    "sglang.srt.entrypoints.http_server": {"launch_server": launch_server},
    "sglang.srt.entrypoints.http_server_engine": {"launch_server_process": launch_server_process},
    "sglang.srt.utils": {"MultiprocessingSerializer": MultiprocessingSerializer},
    "sglang.srt.patch_torch": {"monkey_patch_torch_reductions": lambda: None},
    "sglang.srt.model_executor": {},
    "sglang.srt.model_executor.model_runner": {
        "LocalSerializedTensor": LocalSerializedTensor,
        "FlattenedTensorBucket": FlattenedTensorBucket,
    },
}
"""Contents of the stub modules, by module name."""
