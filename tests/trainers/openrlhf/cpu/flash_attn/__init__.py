"""Stub of flash-attn, which needs CUDA; OpenRLHF always imports it and only calls it to pack rows."""

__version__ = "0"
