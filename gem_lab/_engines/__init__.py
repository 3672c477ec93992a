"""Inference engines: batched sampling in this process, vLLM, and HTTP endpoints.

The modules provide a `gem_core.rollout.Policy` or `gem_core.rollout.ChatPolicy`. The package does not import
the modules, because each one requires different packages.
"""
