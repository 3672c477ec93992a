"""Oat's flags plus GEM's flags."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro
from oat.algorithms.ppo import PPOArgs

from gem_core.advantages._registry import names_in_trainer
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
            ConfigError: There is no such estimator, it lacks one of the options, or a value is out of range.
        """
        options = read_object(self.estimator_options, "--estimator-options")
        critic = names_in_trainer().get(self.estimator) == "gae"
        if critic and self.lam not in (options.setdefault("lam", self.lam), PPOArgs.lam):
            raise ConfigError(
                f"--lam={self.lam} contradicts --estimator-options.lam={options['lam']}; omit one of the two"
            )
        if options.get("weight") == "episode":
            raise ConfigError(f"--estimator-options.weight='episode': {_NO_EPISODES}")
        return read_estimator(
            self.estimator,
            options,
            gamma=self.gamma,
            prefix="--estimator-options.",
            gamma_option="--gamma",
            option="--estimator",
            trainer=_SUPPORTED,
        )


def dataset_rows(args: Args) -> int:
    """Return the number of rows of the run: ``--max-train`` turns in full batches, as in Oat's schedules."""
    return math.ceil(int(args.max_queries) / int(args.rollout_batch_size)) * int(args.rollout_batch_size)
