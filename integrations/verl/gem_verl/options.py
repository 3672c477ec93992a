"""Options of GEM in a verl config, and the verl options that are incompatible with them.

Options of the rollout are in a separate section, ``+gem.<option>=<value>``; options of an estimator are under
its name, ``+algorithm.rebn.ddof=1``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gem_core.advantages.registry import TRAINER_NAMES
from gem_core.errors import ConfigError
from gem_core.rollout import RolloutOptions, RowKind
from gem_core.rollout.vision import processor_or_tokenizer
from gem_core.trainers.estimators import EstimatorChoice, read_estimator, unknown_estimator
from gem_core.trainers.options import RowOption, choose_rows

ESTIMATORS = TRAINER_NAMES
"""Values of verl's ``algorithm.adv_estimator``, each with the name of the estimator in gem_core."""

TRAINER_MODE = "gem_sync"


@dataclass(frozen=True)
class GemOptions(RolloutOptions):
    """The section ``gem`` of a verl config.

    Attributes:
        rows: Rows of the training batch: "episode" or "turn". "auto" means "episode" where the context allows
            it.
    """

    rows: RowOption = "auto"

    @classmethod
    def from_config(cls, config: Any) -> GemOptions:
        """Read the section ``gem`` of a whole verl config.

        Raises:
            ConfigError: An option is unknown, or its value is not allowed.
        """
        options = cls.read(dict(config.get("gem") or {}))
        _ = options.row_kind
        return options

    @property
    def row_kind(self) -> RowKind:
        """Kind of the rows of the training batch."""
        return choose_rows(self.rows, self.context)


def read_algorithm(algorithm: Any, name: str) -> EstimatorChoice:
    """Read an estimator from verl's section ``algorithm``, with the options in ``algorithm.<name>``.

    Args:
        algorithm: verl's section ``algorithm``. None means the defaults.
        name: Key of `ESTIMATORS`.

    Raises:
        ConfigError: An option is unknown, or contradicts the rest of `algorithm`.
    """
    choice = read_estimator(
        name,
        _get(algorithm, name) or {},
        gamma=_get(algorithm, "gamma", 1.0),
        prefix=f"algorithm.{name}.",
        gamma_option="algorithm.gamma",
        supplies=("group_ids", "lengths"),
    )
    correction = _get(algorithm, "rollout_correction")
    if correction and _get(correction, "rollout_rs") and not _get(correction, "bypass_mode"):
        raise ConfigError(
            f"algorithm.rollout_correction.rollout_rs={_get(correction, 'rollout_rs')} takes tokens out of "
            "the response mask before the advantage is computed, which would cut turns in pieces; with "
            f"{name} use rollout_is (weights) instead, or bypass_mode=True"
        )
    if _filters(algorithm):
        choice.check_collected("algorithm.filter_groups drops groups", f"+algorithm.{name}.scope=trained")
    if name == "gem_grpo" and not _get(algorithm, "norm_adv_by_std_in_grpo", True):
        raise ConfigError(
            "algorithm.norm_adv_by_std_in_grpo=False has no effect on gem_grpo; gem_rloo does not divide by "
            "a standard deviation"
        )
    return choice


def check_config(config: Any, *, trainer_mode: str) -> GemOptions:
    """Reject unsupported options before any engine starts.

    Args:
        config: The whole verl config.
        trainer_mode: Name of the trainer mode.

    Raises:
        ConfigError: An option is not supported; the message names it and the reason.
    """
    if not config.trainer.use_v1:
        raise ConfigError(
            "trainer.use_v1=False: gem_verl works with verl's v1 trainer only; leave it at True"
        )
    options = GemOptions.from_config(config)
    name = str(config.algorithm.adv_estimator)
    if name in ESTIMATORS:
        choice = read_algorithm(config.algorithm, name)
        choice.check_group_size("actor_rollout_ref.rollout.n", config.actor_rollout_ref.rollout.n)
    else:
        from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

        if name not in ADV_ESTIMATOR_REGISTRY:
            raise unknown_estimator("algorithm.adv_estimator", name, [*ADV_ESTIMATOR_REGISTRY])
    if options.row_kind == "turn":
        if trainer_mode != TRAINER_MODE:
            raise ConfigError(
                f"turn rows need trainer.v1.trainer_mode={TRAINER_MODE}, which knows what rows make up an "
                f"episode; with {trainer_mode!r} use gem.context=append and gem.rows=episode"
            )
        if name not in ESTIMATORS:
            raise ConfigError(
                f"algorithm.adv_estimator={name} would take each turn for an episode; with turn rows use one "
                f"of {', '.join(ESTIMATORS)}"
            )
        if _filters(config.algorithm) == "reward":
            raise ConfigError(
                "algorithm.filter_groups.metric=reward compares the rows of a prompt, which are single turns "
                "here; algorithm.filter_groups.metric=gem/return compares its episodes"
            )
    return options


def check_rewards(config: Any) -> None:
    """Reject a reward model that would replace the rewards of the environments.

    Args:
        config: The whole verl config, of a run with rows of the agent loop ``gem``.

    Raises:
        ConfigError: A reward model shares the GPUs of the actor, so it would score every row.
    """
    model = config.reward.reward_model
    if model.enable and not model.enable_resource_pool:
        raise ConfigError(
            "reward.reward_model.enable=True with enable_resource_pool=False: verl lets it score every "
            "row after it was played, which would replace the rewards of the environments; leave the model "
            "out, or set enable_resource_pool=True, with which it scores the rows of other agent loops only"
        )


def images_unsupported(config: Any) -> str | None:
    """Return why the model of a verl config cannot take images; None if it can.

    Args:
        config: The whole verl config.
    """
    rollout, model = config.actor_rollout_ref.rollout, config.actor_rollout_ref.model
    if rollout.name != "vllm":
        return (
            "images reach verl's vLLM servers only, not those of "
            f"actor_rollout_ref.rollout.name={rollout.name}"
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
    # vLLM scales pixels with its own buffers `visual.input_norm`. Dummy weights fill them with noise that no
    # weights of the actor ever replace, so the engine would sample without seeing the images.
    if str(rollout.load_format).startswith("dummy"):
        return (
            f"actor_rollout_ref.rollout.load_format={rollout.load_format} leaves vLLM without the scale of "
            "their pixels; set actor_rollout_ref.rollout.load_format=auto"
        )
    return None


def _filters(algorithm: Any) -> str | None:
    """Return the metric by which groups are filtered; None if there is no filter."""
    filters = _get(algorithm, "filter_groups")
    return str(_get(filters, "metric")) if filters and _get(filters, "enable") else None


def _get(section: Any, key: str, default: Any = None) -> Any:
    """Return a value of a DictConfig, a dict, or one of verl's config dataclasses, which all have `get`."""
    return section.get(key, default) if section is not None else default
