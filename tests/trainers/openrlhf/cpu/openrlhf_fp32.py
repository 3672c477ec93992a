"""float32 for OpenRLHF, which knows bfloat16 and float16 only; for tests that compare numbers.

Actor, reference model, optimizer and engine; the tests also print what a run without this differs by.
"""

from __future__ import annotations

import functools
from typing import Any

from gem_core.trainers.imports import after_import


def dtype(module: Any) -> None:
    import torch

    original = module.convert_to_torch_dtype
    module.convert_to_torch_dtype = lambda name: torch.float32 if name == "fp32" else original(name)


def strategy(module: Any) -> None:
    original = module.DeepspeedStrategy.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs["args"].ds.param_dtype = "fp32"  # neither of the two that DeepSpeed's config asks for
        original(self, *args, **kwargs)

    module.DeepspeedStrategy.__init__ = init


def engine(module: Any) -> None:
    original = module.EngineArgs.__post_init__

    @functools.wraps(original)
    def post_init(self: Any) -> None:
        self.dtype = "float32"
        original(self)

    module.EngineArgs.__post_init__ = post_init


def activate() -> None:
    after_import("openrlhf.utils.utils", dtype)
    after_import("openrlhf.utils.deepspeed.deepspeed", strategy)
    after_import("vllm.engine.arg_utils", engine)
