"""`Recipe`: a description of a run that does not depend on the trainer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from math import gcd
from pathlib import Path
from typing import Annotated, Any, ClassVar

from gem_chat._files import read_text
from gem_core._util.checks import check_names, check_number, defaults, expected
from gem_core._util.entry_points import is_file
from gem_core._util.options import Bounds, list_options
from gem_core.advantages import get_estimator, list_estimators
from gem_core.advantages._declaration import NEEDS
from gem_core.errors import ConfigError
from gem_core.rollout import RolloutOptions
from gem_core.rollout._limits import TokenLimit
from gem_core.rollout._options import read_object
from gem_core.tasks import EnvChoice, TaskRow, make_tasks
from gem_core.trainers._estimators import unknown_estimator
from gem_core.trainers._options import AdvantageOptions
from gem_lab._arguments import check_type
from gem_lab._options import RunOptions, TrainingOptions
from gem_lab.repro._yaml import parse_json, parse_yaml

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
class Recipe(TokenLimit, RolloutOptions, TrainingOptions, AdvantageOptions, RunOptions):
    """A run that any trainer can perform, including the options of a rollout.

    Everything else is the same in every trainer: AdamW with `ADAM_BETAS` and without weight decay, a constant
    learning rate, gradients clipped to norm 1, PPO clipping at 0.2, one pass over the episodes of a step, and
    no KL penalty, entropy bonus, or log-prob correction. The seed is that of the tasks, and of the trainer if
    it accepts one.
    """

    title: ClassVar = "recipe"

    model: Annotated[str, "Hugging Face name, or a folder, relative to the recipe"] = ""
    temperature: Annotated[float, Bounds(high=2, above=0)] = field(default=1.0, kw_only=True)
    learning_rate: Annotated[float, "constant learning rate of AdamW", Bounds(high=1, above=0)] = field(
        default=1e-6, kw_only=True
    )
    max_tokens_per_turn: Annotated[int, "maximum tokens per response"] = field(default=512, kw_only=True)
    max_total_tokens: Annotated[int, "maximum tokens per episode, prompts and observations included"] = field(
        default=4096, kw_only=True
    )
    critic_learning_rate: Annotated[
        float | None,
        "learning rate of the critic of gae (default: learning_rate)",
        Bounds(high=1, above=0),
    ] = None
    turns_per_step: Annotated[
        int | None, "turns per step, for a trainer whose batch size counts turns", Bounds(1)
    ] = None
    gpus: Annotated[int, "GPUs of one machine, shared by training and sampling", Bounds(1)] = 1

    @classmethod
    def load(cls, path: str | Path) -> Recipe:
        """Read a file: JSON if its name ends with ``.json``, otherwise YAML.

        Raises:
            ConfigError: The file has a different format, or `of` rejects its content.
            MissingDependency: The file is YAML, and PyYAML is not installed.
        """
        text = read_text(path)
        try:
            options = parse_json(text) if Path(path).suffix == ".json" else parse_yaml(text)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None
        if not isinstance(options, dict):
            raise ConfigError(f"{path}: expected options with values, such as 'env: game:Mastermind-v0'")
        return cls.of(options, f"{path}: ")._placed(Path(path).resolve().parent)

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
        check_type("options", options, Mapping, "such as {'model': 'm', 'env': ['game:Wordle-v0']}")
        values = dict(options)
        try:
            check_names(values, [item.name for item in fields(cls)])
        except ConfigError as error:
            raise ConfigError(f"{prefix}{error}") from None
        if isinstance(values.get("env"), str):
            values["env"] = [values["env"]]
        for option in list_options(cls):
            if option.kind is float and option.name in values:
                values[option.name] = _parse_number(values[option.name])
        values["estimator_options"] = {
            name: _parse_number(value)
            for name, value in read_object(
                values.get("estimator_options"), f"{prefix}estimator_options"
            ).items()
        }
        return cls.read(values, prefix)

    def _placed(self, folder: Path) -> Recipe:
        """Return the recipe with absolute paths of the files and folders that it names, relative to `folder`.

        The scripts of the trainers run in folders of their own.
        """
        found: dict[str, Any] = {"env": [_placed_env(text, folder) for text in self.env]}
        for name in ("model", "chat_template"):
            value = getattr(self, name)
            if value and "{" not in value and (folder / value).exists():
                found[name] = str((folder / value).resolve())
        return replace(self, **found)

    def _check(self, prefix: str) -> None:
        super()._check(prefix)
        if (
            not self.env
            or not isinstance(self.env, list)
            or not all(isinstance(one, str) for one in self.env)
        ):
            raise expected(f"{prefix}env", self.env, "at least one environment")
        if not self.model:
            raise expected(f"{prefix}model", self.model, "a folder or the name of a model")
        for option in list_options(type(self)):
            if "${" in json.dumps(getattr(self, option.name), default=str):
                raise ConfigError(
                    f"{prefix}{option.name}: trainers that use OmegaConf would resolve ${{ as a reference"
                )
        self._check_estimator(prefix)
        self._check_shares(prefix)

    def _check_estimator(self, prefix: str) -> None:
        if self.estimator not in list_estimators():
            raise unknown_estimator(f"{prefix}estimator", self.estimator, list_estimators())
        if self.critic_learning_rate is not None and not self.with_critic:
            raise ConfigError(f"{prefix}critic_learning_rate needs estimator={CRITIC_ESTIMATOR}")
        choice = self.read_estimator(prefix, supplies=(*NEEDS, "truncated"))
        for name, value in choice.options.items():
            if isinstance(choice.estimator.default(name), float | int):
                check_number(f"{prefix}estimator_options.{name}", value)
        choice.check_group_size(f"{prefix}group_size", self.group_size)

    def _check_shares(self, prefix: str) -> None:
        if self.episodes_per_step % (self.minibatches * self.group_size):
            raise ConfigError(
                f"{prefix}episodes_per_step={self.episodes_per_step}: expected a multiple of minibatches="
                f"{self.minibatches} times group_size={self.group_size}"
            )
        if self.episodes_per_update % self.gpus:
            raise ConfigError(
                f"{prefix}gpus={self.gpus} does not divide the {self.episodes_per_update} episodes of an "
                "update; choose a divisor"
            )

    @property
    def adam_betas(self) -> tuple[float, float]:
        """Decay rates of AdamW, the same in every run."""
        return ADAM_BETAS

    @property
    def total_tasks(self) -> int:
        """Number of tasks of the whole run."""
        return self.steps * self.tasks_per_step

    @property
    def tasks_per_step(self) -> int:
        """Number of tasks of a step."""
        return self.episodes_per_step // self.group_size

    @property
    def tasks_per_update(self) -> int:
        """Number of tasks of an optimizer update."""
        return self.tasks_per_step // self.minibatches

    @property
    def episodes_per_update(self) -> int:
        """Number of episodes of an optimizer update."""
        return self.episodes_per_step // self.minibatches

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
        estimator, ordinary = get_estimator(self.estimator), {"scope": "collected", "truncation": "keep"}
        return {
            name: value
            for name, value in self.estimator_options.items()
            if value != (ordinary[name] if name in ordinary else estimator.default(name))
        }

    def rollout_options(self) -> dict[str, Any]:
        """Return the changed `RolloutOptions`, except `max_tokens_per_turn` and `template_kwargs`."""
        apart = ("max_tokens_per_turn", "template_kwargs")
        return self.changed(*(item.name for item in fields(RolloutOptions) if item.name not in apart))

    def tasks(self) -> Iterator[TaskRow]:
        """Yield one row per task of the whole run."""
        return make_tasks(self.sources, self.total_tasks, seed=self.seed)

    def changed(self, *names: str) -> dict[str, Any]:
        """Return the named options whose values differ from the defaults."""
        ordinary = defaults(Recipe)
        return {name: getattr(self, name) for name in names if getattr(self, name) != ordinary[name]}

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


def _placed_env(text: str, folder: Path) -> str:
    """Return an environment with the absolute path of its file, if it is in one."""
    file, mark, rest = text.strip().partition(".py:")
    if mark and (folder / f"{file}.py").is_file():
        text = f"{folder / file}{mark}{rest}"
    choice = EnvChoice.parse(text)
    return f"{choice.text}={choice.weight:g}" if is_file(choice.env_id.partition(":")[0]) else text


def _parse_number(value: Any) -> Any:
    """Convert a string to a number if possible, because YAML reads 1e-6 (no decimal point) as a string."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
