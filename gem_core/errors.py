"""Every error that gem_core raises on purpose.

All derive from `GemError`, so a program can catch one class. Each also derives from the built-in
error that a caller would expect (`UnknownEnv` is a `LookupError`), so code that knows nothing of
gem_core handles it too. Messages say what was given, what was expected and what to do.
"""

from __future__ import annotations


class GemError(Exception):
    """Base of all errors of this package."""


class ConfigError(GemError, ValueError):
    """An option, a file or a combination of options cannot be honoured."""


class UnknownEnv(GemError, LookupError):
    """No environment is registered under the id that was asked for."""


class UnknownName(GemError, LookupError):
    """No wrapper, estimator or other registered part has the name that was asked for."""


class MissingDependency(GemError, ImportError):
    """An optional dependency is not installed; the message holds the pip command."""


class ResetNeeded(GemError, RuntimeError):
    """`step` was called before `reset`, or after the episode ended."""


class CallOrderError(GemError, RuntimeError):
    """A vector env was closed already, or an env of it is still busy with its last action."""


class EnvError(GemError, RuntimeError):
    """An environment broke its contract: it raised, timed out or returned a bad value."""


class ServiceError(GemError, ConnectionError):
    """A server that an environment needs does not answer, or not as it should."""


class SandboxError(GemError, RuntimeError):
    """A level of isolation is not available here, or weaker than what was asked for; the message says why."""


class PolicyError(GemError, RuntimeError):
    """A policy broke its contract: it returned something that is no generation for the prompt."""


class NonFiniteReward(GemError, ValueError):
    """A reward is NaN or infinite; the message names the episode and the turn."""


class CheckFailed(GemError, AssertionError):
    """`check_env` found a broken rule; the message names the rule and the evidence."""


class UnsupportedTemplate(GemError, ValueError):
    """A chat template cannot give token-exact multi-turn contexts; the message says why."""


class ModelError(GemError, RuntimeError):
    """A model folder or name cannot be loaded, or a context does not fit the model."""


class DataError(GemError, ValueError):
    """A data set cannot be found, reached or read, or lacks what the environment needs."""


class TraceError(GemError, ValueError):
    """A trace file cannot be read: wrong schema version or a damaged line."""


class CheckpointError(GemError, RuntimeError):
    """A checkpoint cannot be written, or does not fit the run that resumes from it."""


class UnsupportedTrainer(GemError, RuntimeError):
    """A trainer is missing or has a version that its plugin does not support."""
