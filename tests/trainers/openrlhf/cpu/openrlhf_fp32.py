"""float32 for OpenRLHF, which only supports bfloat16 and float16; for tests that compare numbers.

It applies to actor, reference model, optimizer, and engine. The tests also print the difference from a run
without it.
"""

from __future__ import annotations

import functools
from typing import Any

from gem_core.trainers import after_import


def dtype(module: Any) -> None:
    import torch

    original = module.convert_to_torch_dtype
    module.convert_to_torch_dtype = lambda name: torch.float32 if name == "fp32" else original(name)


def strategy(module: Any) -> None:
    original = module.DeepspeedStrategy.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs["args"].ds.param_dtype = "fp32"  # neither of the two types in DeepSpeed's config
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
