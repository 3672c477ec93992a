"""`TrainConfig`: every option of the reference trainer, checked before any model is loaded."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from gem_core.advantages.registry import get_estimator
from gem_core.errors import ConfigError
from gem_core.registration import spec
from gem_core.rollout.limits import EpisodeLimits
from gem_core.tasks import EVAL_SEEDS, EnvChoice

TINY = "tiny"
"""Value of `model` for a tiny model that is made for the environments of the run."""

Schedule: TypeAlias = Literal["constant", "linear"]


@dataclass(frozen=True)
class TrainConfig(EpisodeLimits):
    """Options of a training run; the command line has a flag for each field.

    Raises:
        ConfigError: A value is out of range, or two values are incompatible.
        UnknownEnv: An environment does not exist.
        UnknownName: The estimator does not exist.
    """

    # model and environments
    model: Annotated[str, "Hugging Face folder or name; 'tiny' makes one for these environments"] = TINY
    agent_model: Annotated[
        list[str] | None, "AGENT=MODEL: separate weights for an agent of a multi-agent game"
    ] = None
    out: Annotated[str, "folder for the run"] = "runs/train"
    env: Annotated[list[str], "environment: ID, 'ID(key=value)', or either with =WEIGHT for a mix"] = field(
        default_factory=lambda: ["game:GuessTheNumber-v0-easy"]
    )
    eval_env: Annotated[list[str] | None, "environment for evaluation; none: the training environments"] = (
        None
    )
    wrappers: Annotated[str, "wrappers for each environment, such as 'time_limit(max_turns=5)'"] = ""
    # advantages
    estimator: Annotated[str, "rebn, reinforce, grpo, rloo, gae (PPO), or a registered estimator"] = "rebn"
    gamma: Annotated[float, "discount per turn"] = 1.0
    lam: Annotated[float, "gae: lambda, per turn"] = 0.95
    zero_advantages: Annotated[bool, "set every advantage to 0, as a negative control"] = False
    # rollouts
    steps: Annotated[int, "rounds of rollout and update"] = 120
    episodes_per_step: Annotated[int, "episodes per step"] = 512
    group_size: Annotated[int, "episodes that share a seed; grpo and rloo need at least 2"] = 1
    max_tokens_per_turn: Annotated[int, "maximum tokens per response"] = field(default=32, kw_only=True)
    max_total_tokens: Annotated[int | None, "maximum tokens per episode; none: what the model allows"] = None
    temperature: Annotated[float, "sampling temperature, in training and evaluation"] = 1.0
    max_batch: Annotated[int, "maximum number of episodes sampled at once"] = 512
    # update
    lr: Annotated[float | None, "learning rate of AdamW; none: 3e-3 for 'tiny', 1e-5 for others"] = None
    lr_schedule: Annotated[Schedule, "'constant', or 'linear' down to lr_end"] = "linear"
    lr_end: Annotated[float, "final fraction of lr in the linear schedule"] = 0.1
    warmup_steps: Annotated[int, "steps over which the learning rate rises from 0"] = 10
    weight_decay: Annotated[float, "weight decay of AdamW"] = 0.0
    adam_beta2: Annotated[float, "second beta of AdamW"] = 0.99
    max_grad_norm: Annotated[float, "gradients are clipped to this norm"] = 1.0
    epochs: Annotated[int, "passes over the episodes of a step"] = 1
    minibatches: Annotated[int, "updates per pass"] = 4
    clip: Annotated[float, "clip range of PPO, used if a step makes several updates"] = 0.2
    loss_scale: Annotated[Literal["token-mean", "turn-mean"], "'token-mean' or 'turn-mean'"] = "token-mean"
    entropy: Annotated[float, "weight of the entropy bonus; falls linearly to 0 over the run"] = 0.0
    kl: Annotated[float, "weight of the KL to the first model; falls linearly to 0 over the run"] = 0.3
    value_weight: Annotated[float, "gae: weight of the critic's loss"] = 0.5
    max_tokens_per_pass: Annotated[
        int, "maximum tokens per forward pass of the update, including padding"
    ] = 32768
    # run
    eval_episodes: Annotated[int, "evaluation seeds played before and after training; 0 for none"] = 1000
    save_every: Annotated[int, "steps between checkpoints; the last step is always saved"] = 50
    keep_checkpoints: Annotated[int, "number of checkpoints to keep"] = 2
    trace_every: Annotated[int, "steps between traces of training episodes; 0 for none"] = 25
    trace_episodes: Annotated[int, "episodes per trace"] = 16
    resume: Annotated[
        bool, "continue from the newest checkpoint in the folder, or start over and replace it"
    ] = True
    seed: Annotated[int, "random seed"] = 0
    device: Annotated[str, "'cpu', 'cuda', 'cuda:1', or 'auto'"] = "auto"
    dtype: Annotated[Literal["float32", "bfloat16"], "type of the weights: 'float32' or 'bfloat16'"] = (
        "float32"
    )
    threads: Annotated[int, "torch threads; 0 for torch's default"] = 0
    tensorboard: Annotated[bool, "write TensorBoard events"] = False
    wandb: Annotated[str, "Weights & Biases project to report to; needs wandb"] = ""

    def __post_init__(self) -> None:
        for name, given in (
            ("env", self.env),
            ("eval_env", self.env if self.eval_env is None else self.eval_env),
        ):
            if not given or not isinstance(given, list | tuple):
                raise ConfigError(
                    f"{name} must be a list of at least one environment, such as ['game:Mastermind-v0=2'], "
                    f"not {given!r}"
                )
        for sources in (self.sources, self.eval_sources):
            labels = [source.label for source in sources]
            for source in sources:
                spec(source.env_id)
                if labels.count(source.label) > 1:
                    raise ConfigError(f"{source.label} is given twice; name it once and give it a weight")
        for text in self.agent_model or ():
            agent, _, model = text.partition("=")
            if not re.fullmatch(r"[\w.-]*\w", agent) or not model:
                raise ConfigError(f"agent_model={text!r}: expected AGENT=MODEL, such as user=tiny")
        if len(self.agent_models) < len(self.agent_model or ()):
            raise ConfigError(f"agent_model={self.agent_model!r} names an agent twice")
        get_estimator(self.estimator)
        self._check_numbers()
        if self.needs_groups and self.group_size < 2:
            raise ConfigError(
                f"{self.estimator} compares the episodes of a group: group_size must be at least 2, "
                f"not {self.group_size}"
            )
        if self.episodes_per_step % self.group_size:
            raise ConfigError(
                f"episodes_per_step={self.episodes_per_step} is not a multiple of "
                f"group_size={self.group_size}"
            )
        if self.minibatches > self.episodes_per_step:
            raise ConfigError(
                f"minibatches={self.minibatches} is more than episodes_per_step={self.episodes_per_step}"
            )
        if self.eval_episodes > len(EVAL_SEEDS):
            raise ConfigError(f"eval_episodes must be at most {len(EVAL_SEEDS)}, not {self.eval_episodes}")

    def _check_numbers(self) -> None:
        for names, low, high in (
            (("steps", "episodes_per_step", "group_size", "max_tokens_per_turn", "max_batch"), 1, None),
            (("epochs", "minibatches", "save_every", "keep_checkpoints", "trace_episodes"), 1, None),
            (("max_total_tokens", "max_tokens_per_pass"), 1, None),
            (("warmup_steps", "eval_episodes", "trace_every", "seed", "threads"), 0, None),
            (("entropy", "kl", "value_weight", "weight_decay"), 0, None),
            (("gamma", "lam", "lr_end"), 0, 1),
            (("adam_beta2",), 0, 1 - 1e-9),
        ):
            for name in names:
                value = getattr(self, name)
                if value is None:
                    continue
                if not math.isfinite(value) or value < low or (high is not None and value > high):
                    limits = f"at least {low}" if high is None else f"from {low} to {high}"
                    raise ConfigError(f"{name} must be {limits}, not {value}")
        for name in ("temperature", "learning_rate", "max_grad_norm", "clip"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name} must be above 0, not {value}")
        self.check_limits()
        for name, choices in (
            ("lr_schedule", ("constant", "linear")),
            ("loss_scale", ("token-mean", "turn-mean")),
            ("dtype", ("float32", "bfloat16")),
        ):
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}")

    @property
    def learning_rate(self) -> float:
        """Value of `lr`, or the default for the kind of model."""
        if self.lr is not None:
            return self.lr
        return 3e-3 if self.model == TINY else 1e-5

    @property
    def agent_models(self) -> dict[str, str]:
        """Models of the agents with separate weights, by agent."""
        pairs = (text.partition("=") for text in self.agent_model or ())
        return {agent: model for agent, _, model in pairs}

    @property
    def sources(self) -> list[EnvChoice]:
        """Environments of `env`, with their arguments and weights."""
        return [EnvChoice.parse(text) for text in self.env]

    @property
    def eval_sources(self) -> list[EnvChoice]:
        """Environments of `eval_env`, or the training environments if it is None."""
        return [EnvChoice.parse(text) for text in self.eval_env or self.env]

    @property
    def needs_groups(self) -> bool:
        """Whether the estimator compares episodes that share a seed."""
        return "group_ids" in get_estimator(self.estimator).needs

    @property
    def needs_critic(self) -> bool:
        """Whether the estimator needs a critic's values."""
        return "values" in get_estimator(self.estimator).needs

    def to_dict(self) -> dict[str, Any]:
        """Return the options as JSON-serializable data."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def differences(self, recorded: Mapping[str, Any]) -> list[str]:
        """Return the fields whose values would make a resumed run differ from the recorded one."""
        free = {"out", "resume", "save_every", "keep_checkpoints"}
        free |= {"tensorboard", "wandb", "threads", "device"}
        mine = self.to_dict().items()
        return [name for name, value in mine if name not in free and recorded.get(name) != value]

    def prepare_folder(self) -> Path:
        """Create the folder of the run and check that it is writable.

        Raises:
            ConfigError: The folder cannot be created or written.
        """
        folder = Path(self.out)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / f".probe-{os.getpid()}"
            probe.write_text("")
            probe.unlink()
        except OSError as error:
            raise ConfigError(f"the folder {folder} cannot be written: {error.strerror}") from error
        return folder
