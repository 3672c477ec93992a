"""`Recipe`: a description of a run that does not depend on the trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from math import gcd
from pathlib import Path
from typing import Any

from gem_core._util.checks import check_choice, check_int, check_number, expected
from gem_core._util.foreign_json import read_json
from gem_core._util.messages import unknown
from gem_core.advantages.registry import (
    SCOPES,
    TRUNCATIONS,
    get_estimator,
    list_estimators,
)
from gem_core.errors import ConfigError
from gem_core.rollout import RolloutOptions
from gem_core.tasks import EnvChoice, TaskRow, make_tasks
from gem_lab.repro.yaml import parse_yaml

CRITIC_ESTIMATOR = "gae"
"""The estimator that needs a critic."""
WHITENED = (
    "The advantages of gae are whitened over the tokens of the responses, which not every trainer does."
)
ADAM_BETAS = (0.9, 0.999)
"""Decay rates of AdamW. These are PyTorch's defaults, because not every trainer has an option for them."""


def reject_unsupported(trainer: str, reasons: Mapping[str, str]) -> None:
    """Raise an error if there are options for which a trainer has no equivalent.

    Args:
        trainer: Name of the trainer.
        reasons: Maps the name of each such option to the reason.

    Raises:
        ConfigError: `reasons` is not empty.
    """
    if reasons:
        options = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise ConfigError(f"{trainer} cannot run this recipe: {options}")


@dataclass(frozen=True)
class Recipe(RolloutOptions):
    """A run that any trainer can perform, including the options of a rollout.

    Everything else is the same in every trainer: AdamW with `ADAM_BETAS` and without weight decay, a constant
    learning rate, gradients clipped to norm 1, PPO clipping at 0.2, one pass over the episodes of a step, and
    no KL penalty, entropy bonus, or log-prob correction.

    Attributes:
        env: Environments, as in `EnvChoice.parse`. In a file, a single environment may be a plain string.
        model: Hugging Face name or folder. In a file, a relative path is relative to the folder of the file.
        seed: Random seed for the tasks, and for the trainer if it accepts one.
        estimator: Name of a registered advantage estimator; "gae" needs a critic.
        estimator_options: Options of the estimator, and ``truncation``, "keep" or "mask"; "rebn" also has
            ``scope``, "collected" or "trained".
        gamma: Discount per turn, from 0 to 1.
        steps: Number of rounds of rollout and update.
        tasks_per_step: Number of tasks per step.
        samples_per_task: Number of episodes per task.
        turns_per_step: Number of turns per step, for trainers whose batch size counts turns. None if the
            recipe is not intended for such trainers.
        updates_per_step: Number of optimizer updates per step, each on an equal share of the episodes.
        max_tokens: Maximum number of tokens of an episode, including prompt and observations.
        learning_rate: Learning rate of the policy.
        critic_learning_rate: Learning rate of the critic of "gae"; None uses `learning_rate`.
        temperature: Sampling temperature.
        template_kwargs: Variables for the chat template.
        gpus: Number of GPUs, all in one machine and shared by training and sampling.
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
    critic_learning_rate: float | None = None
    temperature: float = 1.0
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    gpus: int = 1

    @classmethod
    def load(cls, path: str | Path) -> Recipe:
        """Read a file: JSON if its name ends with ``.json``, otherwise YAML.

        Raises:
            ConfigError: The file has a different format, or `of` rejects its content.
            MissingDependency: The file is YAML, and PyYAML is not installed.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
            options = read_json(text) if Path(path).suffix == ".json" else parse_yaml(text)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None
        if not isinstance(options, dict):
            raise ConfigError(f"{path}: expected options with values, such as 'env: game:Mastermind-v0'")
        recipe = cls.of(options, f"{path}: ")
        folder = Path(path).parent / recipe.model
        return replace(recipe, model=str(folder.resolve())) if folder.is_dir() else recipe

    @classmethod
    def of(cls, options: Mapping[str, Any], prefix: str = "") -> Recipe:
        """Return a recipe with the options read from a file.

        Args:
            options: Maps the name of each option to its value.
            prefix: Text before the name of an option in messages.

        Raises:
            ConfigError: An option is unknown, or a value is not allowed.
            UnknownEnv: An environment does not exist.
        """
        values = dict(options)
        if isinstance(values.get("env"), str):
            values["env"] = [values["env"]]
        if isinstance(values.get("env"), list):
            values["env"] = tuple(values["env"])
        for name in ("gamma", "learning_rate", "critic_learning_rate", "temperature", "step_timeout"):
            values |= {name: _parse_number(values[name])} if name in values else {}
        for name in ("estimator_options", "template_kwargs"):
            values[name] = values.get(name) or {}
            if not isinstance(values[name], dict):
                raise expected(f"{prefix}{name}", values[name], "names with values")
        values["estimator_options"] = {
            name: _parse_number(value) for name, value in values["estimator_options"].items()
        }
        return cls.read(values, prefix)

    def _check(self, prefix: str) -> None:
        super()._check(prefix)
        texts = isinstance(self.env, tuple) and all(isinstance(text, str) for text in self.env)
        if not self.env or not texts:
            choices = list(self.env) if isinstance(self.env, tuple) else self.env
            raise expected(f"{prefix}env", choices, "at least one environment")
        if not self.model or not isinstance(self.model, str):
            raise expected(f"{prefix}model", self.model, "a folder or the name of a model")
        for name in ("system_prompt", "wrappers", "traces", "model"):
            if "${" in (getattr(self, name) or ""):
                raise ConfigError(
                    f"{prefix}{name}: trainers that use OmegaConf would resolve ${{ as a reference"
                )
        self._check_numbers(prefix)
        self._check_estimator(prefix)
        self._check_shares(prefix)

    def _check_numbers(self, prefix: str) -> None:
        check_int(f"{prefix}seed", self.seed, 0)
        for name in ("steps", "tasks_per_step", "samples_per_task", "updates_per_step", "gpus", "max_tokens"):
            check_int(f"{prefix}{name}", getattr(self, name), 1)
        check_int(f"{prefix}max_tokens_per_turn", self.max_tokens_per_turn, 1)
        check_int(f"{prefix}turns_per_step", self.turns_per_step, 1, optional=True)
        check_number(f"{prefix}gamma", self.gamma, 0, 1)
        check_number(f"{prefix}learning_rate", self.learning_rate, above=0, high=1)
        check_number(
            f"{prefix}critic_learning_rate", self.critic_learning_rate, above=0, high=1, optional=True
        )
        check_number(f"{prefix}temperature", self.temperature, above=0, high=2)

    def _check_estimator(self, prefix: str) -> None:
        if self.estimator not in list_estimators():
            raise ConfigError(f"{prefix}{unknown('estimator', str(self.estimator), list_estimators())}")
        if self.critic_learning_rate is not None and not self.with_critic:
            raise ConfigError(f"{prefix}critic_learning_rate needs estimator={CRITIC_ESTIMATOR}")
        estimator = get_estimator(self.estimator)
        options = dict(self.estimator_options)
        if estimator.collected_stats:
            check_choice(f"{prefix}estimator_options.scope", options.pop("scope", "collected"), SCOPES)
        check_choice(f"{prefix}estimator_options.truncation", options.pop("truncation", "keep"), TRUNCATIONS)
        estimator.check_options(options, prefix=f"{prefix}estimator_options.")
        for name, value in options.items():
            if isinstance(estimator.default(name), float | int):
                check_number(f"{prefix}estimator_options.{name}", value)
        if "group_ids" in estimator.needs_with(options) and self.samples_per_task < 2:
            raise ConfigError(
                f"{prefix}estimator={self.estimator} compares the samples of a task: samples_per_task must "
                "be at least 2"
            )

    def _check_shares(self, prefix: str) -> None:
        if self.tasks_per_step % self.updates_per_step:
            raise ConfigError(
                f"{prefix}updates_per_step={self.updates_per_step} does not divide "
                f"tasks_per_step={self.tasks_per_step}; choose a divisor"
            )
        if self.episodes_per_update % self.gpus:
            raise ConfigError(
                f"{prefix}gpus={self.gpus} does not divide the {self.episodes_per_update} episodes of an "
                "update; choose a divisor"
            )

    @property
    def sources(self) -> list[EnvChoice]:
        """Environments with their arguments and weights."""
        return [EnvChoice.parse(text) for text in self.env]

    @property
    def adam_betas(self) -> tuple[float, float]:
        """Decay rates of AdamW, the same in every run."""
        return ADAM_BETAS

    @property
    def total_tasks(self) -> int:
        """Number of tasks of the whole run."""
        return self.steps * self.tasks_per_step

    @property
    def tasks_per_update(self) -> int:
        """Number of tasks of an optimizer update."""
        return self.tasks_per_step // self.updates_per_step

    @property
    def episodes_per_step(self) -> int:
        """Number of episodes of a step."""
        return self.tasks_per_step * self.samples_per_task

    @property
    def episodes_per_update(self) -> int:
        """Number of episodes of an optimizer update."""
        return self.episodes_per_step // self.updates_per_step

    @property
    def episodes_per_gpu(self) -> int:
        """Number of episodes of an optimizer update on each GPU."""
        return self.episodes_per_update // self.gpus

    def micro_batch(self, largest: int = 4) -> int:
        """Return a size of at most `largest`, a power of 2, that divides the episodes of a GPU."""
        return gcd(self.episodes_per_gpu, largest)

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches of the default size of an optimizer update on each GPU."""
        return self.episodes_per_gpu // self.micro_batch()

    @property
    def with_critic(self) -> bool:
        """Whether the estimator needs a critic."""
        return self.estimator == CRITIC_ESTIMATOR

    @property
    def critic_notes(self) -> list[str]:
        """Difference of a trainer that whitens the advantages of "gae", for the notes of its script."""
        return [WHITENED] if self.with_critic else []

    @property
    def critic_rate(self) -> float:
        """Learning rate of the critic."""
        return self.critic_learning_rate or self.learning_rate

    @property
    def trainer_estimator(self) -> str:
        """Name of the estimator in the config of a trainer that also has built-in estimators."""
        return get_estimator(self.estimator).trainer_name

    @property
    def changed_estimator_options(self) -> dict[str, Any]:
        """Options of the estimator that differ from the defaults, including ``scope`` and ``truncation``."""
        estimator, defaults = get_estimator(self.estimator), {"scope": "collected", "truncation": "keep"}
        return {
            name: value
            for name, value in self.estimator_options.items()
            if value != (defaults[name] if name in defaults else estimator.default(name))
        }

    def rollout_options(self) -> dict[str, Any]:
        """Return the changed options of `RolloutOptions`, except `max_tokens_per_turn`."""
        names = [item.name for item in fields(RolloutOptions) if item.name != "max_tokens_per_turn"]
        return self.changed(*names)

    def tasks(self) -> Iterator[TaskRow]:
        """Yield one row per task of the whole run."""
        return make_tasks(self.sources, self.total_tasks, seed=self.seed)

    def changed(self, *names: str) -> dict[str, Any]:
        """Return the named options whose values differ from the defaults."""
        defaults = {item.name: item.default for item in fields(self)}
        defaults["template_kwargs"] = {}
        return {name: getattr(self, name) for name in names if getattr(self, name) != defaults[name]}

    def build_environments(self) -> None:
        """Build each environment once, with its wrappers, so that mistakes are reported early.

        Servers need not answer, because the run may take place on another machine.

        Raises:
            GemError: An environment cannot be built.
        """
        for source in self.sources:
            source.check_buildable(self.wrappers, services=False)

    def critic(self) -> dict[str, str]:
        """Return an entry for `reject_unsupported` if the estimator needs a critic."""
        reason = f"{self.estimator} needs a critic, and recipes set up none for this trainer"
        return {"estimator": reason} if self.with_critic else {}

    def images(self, reason: str) -> dict[str, str]:
        """Return an entry for `reject_unsupported` if an environment shows images.

        Args:
            reason: Why the trainer cannot show images.

        Raises:
            GemError: An environment cannot be built.
        """
        visual = [
            source.label for source in self.sources if source.check_buildable(self.wrappers, services=False)
        ]
        return {"env": f"{visual[0]} shows images, but {reason}"} if visual else {}


def _parse_number(value: Any) -> Any:
    """Convert a string to a number if possible, because YAML reads 1e-6 (no decimal point) as a string."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
