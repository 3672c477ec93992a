"""`TrainConfig`: every option of the reference trainer, checked before any model is loaded."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from gem_core._util.checks import defaults, expected
from gem_core._util.options import Bounds, check_options
from gem_core._util.urls import data_without_secrets
from gem_core.advantages._registry import Supply
from gem_core.errors import ConfigError
from gem_core.rollout import EpisodeLimits
from gem_core.rollout._limits import TokenLimit
from gem_core.rollout._options import ContextOptions
from gem_core.tasks import EVAL_SEEDS, EnvChoice
from gem_core.trainers import EstimatorChoice
from gem_core.trainers._options import AdvantageOptions
from gem_lab._options import LocalOptions, RunOptions, TrainingOptions, check_envs, check_path

TINY = "tiny"
"""Value of `model` for a tiny model that is created for the environments of the run."""

Schedule: TypeAlias = Literal["constant", "linear"]
LossScale: TypeAlias = Literal["token-mean", "turn-mean"]
CriticKind: TypeAlias = Literal["head", "model"]
Dtype: TypeAlias = Literal["float32", "bfloat16"]

SUPPLIES: tuple[Supply, ...] = (
    "group_ids", "env_ids", "agent_ids", "baselines", "values", "lengths", "state_keys", "reward_components",
    "truncated",
)  # fmt: skip
"""Inputs that this trainer supplies to estimators besides rewards and mask."""


@dataclass(frozen=True, kw_only=True)
class UpdateOptions:
    """The loss and the optimizer."""

    title: ClassVar = "update"

    learning_rate_schedule: Annotated[Schedule, "constant, or linear down to learning_rate_end"] = "linear"
    learning_rate_end: Annotated[float, "last learning rate, as a share of learning_rate", Bounds(0, 1)] = 0.1
    warmup_steps: Annotated[int, "steps of linear learning rate warmup from 0", Bounds(0)] = 10
    weight_decay: Annotated[float, "weight decay of AdamW", Bounds(0)] = 0.0
    adam_beta2: Annotated[float, "second beta of AdamW", Bounds(0)] = 0.99
    max_grad_norm: Annotated[float, "maximum gradient norm, for clipping", Bounds(above=0)] = 1.0
    epochs: Annotated[int, "passes over the episodes of a step", Bounds(1)] = 1
    clip: Annotated[float, "PPO clip range, used if a step has several updates", Bounds(above=0)] = 0.2
    loss_scale: Annotated[LossScale, "how the loss is averaged"] = "token-mean"
    entropy: Annotated[float, "weight of the entropy bonus, annealed to 0", Bounds(0)] = 0.0
    kl: Annotated[float, "weight of the KL divergence from the first model, annealed to 0", Bounds(0)] = 0.3
    value_weight: Annotated[float, "weight of the critic's loss, for gae", Bounds(0)] = 0.5
    critic: Annotated[CriticKind, "critic of gae: a head on the policy, or a model of its own"] = "head"
    critic_warmup: Annotated[int, "first steps in which gae trains only the critic", Bounds(0)] = 0
    zero_advantages: Annotated[bool, "set every advantage to 0, as a negative control"] = False
    dtype: Annotated[Dtype, "data type of the weights"] = "float32"
    autocast: Annotated[bool, "compute matrix products in bfloat16 and keep the weights in float32"] = False
    max_tokens_per_pass: Annotated[int, "maximum tokens per forward pass, with padding", Bounds(1)] = 32768


@dataclass(frozen=True, kw_only=True)
class TrainConfig(
    TokenLimit,
    EpisodeLimits,
    ContextOptions,
    LocalOptions,
    UpdateOptions,
    TrainingOptions,
    AdvantageOptions,
    RunOptions,
):
    """Options of a training run; the command line has a flag for each field.

    Raises:
        ConfigError: A value is out of range, or two values are incompatible.
        UnknownEnv: An environment does not exist.
    """

    title: ClassVar = "evaluation and records"

    model: Annotated[str, "Hugging Face folder or name, or 'tiny' for one made for the environments"] = TINY
    agent_model: Annotated[list[str] | None, "separate weights for agents of a multi-agent environment"] = (
        None
    )
    env: list[str] = field(default_factory=lambda: ["game:GuessTheNumber-v0-easy"])
    out: str = "runs/train"
    steps: int = 120
    episodes_per_step: int = 512
    minibatches: int = 4
    max_tokens_per_turn: int = 32
    eval_env: Annotated[list[str] | None, "evaluation environments (default: those of env)"] = None
    eval_episodes: Annotated[
        int,
        "episodes per environment before and after training, at most one per held-out item; 0 for none",
        Bounds(0, len(EVAL_SEEDS)),
    ] = 1000
    eval_every: Annotated[int, "steps between evaluations; 0 for before and after only", Bounds(0)] = 0
    save_every: Annotated[int, "steps between checkpoints; the last step is always saved", Bounds(1)] = 50
    keep_checkpoints: Annotated[int, "number of checkpoints to keep", Bounds(1)] = 2
    trace_every: Annotated[int, "steps between traces of training episodes; 0 for none", Bounds(0)] = 25
    trace_episodes: Annotated[int, "episodes per trace", Bounds(1)] = 16
    curve: Annotated[bool, "draw the learning curve, curve.png, after the last step"] = True
    resume: Annotated[bool, "continue from the newest checkpoint, or replace the run (--no-resume)"] = True
    tensorboard: Annotated[bool, "write TensorBoard events"] = False
    wandb: Annotated[str, "Weights & Biases project to log to; requires wandb"] = ""

    def __post_init__(self) -> None:
        check_options(self)
        self.check_harness(self.harness)
        self._check_environments()
        self.choice.check_group_size("group_size", self.group_size)
        if not self.needs_critic:
            for name in ("critic", "critic_warmup"):
                if getattr(self, name) != getattr(TrainConfig, name):
                    raise ConfigError(f"{name} has no effect, because {self.estimator} has no critic")
        if self.episodes_per_step % self.group_size:
            raise expected(
                "episodes_per_step", self.episodes_per_step, f"a multiple of group_size={self.group_size}"
            )
        if self.minibatches > self.episodes_per_step:
            raise expected(
                "minibatches", self.minibatches, f"at most episodes_per_step={self.episodes_per_step}"
            )
        if self.adam_beta2 >= 1:
            raise expected("adam_beta2", self.adam_beta2, "a number below 1")
        if self.autocast and self.dtype != "float32":
            raise ConfigError(
                f"autocast keeps the weights in float32, not in dtype={self.dtype}; use one of the two"
            )

    def _check_environments(self) -> None:
        check_envs(env=self.env, eval_env=self.env if self.eval_env is None else self.eval_env)
        for text in self.agent_model or ():
            agent, _, model = text.partition("=")
            if not re.fullmatch(r"[\w.-]*\w", agent) or not model:
                raise expected("agent_model", text, "AGENT=MODEL, such as user=tiny")
        if len(self.agent_models) < len(self.agent_model or ()):
            raise expected("agent_model", self.agent_model, "each agent at most once")

    @functools.cached_property
    def choice(self) -> EstimatorChoice:
        """The estimator with its options."""
        return self.read_estimator(supplies=SUPPLIES)

    @property
    def peak_learning_rate(self) -> float:
        """Value of `learning_rate`, or the default for the kind of model."""
        if self.learning_rate is not None:
            return self.learning_rate
        return 3e-3 if self.model == TINY else 1e-5

    @property
    def agent_models(self) -> dict[str, str]:
        """Models of the agents with separate weights, by agent."""
        pairs = (text.partition("=") for text in self.agent_model or ())
        return {agent: model for agent, _, model in pairs}

    @property
    def eval_sources(self) -> list[EnvChoice]:
        """Environments of `eval_env`, or the training environments if it is None."""
        return [EnvChoice.parse(text) for text in self.eval_env or self.env]

    @property
    def needs_critic(self) -> bool:
        """Whether the estimator needs a critic's values."""
        return "values" in self.choice.needs

    def to_dict(self) -> dict[str, Any]:
        """Return the options as JSON-serializable data, with URLs without passwords and keys."""
        options = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: data_without_secrets(value) for name, value in options.items()}

    def differences(self, recorded: Mapping[str, Any]) -> list[str]:
        """Return the options with which a resumed run would differ from the recorded one.

        An option that the record lacks had its default. One that only the record has, because another version
        wrote it, may have any effect.
        """
        free = {"out", "resume", "save_every", "keep_checkpoints"}
        free |= {"curve", "tensorboard", "wandb", "threads", "device"}
        mine, then = self.to_dict(), {**defaults(TrainConfig), **recorded}
        changed = [name for name, value in mine.items() if name not in free and then[name] != value]
        return changed + [f"{name}, which this version lacks" for name in then if name not in mine]

    def prepare_folder(self) -> Path:
        """Create the folder of the run and check that it is writable.

        Raises:
            ConfigError: The folder cannot be created or written, or its path is not UTF-8.
        """
        check_path("out", self.out)
        folder = Path(self.out)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / f".probe-{os.getpid()}"
            probe.write_text("")
            probe.unlink()
        except OSError as error:
            raise ConfigError(f"the folder {folder} cannot be written: {error.strerror}") from error
        return folder
