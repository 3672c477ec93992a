"""Options that training, evaluation, and recipes have in common."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from gem_core import spec
from gem_core._tasks import check_labels
from gem_core._util.checks import expected
from gem_core._util.options import Bounds
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice


@dataclass(frozen=True)
class RunOptions:
    """The model, the environments, and how it plays them."""

    title: ClassVar = "model and environments"

    model: Annotated[str, "Hugging Face folder or name"] = ""
    env: Annotated[
        list[str], "environments: ID or 'ID(key=value)', each with ' as NAME' for a short name and =WEIGHT"
    ] = field(default_factory=list)
    seed: Annotated[int, "random seed", Bounds(0)] = field(default=0, kw_only=True)
    group_size: Annotated[int, "episodes per task; grpo, rloo, and pass@k need at least 2", Bounds(1)] = (
        field(default=1, kw_only=True)
    )
    temperature: Annotated[float, "sampling temperature", Bounds(above=0)] = field(default=1.0, kw_only=True)

    @property
    def sources(self) -> list[EnvChoice]:
        """Environments of `env`, with their arguments and weights."""
        return [EnvChoice.parse(text) for text in self.env]


@dataclass(frozen=True, kw_only=True)
class LocalOptions:
    """The folder of a run, and what it may use of this machine."""

    title: ClassVar = "run"

    out: Annotated[str, "folder of the run"] = "runs/run"
    concurrency: Annotated[int, "maximum episodes at the same time", Bounds(1)] = 512
    device: Annotated[str, "torch device: 'cpu', 'cuda', 'cuda:1', or 'auto'"] = "auto"
    threads: Annotated[int, "torch threads; 0 for one on a tiny model, else torch's default", Bounds(0)] = 0


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The budget of a training run."""

    title: ClassVar = "training"

    steps: Annotated[int, "rounds of rollout and update", Bounds(1)] = 100
    episodes_per_step: Annotated[int, "episodes per step, a multiple of group_size", Bounds(1)] = 64
    minibatches: Annotated[int, "optimizer updates per pass over the episodes of a step", Bounds(1)] = 1
    learning_rate: Annotated[
        float | None, "learning rate of AdamW (default: 3e-3 for 'tiny', else 1e-5)", Bounds(above=0)
    ] = None


def check_envs(**options: Any) -> None:
    """Check options that list environments.

    Raises:
        ConfigError: A list is empty, or names an environment twice, or two environments have one name.
        UnknownEnv: An environment does not exist.
    """
    for name, texts in options.items():
        if not texts or not isinstance(texts, list | tuple):
            raise expected(name, texts, "a list of at least one environment, as ['game:Mastermind-v0=2']")
    lists = [[EnvChoice.parse(text) for text in texts] for texts in options.values()]
    check_labels([source for sources in lists for source in sources])
    for sources in lists:
        labels = [source.label for source in sources]
        for source in sources:
            spec(source.env_id)
            if labels.count(source.label) > 1:
                raise ConfigError(f"{source.label} is listed twice; list it once")


def check_path(name: str, path: str | os.PathLike[str]) -> None:
    """Check that a path is text in UTF-8, as the libraries that save and load models require.

    Raises:
        ConfigError: It has other bytes, or Python reads paths in an encoding without its characters.
    """
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        hint = "" if encoding == "utf-8" else f"; Python reads paths as {encoding} here: set PYTHONUTF8=1"
        what = "a path in UTF-8, as libraries for models require"
        raise expected(name, os.fspath(path), f"{what}{hint}") from None
