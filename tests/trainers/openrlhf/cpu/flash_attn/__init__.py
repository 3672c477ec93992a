"""A stand-in for flash-attn, which needs CUDA: OpenRLHF imports it always and calls it only to pack rows."""

__version__ = "0"
