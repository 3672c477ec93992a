"""verifiers: ``verifiers:TASKSET`` as an environment. The package `gem_verifiers` is the other direction."""

from __future__ import annotations

from gem_bridges.verifiers.env import VerifiersEnv

__all__ = ["VerifiersEnv"]
