"""Names that OpenRLHF imports."""

from typing import Any


def unavailable(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("packed rows need flash-attn, and that needs CUDA")


index_first_axis = pad_input = rearrange = unpad_input = unavailable
