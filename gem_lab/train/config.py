"""`TrainConfig`: every option of the reference trainer, checked before any model is loaded."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from gem_core._util.checks import check_choice, check_int, check_number, check_path, defaults, expected
from gem_core._util.urls import data_without_secrets
from gem_core.advantages.declaration import Need
from gem_core.advantages.registry import TRUNCATIONS, Supply, Truncation, get_estimator
from gem_core.errors import ConfigError
from gem_core.registration import spec
from gem_core.rollout.limits import EpisodeLimits
from gem_core.tasks import EVAL_SEEDS, EnvChoice, check_labels

TINY = "tiny"
"""Value of `model` for a tiny model that is created for the environments of the run."""

Schedule: TypeAlias = Literal["constant", "linear"]
LossScale: TypeAlias = Literal["token-mean", "turn-mean"]
CriticKind: TypeAlias = Literal["head", "model"]
ContextKind: TypeAlias = Literal["append", "rebuild"]
Dtype: TypeAlias = Literal["float32", "bfloat16"]

_FROM_ONE = (
    "steps", "episodes_per_step", "group_size", "max_tokens_per_turn", "max_batch", "epochs", "minibatches",
    "max_tokens_per_pass", "save_every", "keep_checkpoints", "trace_episodes",
)  # fmt: skip
"""Options that are whole numbers of at least 1."""

SUPPLIES: tuple[Supply, ...] = (
    "group_ids", "env_ids", "agent_ids", "baselines", "values", "lengths", "state_keys", "reward_components",
    "truncated",
)  # fmt: skip
"""Inputs that this trainer supplies to estimators besides rewards and mask."""


@dataclass(frozen=True)
class TrainConfig(EpisodeLimits):
    """Options of a training run; the command line has a flag for each field.

    Raises:
        ConfigError: A value is out of range, or two values are incompatible.
        UnknownEnv: An environment does not exist.
        UnknownName: The estimator does not exist.
    """

    # model and environments
    model: Annotated[
        str, "Hugging Face folder or name, or 'tiny' to create a tiny model for these environments"
    ] = TINY
    agent_model: Annotated[list[str] | None, "separate weights for agents of a multi-agent environment"] = (
        None
    )
    out: Annotated[str, "folder for the run"] = "runs/train"
    env: Annotated[
        list[str], "training environment, or several for a mix (default game:GuessTheNumber-v0-easy)"
    ] = field(default_factory=lambda: ["game:GuessTheNumber-v0-easy"])
    eval_env: Annotated[list[str] | None, "evaluation environments (default: the training environments)"] = (
        None
    )
    wrappers: Annotated[str, "wrappers for each environment, such as 'time_limit(max_turns=5)'"] = ""
    context: Annotated[
        ContextKind, "'append' messages to the prompt, or 'rebuild' each prompt from the latest observation"
    ] = "append"
    chat_template: Annotated[
        str | None, "file with a chat template, or Jinja text, instead of the tokenizer's own template"
    ] = None
    date: Annotated[
        str | None, "day that the chat template takes for today, such as 2026-01-31; the real one if not set"
    ] = None
    parse_special: Annotated[
        bool, "text of an environment that spells a special token, such as <|im_end|>, becomes that token"
    ] = False
    # advantages
    estimator: Annotated[
        str, "advantage estimator: rebn, reinforce, grpo, rloo, gae (PPO), or a registered one"
    ] = "rebn"
    estimator_options: Annotated[
        dict[str, Any], 'options of the estimator, such as \'{"weight": "episode"}\''
    ] = field(default_factory=dict)
    gamma: Annotated[float, "discount factor per turn"] = 1.0
    lam: Annotated[float, "lambda of gae, per turn"] = 0.95
    truncation: Annotated[
        Truncation, "truncated episodes: 'keep' treats them as terminated, 'mask' gives them no advantage"
    ] = "keep"
    zero_advantages: Annotated[bool, "set every advantage to 0, as a negative control"] = False
    # rollouts
    steps: Annotated[int, "rounds of rollout and update"] = 120
    episodes_per_step: Annotated[int, "episodes per step"] = 512
    group_size: Annotated[int, "episodes that share a seed; grpo and rloo need at least 2"] = 1
    max_tokens_per_turn: Annotated[int, "maximum tokens per response"] = field(default=32, kw_only=True)
    max_total_tokens: Annotated[int | None, "maximum tokens per episode (default: the model's context)"] = (
        None
    )
    temperature: Annotated[float, "sampling temperature, in training and evaluation"] = 1.0
    max_batch: Annotated[int, "maximum episodes sampled at once"] = 512
    # update
    lr: Annotated[float | None, "learning rate of AdamW (default: 3e-3 for 'tiny', else 1e-5)"] = None
    lr_schedule: Annotated[Schedule, "keep lr constant, or lower it linearly to lr_end"] = "linear"
    lr_end: Annotated[float, "final learning rate of the linear schedule, as a fraction of lr"] = 0.1
    warmup_steps: Annotated[int, "steps of linear learning rate warmup from 0"] = 10
    weight_decay: Annotated[float, "weight decay of AdamW"] = 0.0
    adam_beta2: Annotated[float, "second beta of AdamW"] = 0.99
    max_grad_norm: Annotated[float, "maximum gradient norm, for clipping"] = 1.0
    epochs: Annotated[int, "passes over the episodes of a step"] = 1
    minibatches: Annotated[int, "updates per pass"] = 4
    clip: Annotated[float, "PPO clip range, used if a step has several updates"] = 0.2
    loss_scale: Annotated[LossScale, "how the loss is averaged"] = "token-mean"
    entropy: Annotated[float, "weight of the entropy bonus, annealed linearly to 0"] = 0.0
    kl: Annotated[float, "weight of the KL divergence from the initial model, annealed linearly to 0"] = 0.3
    value_weight: Annotated[float, "weight of the critic's loss, for gae"] = 0.5
    critic: Annotated[
        CriticKind,
        "critic of gae: a 'head' on the policy, or a separate 'model' with the same initial weights",
    ] = "head"
    critic_warmup: Annotated[int, "first steps in which gae trains only the critic"] = 0
    max_tokens_per_pass: Annotated[
        int, "maximum tokens per forward pass of the update, including padding"
    ] = 32768
    # run
    eval_episodes: Annotated[
        int, "episodes per environment before and after training, at most one per held-out item; 0 for none"
    ] = 1000
    eval_every: Annotated[
        int, "steps between evaluations during training; 0 evaluates only before and after"
    ] = 0
    save_every: Annotated[int, "steps between checkpoints; the last step is always saved"] = 50
    keep_checkpoints: Annotated[int, "number of checkpoints to keep"] = 2
    trace_every: Annotated[int, "steps between traces of training episodes; 0 disables traces"] = 25
    trace_episodes: Annotated[int, "episodes per trace"] = 16
    curve: Annotated[bool, "draw the learning curve, curve.png, after the last step"] = True
    resume: Annotated[
        bool,
        "continue from the newest checkpoint in the folder (the default), or start over and replace the run",
    ] = True
    seed: Annotated[int, "random seed"] = 0
    device: Annotated[str, "'cpu', 'cuda', 'cuda:1', or 'auto'"] = "auto"
    dtype: Annotated[Dtype, "data type of the weights"] = "float32"
    autocast: Annotated[bool, "compute matrix products in bfloat16 and keep the weights in float32"] = False
    threads: Annotated[int, "torch threads; 0 for one on a tiny model, else torch's default"] = 0
    tensorboard: Annotated[bool, "write TensorBoard events"] = False
    wandb: Annotated[str, "Weights & Biases project to log to; requires wandb"] = ""

    def __post_init__(self) -> None:
        self._check_environments()
        estimator = get_estimator(self.estimator)
        estimator.check_options(self.estimator_options, prefix="estimator_options.")
        if missing := estimator.missing(self.estimator_options, SUPPLIES):
            raise ConfigError(
                f"estimator={self.estimator!r} needs {missing}, which this trainer does not supply"
            )
        if "lam" in self.estimator_options:
            raise ConfigError("estimator_options.lam: use lam")
        self._check_numbers()
        if self.needs_groups and self.group_size < 2:
            raise expected(
                "group_size",
                self.group_size,
                f"at least 2, because {self.estimator} compares the episodes of a group",
            )
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

    def _check_environments(self) -> None:
        for name, texts in (
            ("env", self.env),
            ("eval_env", self.env if self.eval_env is None else self.eval_env),
        ):
            if not texts or not isinstance(texts, list | tuple):
                raise expected(
                    name, texts, "a list of at least one environment, such as ['game:Mastermind-v0=2']"
                )
        check_labels((*self.sources, *self.eval_sources))
        for sources in (self.sources, self.eval_sources):
            labels = [source.label for source in sources]
            for source in sources:
                spec(source.env_id)
                if labels.count(source.label) > 1:
                    raise ConfigError(f"{source.label} is listed twice; list it once and give it a weight")
        for text in self.agent_model or ():
            agent, _, model = text.partition("=")
            if not re.fullmatch(r"[\w.-]*\w", agent) or not model:
                raise expected("agent_model", text, "AGENT=MODEL, such as user=tiny")
        if len(self.agent_models) < len(self.agent_model or ()):
            raise expected("agent_model", self.agent_model, "each agent at most once")

    def _check_numbers(self) -> None:
        for name in _FROM_ONE:
            check_int(name, getattr(self, name), 1)
        for name in ("warmup_steps", "critic_warmup", "eval_every", "trace_every", "seed", "threads"):
            check_int(name, getattr(self, name), 0)
        check_int("max_total_tokens", self.max_total_tokens, 1, optional=True)
        check_int("eval_episodes", self.eval_episodes, 0, len(EVAL_SEEDS))
        for name in ("entropy", "kl", "value_weight", "weight_decay"):
            check_number(name, getattr(self, name), 0)
        for name in ("gamma", "lam", "lr_end"):
            check_number(name, getattr(self, name), 0, 1)
        if check_number("adam_beta2", self.adam_beta2, 0, 1) == 1:
            raise expected("adam_beta2", self.adam_beta2, "a number below 1")
        check_number("lr", self.lr, above=0, optional=True)
        for name in ("temperature", "max_grad_norm", "clip"):
            check_number(name, getattr(self, name), above=0)
        check_choice("truncation", self.truncation, TRUNCATIONS)
        check_choice("lr_schedule", self.lr_schedule, get_args(Schedule))
        check_choice("context", self.context, get_args(ContextKind))
        check_choice("critic", self.critic, get_args(CriticKind))
        check_choice("loss_scale", self.loss_scale, get_args(LossScale))
        check_choice("dtype", self.dtype, get_args(Dtype))
        if self.autocast and self.dtype != "float32":
            raise ConfigError(
                f"autocast keeps the weights in float32, not in dtype={self.dtype}; use one of the two"
            )
        self.check_limits()

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
    def needs(self) -> tuple[Need, ...]:
        """What the estimator needs besides rewards and mask."""
        return get_estimator(self.estimator).needs_with(self.estimator_options)

    @property
    def needs_groups(self) -> bool:
        """Whether the estimator compares episodes that share a seed."""
        return "group_ids" in self.needs

    @property
    def needs_critic(self) -> bool:
        """Whether the estimator needs a critic's values."""
        return "values" in self.needs

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
