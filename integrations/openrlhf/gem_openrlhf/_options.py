"""Options of GEM in a run of OpenRLHF, and the flags of OpenRLHF that are incompatible with them.

With `gem_openrlhf.train_ppo_ray`, an option is a flag, ``--gem.max_turns 8``. Ray's workers receive all
options in the environment variable `VARIABLE`, as a JSON object. For OpenRLHF's own command, set it yourself:
``{"estimator": "rebn", "max_turns": 8}``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gem_core._util.checks import check_number
from gem_core.advantages._declaration import Need
from gem_core.advantages._registry import names_in_trainer
from gem_core.errors import ConfigError
from gem_core.rollout._options import read_object
from gem_core.trainers import EstimatorChoice, EstimatorOptions, PluginOptions, read_estimator
from gem_core.trainers._estimators import unknown_estimator
from gem_core.trainers._options import RowOptions, option_at, reject_changed, reject_listed
from gem_core.trainers._weights import RowAverage
from gem_openrlhf import _SUPPORTED
from gem_openrlhf._numbers import check_numbers

OPENRLHF_FLAGS = ("estimator", "remote_url")
"""Options that have flags in OpenRLHF."""
GAMMA = "--algo.advantage.gamma"
VARIABLE = "GEM_OPENRLHF"
GAE_OF_BOTH = (
    "--algo.advantage.estimator gae works on the turns of gem_core's rows but on the tokens of your own, so "
    "the two cannot share a batch; choose another estimator, or train on one of them"
)
ONE_ROW = (
    "an episode may have several rows, and OpenRLHF's own estimators take each row for a sample; use rebn or "
    "another estimator of gem-core"
)


def estimator_names() -> dict[str, str]:
    """Map the names in ``--algo.advantage.estimator`` of gem_core's estimators to their own names."""
    return names_in_trainer(_SUPPORTED.own_estimators)


@dataclass(frozen=True)
class GemOptions(EstimatorOptions, RowOptions, PluginOptions):
    """Options of the rollout and of the estimator.

    Attributes:
        estimator: Key of `estimator_names`, for OpenRLHF's own command, whose ``--algo.advantage.estimator``
            accepts only OpenRLHF's estimators. None leaves the choice to that flag.
        remote_url: Reward function or servers for the user's own rows, as in ``--reward.remote_url``, which
            OpenRLHF drops if there is an agent; `train_ppo_ray` passes it on in this option.
    """

    estimator: str | None = field(default=None, kw_only=True)  # type: ignore[assignment]
    remote_url: str | None = None

    @classmethod
    def load(cls, values: Mapping[str, Any], prefix: str = "--gem.") -> GemOptions:
        """Read options, and check the ones that do not depend on other flags.

        Raises:
            ConfigError: An option is unknown, or its value is not supported.
        """
        options = cls.read(values, prefix)
        if options.estimator is not None and options.estimator not in estimator_names():
            raise unknown_estimator(f"{prefix}estimator", options.estimator, [*estimator_names()])
        return options

    @classmethod
    def from_environment(cls) -> GemOptions:
        """Return the options in the environment variable `VARIABLE`, or the defaults if it is not set.

        Raises:
            ConfigError: The variable does not hold a JSON object, or see `load`.
        """
        options = read_object(os.environ.get(VARIABLE), f"the environment variable {VARIABLE}")
        return cls.load(options, f"{VARIABLE}: ")

    def to_text(self) -> str:
        """Return all options, as `from_environment` reads them."""
        return json.dumps(asdict(self))

    def estimator_choice(self, name: str, gamma: float = 1.0) -> EstimatorChoice:
        """Return an estimator of gem_core with its options.

        Args:
            name: Key of `estimator_names`.
            gamma: Discount per turn.

        Raises:
            ConfigError: The estimator does not have one of the options.
        """
        return read_estimator(
            name,
            self.estimator_options,
            gamma=gamma,
            prefix="--gem.estimator_options.",
            gamma_option=GAMMA,
            trainer=_SUPPORTED,
        )

    @property
    def takes_rows(self) -> bool:
        """Whether episodes may have several rows, which only the estimators of gem_core take."""
        return self.estimator is not None and self.has_several_rows

    def reject_rows(self, reason: str, prefix: str = "--gem.") -> None:
        """Reject options with which an episode always may have several rows.

        Raises:
            ConfigError: There is such an option; the message gives the reason.
        """
        reject_changed(self, [("context", "append", reason), ("rows", "auto", reason)], prefix=prefix)

    @property
    def needs(self) -> tuple[Need, ...]:
        """What the estimator of gem_core needs; nothing if one of OpenRLHF's own is used."""
        return () if self.estimator is None else self.estimator_choice(self.estimator).needs


def check_args(args: Any, options: GemOptions) -> None:
    """Reject flags that OpenRLHF or an estimator of gem_core does not support, before any model is loaded.

    OpenRLHF's reward clip and length penalties act on one reward per sample. They would move reward between
    turns, so they are never accepted silently.

    Args:
        args: OpenRLHF's flags, nested as in its trainers.
        options: Options of GEM.

    Raises:
        ConfigError: A flag is not supported; the message names it and the reason.
    """
    check_numbers(args)
    reject_listed(_SUPPORTED, args, {"always": True}, prefix="--")
    name = options.estimator or str(args.algo.advantage.estimator)
    if name not in estimator_names():
        unused = f"has no effect on OpenRLHF's estimator {name}; it applies to {', '.join(estimator_names())}"
        reject_changed(options, [("estimator_options", ({},), unused)], prefix="--gem.")
        options.reject_rows(ONE_ROW)
        return
    choice = options.estimator_choice(name, args.algo.advantage.gamma)
    check_turn_rewards(args)
    reject_listed(_SUPPORTED, args, {"estimators": True}, prefix="--", estimator=name)
    if options.has_several_rows:
        if option_at(args, "actor.loss_agg_mode") is None:
            raise ConfigError(
                "several rows per episode (--gem.context, --gem.rows turn, or --gem.harness) need "
                "OpenRLHF 0.11.2: the loss of older ones has no --actor.loss_agg_mode"
            )
        means = row_average(args) != "tokens"
        penalty = means and args.algo.kl.use_loss
        sections = {"several rows": True, "means over rows": means, "a penalty over rows": penalty}
        reject_listed(_SUPPORTED, args, sections, prefix="--")
    if "reward_components" in choice.needs and args.algo.kl.init_coef > 0 and not args.algo.kl.use_loss:
        raise ConfigError(
            f"--algo.kl.init_coef={args.algo.kl.init_coef}: {name} reads the components of the rewards, "
            "which do not contain the KL penalty; use --algo.kl.use_loss, or --algo.kl.init_coef 0"
        )
    choice.check_group_size("--rollout.n_samples_per_prompt", args.rollout.n_samples_per_prompt)
    if args.algo.dynamic_filtering_enable:
        choice.check_collected(
            "--algo.dynamic_filtering_enable drops prompts",
            '--gem.estimator_options \'{"scope": "trained"}\'',
        )


def row_average(args: Any) -> RowAverage:
    """Return what OpenRLHF's loss averages over.

    Args:
        args: OpenRLHF's flags, as in `check_args`.
    """
    return "tokens" if args.actor.loss_agg_mode == "token-mean" else "row means"


def check_turn_rewards(args: Any) -> None:
    """Reject flags that change the single reward of a sample, because its turns have rewards of their own.

    Args:
        args: OpenRLHF's flags, as in `check_args`.

    Raises:
        ConfigError: A flag is not supported; the message names it and the reason.
    """
    check_number(GAMMA, args.algo.advantage.gamma, 0, 1)
    reject_listed(_SUPPORTED, args, {"turns": True}, prefix="--")
