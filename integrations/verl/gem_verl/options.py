"""What a verl config says about GEM, and what it must not say.

Options of the rollout stand in a section of their own, ``+gem.<option>=<value>``; options of an
estimator under its name, ``+algorithm.rebn.ddof=1``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from gem_core._util.messages import suggest
from gem_core.advantages.registry import TRAINER_NAMES, get_estimator
from gem_core.errors import ConfigError
from gem_core.rollout import RolloutOptions
from gem_core.rollout.vision import processor_or_tokenizer

ESTIMATORS = TRAINER_NAMES
"""verl's ``algorithm.adv_estimator`` and the name of the estimator in gem_core."""

TRAINER_MODE = "gem_sync"


@dataclass(frozen=True)
class GemOptions(RolloutOptions):
    """The section ``gem`` of a verl config.

    Attributes:
        layout: Rows of the training batch: "episode" or "turn". "auto" takes the first where the
            context allows it.
    """

    layout: Literal["auto", "episode", "turn"] = "auto"

    @classmethod
    def from_config(cls, config: Any) -> GemOptions:
        """Read the section ``gem`` of a whole verl config.

        Raises:
            ConfigError: An unknown option, or a value that is none of those allowed.
        """
        options = cls.read(dict(config.get("gem") or {}))
        if options.context == "rebuild" and options.layout == "episode":
            raise ConfigError(
                "gem.layout=episode needs gem.context=append: the turns of a rebuilt context share no prefix"
            )
        return options

    @property
    def row_per_turn(self) -> bool:
        """Whether each turn is a row of the batch."""
        return self.layout == "turn" or self.context == "rebuild"


def estimator_options(algorithm: Any, name: str) -> dict[str, Any]:
    """The options ``algorithm.<name>``, checked.

    Raises:
        ConfigError: An unknown option, or one that the rest of `algorithm` contradicts.
    """
    options = dict(_get(algorithm, name) or {})
    scope = options.pop("scope", "collected") if name == "rebn" else "collected"
    get_estimator(ESTIMATORS[name]).check_options(options, prefix=f"algorithm.{name}.")
    correction = _get(algorithm, "rollout_correction")
    if correction and _get(correction, "rollout_rs") and not _get(correction, "bypass_mode"):
        raise ConfigError(
            f"algorithm.rollout_correction.rollout_rs={_get(correction, 'rollout_rs')} takes tokens out of "
            "the response mask before the advantage is computed, which would cut turns in pieces; with "
            f"{name} use rollout_is (weights) instead, or bypass_mode=True"
        )
    if scope not in ("collected", "trained"):
        raise ConfigError(f"algorithm.{name}.scope={scope!r}: expected 'collected' or 'trained'")
    filters = _get(algorithm, "filter_groups")
    if name == "rebn" and scope == "collected" and filters and _get(filters, "enable"):
        raise ConfigError(
            "algorithm.filter_groups drops groups before rebn sees them, so its statistics cannot be those "
            "of all turns that were collected; +algorithm.rebn.scope=trained takes those of the rest"
        )
    if name == "gem_grpo" and not _get(algorithm, "norm_adv_by_std_in_grpo", True):
        raise ConfigError(
            "algorithm.norm_adv_by_std_in_grpo=False has no effect on gem_grpo; gem_rloo does not divide by "
            "a standard deviation"
        )
    return options


def check_config(config: Any, *, trainer_mode: str) -> GemOptions:
    """Refuse what cannot be honoured, before any engine starts.

    Args:
        config: The whole verl config.
        trainer_mode: The one that runs.

    Raises:
        ConfigError: Says what and why.
    """
    if not config.trainer.use_v1:
        raise ConfigError(
            "trainer.use_v1=False: gem_verl works with verl's v1 trainer only; leave it at True"
        )
    options = GemOptions.from_config(config)
    name = str(config.algorithm.adv_estimator)
    if name in ESTIMATORS:
        estimator_options(config.algorithm, name)
        gamma = float(config.algorithm.gamma)
        if not 0 <= gamma <= 1:
            raise ConfigError(f"algorithm.gamma={gamma}: expected a discount from 0 to 1")
        samples = config.actor_rollout_ref.rollout.n
        if "group_ids" in get_estimator(ESTIMATORS[name]).needs and samples < 2:
            raise ConfigError(
                f"{name} compares the samples of a prompt; with actor_rollout_ref.rollout.n={samples} every "
                "advantage would be 0"
            )
    else:
        from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

        if name not in ADV_ESTIMATOR_REGISTRY:
            close = suggest(name, ADV_ESTIMATOR_REGISTRY)
            raise ConfigError(f"algorithm.adv_estimator={name} is registered nowhere.{close}")
    if options.row_per_turn:
        if trainer_mode != TRAINER_MODE:
            raise ConfigError(
                f"rows of single turns need trainer.v1.trainer_mode={TRAINER_MODE}, which knows what rows "
                f"make up an episode; with {trainer_mode!r} use gem.context=append and gem.layout=episode"
            )
        if name not in ESTIMATORS:
            raise ConfigError(
                f"algorithm.adv_estimator={name} would take each turn for an episode; with rows of single "
                f"turns use one of {', '.join(ESTIMATORS)}"
            )
        filters = _get(config.algorithm, "filter_groups")
        if filters and _get(filters, "enable") and _get(filters, "metric") == "reward":
            raise ConfigError(
                "algorithm.filter_groups.metric=reward compares the rows of a prompt, which are single turns "
                "here; algorithm.filter_groups.metric=gem/return compares its episodes"
            )
    return options


def check_rewards(config: Any) -> None:
    """Refuse what would put other rewards in the place of those that environments paid.

    Args:
        config: The whole verl config, of a run with rows of the agent loop ``gem``.

    Raises:
        ConfigError: A reward model shares the GPUs of the actor: verl has it score every row.
    """
    model = config.reward.reward_model
    if model.enable and not model.enable_resource_pool:
        raise ConfigError(
            "reward.reward_model.enable=True with enable_resource_pool=False: verl lets it score every "
            "row after it was played, which would replace the rewards of the environments; leave the model "
            "out, or set enable_resource_pool=True, with which it scores the rows of other agent loops only"
        )


def images_unsupported(config: Any) -> str | None:
    """Why the model of a verl config cannot be shown images; None when it can.

    Args:
        config: The whole verl config.
    """
    rollout, model = config.actor_rollout_ref.rollout, config.actor_rollout_ref.model
    if rollout.name != "vllm":
        return (
            f"they reach verl's vLLM servers only, not those of actor_rollout_ref.rollout.name={rollout.name}"
        )
    from verl.utils import hf_processor
    from verl.utils.fs import copy_to_local

    folder = copy_to_local(model.path)
    processor = hf_processor(folder, trust_remote_code=bool(_get(model, "trust_remote_code", False)))
    if processor_or_tokenizer(processor, None) is None:
        return (
            f"{model.path} has no processor of the Qwen2-VL kind that can be loaded here (transformers needs "
            "torchvision for that)"
        )
    # vLLM scales pixels with `visual.input_norm`, buffers of its own. Dummy weights fill them with noise, and
    # no weights of the actor ever replace it: the engine would sample from images that it cannot see.
    if str(rollout.load_format).startswith("dummy"):
        return (
            f"actor_rollout_ref.rollout.load_format={rollout.load_format} leaves vLLM without the scale of "
            "their pixels; set actor_rollout_ref.rollout.load_format=auto"
        )
    return None


def _get(section: Any, key: str, default: Any = None) -> Any:
    """A value of a DictConfig, a dict, or one of verl's config dataclasses, which all have `get`."""
    return section.get(key, default) if section is not None else default
