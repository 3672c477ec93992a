"""Every error that gem_core raises on purpose.

All errors derive from `GemError`. Each also derives from the built-in error that a caller would expect
(`UnknownEnv` is a `LookupError`), so code that does not know gem_core can also handle it. Messages state the
rejected value, the expected values, and the remedy.
"""

from __future__ import annotations


class GemError(Exception):
    """Base class of all errors of this package."""


class ConfigError(GemError, ValueError):
    """Raised when an option, a file, or a combination of options is invalid or not supported."""


class UnknownEnv(GemError, LookupError):
    """Raised when no environment is registered under an id."""


class UnknownName(GemError, LookupError):
    """Raised when no wrapper, estimator, or other registered part has the requested name."""


class MissingDependency(GemError, ImportError):
    """Raised when an optional dependency is not installed; the message holds the pip command."""


class ResetNeeded(GemError, RuntimeError):
    """Raised when `step` is called before `reset`, or after the episode ended."""


class CallOrderError(GemError, RuntimeError):
    """Raised when a closed object is used, or an environment of a vector env that is still busy."""


class EnvError(GemError, RuntimeError):
    """Raised when an environment breaks its contract: it raised, timed out, or returned a bad value."""


class ServiceError(GemError, ConnectionError):
    """Raised when a server that an environment needs does not answer correctly."""


class WrongServer(ServiceError):
    """Raised when a server answers, but cannot give the requested answer; a retry does not help."""


class SandboxError(GemError, RuntimeError):
    """Raised when a level of isolation is unavailable or weaker than required; the message says why."""


class PolicyError(GemError, RuntimeError):
    """Raised when a policy returns something that is not a generation for the prompt."""


class NonFiniteReward(GemError, ValueError):
    """Raised when a reward is NaN or infinite; the message names the episode and the turn."""


class CheckFailed(GemError, AssertionError):
    """Raised when `check_env` finds broken rules; the message names each rule and the evidence."""


class UnsupportedTemplate(GemError, ValueError):
    """Raised when a chat template cannot give token-exact multi-turn contexts; the message says why."""


class ModelError(GemError, RuntimeError):
    """Raised when a model cannot be loaded, or a context does not fit the model."""


class DataError(GemError, ValueError):
    """Raised when a dataset cannot be found or read, or lacks what the environment needs."""


class TraceError(GemError, ValueError):
    """Raised when a trace file has the wrong schema version or a damaged line."""


class CheckpointError(GemError, RuntimeError):
    """Raised when a checkpoint cannot be written, or does not fit the run that resumes from it."""


class UnsupportedTrainer(GemError, RuntimeError):
    """Raised when a trainer is missing or its version is not supported."""
