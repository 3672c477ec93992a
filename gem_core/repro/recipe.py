"""`Recipe`: what a run is, without the words of any trainer."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from gem_core._util.messages import suggest
from gem_core.advantages.registry import TRAINER_NAMES, get_estimator
from gem_core.errors import ConfigError, MissingDependency
from gem_core.rollout import RolloutOptions
from gem_core.tasks import EnvChoice, TaskRow, make_tasks

SCOPES = ("collected", "trained")
ADAM_BETAS = (0.9, 0.999)
"""PyTorch's defaults; not every trainer has an option for them."""


def reject_unsupported(trainer: str, reasons: Mapping[str, str]) -> None:
    """Say which options a trainer has no equivalent of; nothing where there are none.

    Args:
        trainer: Its name.
        reasons: By option.

    Raises:
        ConfigError: There is one.
    """
    if reasons:
        named = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise ConfigError(f"{trainer} cannot run this recipe: {named}")


@dataclass(frozen=True)
class Recipe(RolloutOptions):
    """One run of any trainer: the options of a rollout and these.

    What it does not name is the same in every trainer: AdamW with `ADAM_BETAS`, without weight decay, at a
    constant learning rate, gradients cut to norm 1, PPO's clip at 0.2, one pass over the episodes of a
    step, no penalty, no bonus, no correction of log-probs.

    Attributes:
        env: Environments, as in `EnvChoice.parse`; in a file a single one may be a text.
        model: Hugging Face name or folder; in a file a folder is one beside it, or absolute.
        seed: Of the tasks, and of the trainer where it has one.
        estimator: A value of `TRAINER_NAMES`.
        estimator_options: Its options; for "rebn" also ``scope``, "collected" or "trained".
        gamma: Discount per turn.
        steps: Rounds of rollout and update.
        tasks_per_step: Tasks of a step.
        samples_per_task: Episodes of each.
        turns_per_step: For a trainer whose batch is a number of turns; None where no such one is meant.
        updates_per_step: Of the optimizer, each on an equal share of the episodes.
        max_tokens: Most tokens of an episode, prompt and observations included.
        learning_rate: Of the policy.
        temperature: Of sampling.
        template_kwargs: Variables for the chat template.
        gpus: Of one machine, shared by training and sampling.
    """

    env: tuple[str, ...] = ()
    model: str = ""
    seed: int = 0
    estimator: str = "rebn"
    estimator_options: dict[str, Any] = field(default_factory=dict)
    gamma: float = 1.0
    steps: int = 100
    tasks_per_step: int = 64
    samples_per_task: int = 1
    turns_per_step: int | None = None
    updates_per_step: int = 1
    max_tokens_per_turn: int = field(default=512, kw_only=True)
    max_tokens: int = 4096
    learning_rate: float = 1e-6
    temperature: float = 1.0
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    gpus: int = 1

    @classmethod
    def load(cls, path: str | Path) -> Recipe:
        """Read a file, JSON where its name ends with ``.json`` and YAML otherwise.

        Raises:
            ConfigError: It is neither, or as in `of`.
            MissingDependency: YAML without PyYAML.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
            given = json.loads(text) if Path(path).suffix == ".json" else _yaml(text)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None
        if not isinstance(given, dict):
            raise ConfigError(f"{path}: expected options with values, such as 'env: game:Mastermind-v0'")
        found = cls.of(given, f"{path}: ")
        folder = Path(path).parent / found.model
        return replace(found, model=str(folder.resolve())) if folder.is_dir() else found

    @classmethod
    def of(cls, given: Mapping[str, Any], prefix: str = "") -> Recipe:
        """Check what a file says.

        Args:
            given: Option to value.
            prefix: Before the name of an option, in messages.

        Raises:
            ConfigError: An unknown option, or a value that cannot be honoured.
            UnknownEnv: No such environment.
        """
        values = dict(given)
        if isinstance(values.get("env"), str):
            values["env"] = [values["env"]]
        if isinstance(values.get("env"), list):
            values["env"] = tuple(values["env"])
        for name in ("gamma", "learning_rate", "temperature", "step_timeout"):
            values |= {name: _number(values[name])} if name in values else {}
        for name in ("estimator_options", "template_kwargs"):
            values[name] = values.get(name) or {}
            if not isinstance(values[name], dict):
                raise ConfigError(f"{prefix}{name}: expected names with values, not {values[name]!r}")
        values["estimator_options"] = {name: _number(v) for name, v in values["estimator_options"].items()}
        return cls.read(values, prefix)

    def _check(self, prefix: str) -> None:
        super()._check(prefix)
        texts = isinstance(self.env, tuple) and all(isinstance(text, str) for text in self.env)
        if not self.env or not texts:
            shown = list(self.env) if isinstance(self.env, tuple) else self.env
            raise ConfigError(f"{prefix}env={shown!r}: expected at least one environment")
        if not self.model or not isinstance(self.model, str):
            raise ConfigError(f"{prefix}model={self.model!r}: expected a folder or the name of a model")
        for name in ("system_prompt", "wrappers", "traces", "model"):
            if "${" in (getattr(self, name) or ""):
                raise ConfigError(
                    f"{prefix}{name}: trainers that use OmegaConf would resolve ${{ as a reference"
                )
        self._check_numbers(prefix)
        self._check_estimator(prefix)
        self._check_shares(prefix)

    def _check_numbers(self, prefix: str) -> None:
        whole = ["steps", "tasks_per_step", "samples_per_task", "updates_per_step", "gpus", "max_tokens"]
        whole += ["max_tokens_per_turn", *(["turns_per_step"] if self.turns_per_step is not None else [])]
        for name, low in (("seed", 0), *((name, 1) for name in whole)):
            value = getattr(self, name)
            if type(value) is not int or value < low:
                raise ConfigError(f"{prefix}{name}={value!r}: expected a whole number of at least {low}")
        for name, high in (("gamma", 1), ("learning_rate", 1), ("temperature", 2)):
            value = getattr(self, name)
            if (
                not isinstance(value, float | int)
                or not 0 <= value <= high
                or (name != "gamma" and not value)
            ):
                limits = f"from 0 to {high}" if name == "gamma" else f"above 0, at most {high}"
                raise ConfigError(f"{prefix}{name}={value!r}: expected a number {limits}")

    def _check_estimator(self, prefix: str) -> None:
        known = list(TRAINER_NAMES.values())
        if self.estimator not in known:
            raise ConfigError(
                f"{prefix}estimator={self.estimator!r}.{suggest(str(self.estimator), known)} "
                f"Every trainer has {', '.join(known)}"
            )
        estimator = get_estimator(self.estimator)
        options = dict(self.estimator_options)
        if estimator.uses_stats and options.pop("scope", "collected") not in SCOPES:
            raise ConfigError(f"{prefix}estimator_options.scope: expected {' or '.join(SCOPES)}")
        estimator.check_options(options, prefix=f"{prefix}estimator_options.")
        for name, value in options.items():
            if not isinstance(value, float | int) or not math.isfinite(value):
                raise ConfigError(f"{prefix}estimator_options.{name}={value!r}: expected a number")
        if "group_ids" in estimator.needs and self.samples_per_task < 2:
            raise ConfigError(
                f"{prefix}estimator={self.estimator} compares the samples of a task: samples_per_task must "
                "be at least 2"
            )

    def _check_shares(self, prefix: str) -> None:
        if self.tasks_per_step % self.updates_per_step:
            raise ConfigError(
                f"{prefix}updates_per_step={self.updates_per_step} does not divide "
                f"tasks_per_step={self.tasks_per_step}"
            )
        if self.episodes_per_update % self.gpus:
            raise ConfigError(
                f"{prefix}gpus={self.gpus} does not divide the {self.episodes_per_update} episodes of an "
                "update"
            )

    @property
    def sources(self) -> list[EnvChoice]:
        """The environments with their arguments and weights."""
        return [EnvChoice.parse(text) for text in self.env]

    @property
    def episodes_per_step(self) -> int:
        """Over all tasks."""
        return self.tasks_per_step * self.samples_per_task

    @property
    def episodes_per_update(self) -> int:
        """Of the optimizer."""
        return self.episodes_per_step // self.updates_per_step

    @property
    def trainer_estimator(self) -> str:
        """Name of the estimator in a trainer that has some of its own."""
        return next(name for name, ours in TRAINER_NAMES.items() if ours == self.estimator)

    @property
    def changed_estimator_options(self) -> dict[str, Any]:
        """The options of the estimator that differ from its own defaults, ``scope`` included."""
        defaults = inspect.signature(get_estimator(self.estimator).reference()).parameters
        return {
            name: value
            for name, value in self.estimator_options.items()
            if value != ("collected" if name == "scope" else defaults[name].default)
        }

    def rollout_options(self) -> dict[str, Any]:
        """The options of `RolloutOptions` that are set; every trainer has a word for the one left out."""
        names = [item.name for item in fields(RolloutOptions) if item.name != "max_tokens_per_turn"]
        return self.changed(*names)

    def tasks(self) -> Iterator[TaskRow]:
        """One row a task of the whole run."""
        return make_tasks(self.sources, self.steps * self.tasks_per_step, seed=self.seed)

    def changed(self, *names: str) -> dict[str, Any]:
        """Those of these options whose values are not the defaults."""
        defaults = {item.name: item.default for item in fields(self)}
        defaults["template_kwargs"] = {}
        return {name: getattr(self, name) for name in names if getattr(self, name) != defaults[name]}

    def build_environments(self) -> None:
        """Make each environment once, with its wrappers.

        Raises:
            GemError: One cannot be made.
        """
        for source in self.sources:
            source.check_buildable(self.wrappers)

    def images(self, reason: str) -> dict[str, str]:
        """The argument of `reject_unsupported` when an environment shows images, rejected for `reason`.

        Raises:
            GemError: An environment cannot be made.
        """
        shown = [source.label for source in self.sources if source.check_buildable(self.wrappers)]
        return {"env": f"{shown[0]} shows images, and {reason}"} if shown else {}


def _number(value: Any) -> Any:
    """YAML reads 1e-6, without a point, as a text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _yaml(text: str) -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        raise MissingDependency(
            "reading YAML needs the package 'yaml': pip install pyyaml, or write the file as JSON"
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"no YAML: {error}") from None
