"""What a run says about GEM, and what OpenRLHF's flags must not say then.

With `gem_openrlhf.train_ppo_ray` an option is a flag, ``--gem.max_turns 8``. Ray's workers get all of
them in the environment variable `VARIABLE`, as a JSON object; whoever starts OpenRLHF's own command
writes it by hand: ``{"estimator": "rebn", "max_turns": 8}``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gem_core._util.messages import suggest
from gem_core.advantages.registry import TRAINER_NAMES, Estimator, get_estimator
from gem_core.errors import ConfigError
from gem_core.rollout import Context, RolloutOptions

ESTIMATORS = TRAINER_NAMES
"""``--algo.advantage.estimator`` and the name of the estimator in gem_core."""

VARIABLE = "GEM_OPENRLHF"
CLIP_RANGE = (-10, 10)
"""OpenRLHF's default of ``--reward.clip_range``."""


@dataclass(frozen=True)
class GemOptions(RolloutOptions):
    """Options of the rollout and of the estimator.

    Attributes:
        template_kwargs: Variables for the chat template, a JSON object.
        estimator: Of `ESTIMATORS`, in the place of ``--algo.advantage.estimator``, whose choices are
            OpenRLHF's; None leaves it to that flag.
        ddof: Of the estimator, as in `gem_core.advantages`, like `eps` and `min_std`; None for its
            own default.
        eps: See `ddof`.
        min_std: See `ddof`.
        scope: Which turns the statistics of ``rebn`` are taken over, where they differ: all that were
            collected, or those that a filter left.
    """

    template_kwargs: str = ""
    estimator: str | None = None
    ddof: int | None = None
    eps: float | None = None
    min_std: float | None = None
    scope: Literal["collected", "trained"] = "collected"

    @classmethod
    def load(cls, given: Mapping[str, Any], prefix: str = "--gem.") -> GemOptions:
        """Read options and check those that no other flag has a say in.

        Raises:
            ConfigError: An unknown option, or a value that cannot be honoured.
        """
        options = cls.read(given, prefix)
        if options.context != "append":
            raise ConfigError(
                f"{prefix}context={options.context}: OpenRLHF trains on one row an episode, and the turns of "
                "a rebuilt context share no prefix; use append"
            )
        if options.estimator is not None and options.estimator not in ESTIMATORS:
            close = suggest(options.estimator, ESTIMATORS)
            raise ConfigError(
                f"estimator {options.estimator!r} is none of {', '.join(ESTIMATORS)}.{close} OpenRLHF's own "
                "are chosen with --algo.advantage.estimator"
            )
        try:
            valid = isinstance(json.loads(options.template_kwargs or "{}"), dict)
        except ValueError:
            valid = False
        if not valid:
            raise ConfigError(f"{prefix}template_kwargs={options.template_kwargs!r}: expected a JSON object")
        return options

    @classmethod
    def from_environment(cls) -> GemOptions:
        """The options that `VARIABLE` holds; the defaults without it.

        Raises:
            ConfigError: It holds no JSON object, or as in `load`.
        """
        text = os.environ.get(VARIABLE, "")
        try:
            given = json.loads(text or "{}")
        except ValueError:
            given = None
        if not isinstance(given, dict):
            raise ConfigError(f"the environment variable {VARIABLE} must hold a JSON object, not {text!r}")
        return cls.load(given, f"{VARIABLE}: ")

    def to_text(self) -> str:
        """What `from_environment` reads: the options that differ from their defaults."""
        defaults = asdict(type(self)())
        return json.dumps({name: value for name, value in asdict(self).items() if value != defaults[name]})

    def context_for(self, tokenizer: Any) -> Context:
        """The context that all episodes share."""
        return self.make_context(tokenizer, json.loads(self.template_kwargs or "{}"))

    def estimator_options(self, name: str) -> tuple[Estimator, dict[str, Any]]:
        """The estimator behind a name of `ESTIMATORS`, and the options that are set for it.

        Raises:
            ConfigError: One of them is none of this estimator's.
        """
        estimator = get_estimator(ESTIMATORS[name])
        given = {key: getattr(self, key) for key in ("ddof", "eps", "min_std")}
        options = {key: value for key, value in given.items() if value is not None}
        estimator.check_options(options, prefix="--gem.")
        return estimator, options


def check_args(args: Any, options: GemOptions) -> None:
    """Refuse flags that an estimator of gem_core cannot honour, before any model is loaded.

    OpenRLHF's reward clip and length penalties act on one reward per sample. They would move credit
    between turns, so none of them passes silently.

    Args:
        args: OpenRLHF's flags, nested as its trainers have them.
        options: Ours.

    Raises:
        ConfigError: Says which flag and why.
    """
    name = options.estimator or str(args.algo.advantage.estimator)
    if name not in ESTIMATORS:
        for key in ("ddof", "eps", "min_std"):
            if getattr(options, key) is not None:
                known = ", ".join(ESTIMATORS)
                raise ConfigError(
                    f"--gem.{key} has no effect on OpenRLHF's estimator {name}; it is for {known}"
                )
        return
    estimator, _ = options.estimator_options(name)
    check_turn_rewards(args, name)
    if args.algo.advantage.no_std_norm:
        raise ConfigError(
            f"--algo.advantage.no_std_norm has no effect on {name}; gem_reinforce does not normalise"
        )
    if "group_ids" in estimator.needs and args.rollout.n_samples_per_prompt < 2:
        raise ConfigError(
            f"{name} compares the samples of a prompt; with --rollout.n_samples_per_prompt 1 every "
            "advantage would be 0"
        )
    if estimator.uses_stats and args.algo.dynamic_filtering_enable and options.scope == "collected":
        raise ConfigError(
            f"--algo.dynamic_filtering_enable drops prompts before {name} sees them, so its statistics "
            "cannot be those of all turns that were collected; --gem.scope trained takes those of the rest"
        )


def check_turn_rewards(args: Any, name: str) -> None:
    """Refuse flags that change the one reward of a sample, where the rewards of its turns are used.

    Args:
        args: As in `check_args`.
        name: The estimator.

    Raises:
        ConfigError: Says which flag and why.
    """
    if not 0 <= float(args.algo.advantage.gamma) <= 1:
        raise ConfigError(
            f"--algo.advantage.gamma {args.algo.advantage.gamma}: expected a discount from 0 to 1"
        )
    if tuple(args.reward.clip_range) != CLIP_RANGE:
        raise ConfigError(
            f"--reward.clip_range clips the summed reward of an episode, but {name} works on the rewards of "
            "its turns; leave it out, and bound the rewards in the environment or in a wrapper"
        )
    for flag in ("overlong_buffer_len", "stop_properly_penalty_coef"):
        if getattr(args.reward, flag, None) is not None:
            raise ConfigError(
                f"--reward.{flag} changes the summed reward of an episode, but {name} works on the rewards "
                "of its turns; leave it out, and let the environment reward a response that was cut"
            )
