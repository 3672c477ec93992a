"""Models that generate: batched sampling in this process, vLLM, and HTTP endpoints.

Each module provides a `gem_core.rollout.Policy` or `gem_core.rollout.ChatPolicy`. The package imports
none of them, because each needs other packages.
"""
