"""Oat's flags plus GEM's flags."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from oat.algorithms.ppo import PPOArgs

from gem_core.advantages import returns
from gem_core.advantages._inputs import checked_advantages
from gem_core.advantages._registry import names_in_trainer
from gem_core.advantages._stats import FloatArray
from gem_core.errors import ConfigError
from gem_core.rollout._options import read_object
from gem_core.tasks import EnvChoice
from gem_core.trainers import EstimatorChoice, EstimatorOptions, PluginOptions, read_estimator
from gem_core.trainers._options import flag_fields
from gem_oat import _NO_EPISODES, _SUPPORTED

FLAGS = [flag for flag in flag_fields(PluginOptions) if flag.name != "max_tokens_per_turn"]
"""The options of a rollout that become flags. Oat already has a flag for the length of a response."""


def _add_options(args: type[PPOArgs]) -> type[PPOArgs]:
    """Declare `FLAGS` and the options of the estimator as fields of a dataclass."""
    for flag in (*flag_fields(EstimatorOptions), *FLAGS):
        args.__annotations__[flag.name] = Annotated[flag.kind, tyro.conf.arg(help=flag.help)]
        setattr(args, flag.name, flag.default)
    return args


# The comments below are the texts of `--help`, as in Oat's own dataclass.


@dataclass
@_add_options
class Args(PPOArgs):  # type: ignore[misc]
    """Oat's arguments for PPO and GEM's."""

    # Environments to train on: ID, 'ID(key=value)', or either with =WEIGHT for a mix.
    env_id: list[str] = field(default_factory=list)
    # Environments to evaluate on; none means the training environments.
    eval_env_id: list[str] = field(default_factory=list)
    # Episodes that each actor plays at the same time.
    num_env: int = 4
    # Episodes per task; grpo and rloo compare them with each other.
    group_size: int = 1

    # ReBN exactly as in the paper: --estimator-options '{"ddof": 0, "eps": 1e-9, "scope": "trained"}'.
    paper_rebn: bool = False
    # With critic_type drgrpo: divisor of the sum over a response's tokens; none: generate_max_length.
    length_norm_constant: int | None = None

    # Oat's own flags, with defaults that work here.
    algo: Literal["PPO"] = "PPO"
    oracle: str = ""
    prompt_data: str = ""
    num_samples: int = 1
    # Maximum tokens of a response in evaluation; 0 means generate_max_length.
    eval_generate_max_length: int = 0
    # Size of a learner's buffer in turns; 0, the only allowed value, means the size of an update.
    pi_buffer_maxlen_per_device: int = 0

    @property
    def learners(self) -> int:
        """Number of learner processes in all groups, as Oat places them."""
        per_group = self.gpus if self.collocate else self.gpus - self.gpus // 2
        return int(per_group * self.num_groups)

    @property
    def actors(self) -> int:
        """Number of actors in all groups."""
        return self.learners // int(self.num_gpus_per_actor)

    @property
    def sources(self) -> list[EnvChoice]:
        """The training mix."""
        return [EnvChoice.parse(text) for text in self.env_id]

    @property
    def eval_sources(self) -> list[EnvChoice]:
        """The environments of an evaluation."""
        return [EnvChoice.parse(text) for text in self.eval_env_id or self.env_id]

    def rollout_options(self) -> PluginOptions:
        """Import the user's modules and return the options of the rollout.

        Raises:
            ConfigError: A value is not allowed.
        """
        options = {flag.name: getattr(self, flag.name) for flag in FLAGS}
        return PluginOptions.read({**options, "max_tokens_per_turn": self.generate_max_length}, prefix="--")

    def choose_estimator(self) -> EstimatorChoice:
        """Return the estimator with its options.

        Raises:
            ConfigError: There is no such estimator, it lacks one of the options, or a value is out of range;
                or see `check_parts`.
        """
        options = read_object(self.estimator_options, "--estimator-options")
        critic = names_in_trainer().get(self.estimator) == "gae"
        if critic and self.lam not in (options.setdefault("lam", self.lam), PPOArgs.lam):
            raise ConfigError(
                f"--lam={self.lam} contradicts --estimator-options.lam={options['lam']}; omit one of the two"
            )
        if options.get("weight") == "episode":
            raise ConfigError(f"--estimator-options.weight='episode': {_NO_EPISODES}")
        choice = read_estimator(
            self.estimator,
            options,
            gamma=self.gamma,
            prefix="--estimator-options.",
            gamma_option="--gamma",
            option="--estimator",
            trainer=_SUPPORTED,
        )
        check_parts(choice)
        return choice


def check_parts(choice: EstimatorChoice) -> None:
    """Reject an estimator that needs more at once than Oat's learner has.

    With statistics of all ranks, the learner has the returns of turns without their episodes; with a critic,
    it has one episode at a time.

    Raises:
        ConfigError: The advantages of a few turns differ if they are computed from such parts; or the
            estimator needs something besides the values of the critic.
    """
    critic = "values" in choice.needs
    if critic and set(choice.needs) > {"values"}:
        raise ConfigError(
            f"{choice.name} needs {', '.join(choice.needs)}, but Oat's learner computes the advantages of "
            "one episode at a time, from the values of the critic only; use another trainer"
        )
    if not (critic or choice.estimator.uses_stats):
        return
    whole = [(_REWARDS, {"values": _VALUES} if critic else {"lengths": _LENGTHS})]
    if critic:
        parts = [([one], {"values": [values]}) for one, values in zip(_REWARDS, _VALUES, strict=True)]
    else:
        lengths = [[length] for one in _LENGTHS for length in one]
        parts = [([[g] for one in returns(_REWARDS, choice.gamma) for g in one], {"lengths": lengths})]
    try:
        expected = _advantages(choice, whole)
    except Exception:  # a user's estimator may take other batches only
        return
    if not np.allclose(_advantages(choice, parts), expected):
        what = "one episode at a time" if critic else "the returns of turns, without their episodes"
        raise ConfigError(
            f"{choice.name}: Oat's learner has {what}, from which it computes other advantages; use another "
            "estimator, or another trainer"
        )


_REWARDS = [[0.0, 1.0], [4.0], [-1.0, 0.5, 8.0]]
_LENGTHS = [[1.0, 2.0], [3.0], [2.0, 5.0, 1.0]]
_VALUES = [[0.5, 0.25], [1.0], [0.0, 2.0, 4.0]]


def _advantages(choice: EstimatorChoice, batches: Sequence[tuple[Any, Mapping[str, Any]]]) -> FloatArray:
    """Return the advantages of the turns of several batches, each with its own call of the estimator.

    Args:
        choice: The estimator with its options.
        batches: Rewards, and values of needs.
    """
    computed = []
    for rewards, inputs in batches:
        needed = {name: [np.array(one) for one in inputs[name]] for name in choice.needs if name in inputs}
        result = choice.estimator(
            [np.array(one) for one in rewards], gamma=choice.gamma, **choice.options, **needed
        )
        computed += checked_advantages(choice.name, result, [len(one) for one in rewards])
    return np.concatenate(computed)


def dataset_rows(args: Args) -> int:
    """Return the number of rows of the run: ``--max-train`` turns in full batches, as in Oat's schedules."""
    return math.ceil(int(args.max_queries) / int(args.rollout_batch_size)) * int(args.rollout_batch_size)
