"""Values of verl's options that verl rejects only after the models are loaded, or reads as something else."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import verl.trainer
from omegaconf import OmegaConf

from gem_core._util.checks import check_int, check_number, expected
from gem_core.errors import ConfigError
from gem_core.trainers._options import option_at

_ROLLOUT, _ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
_COUNTS: dict[str, int | None] = {
    "data.train_batch_size": 1,
    "data.max_prompt_length": 1,
    "data.max_response_length": 1,
    "data.train_max_samples": None,
    "data.val_max_samples": None,
    "data.dataloader_num_workers": 0,
    f"{_ROLLOUT}.n": 1,
    f"{_ROLLOUT}.val_kwargs.n": 1,
    f"{_ROLLOUT}.tensor_model_parallel_size": 1,
    f"{_ROLLOUT}.agent.num_workers": 1,
    f"{_ACTOR}.ppo_mini_batch_size": 1,
    f"{_ACTOR}.ppo_epochs": 1,
    "trainer.nnodes": 1,
    "trainer.n_gpus_per_node": 1,
    "trainer.total_epochs": 0,
    "trainer.save_freq": None,
    "trainer.test_freq": None,
}
"""Options that verl reads as whole numbers, with their lower bounds."""
_OPTIONAL_COUNTS = {"data.gen_batch_size": 0, "trainer.total_training_steps": 0}
"""Same, for options that may be None."""
_POSITIVE = {f"{_ROLLOUT}.temperature": None, f"{_ROLLOUT}.top_p": 1, f"{_ROLLOUT}.val_kwargs.top_p": 1}
"""Options with a number above 0, and their upper bounds. verl divides by the temperature."""
_NOT_NEGATIVE = {
    f"{_ROLLOUT}.val_kwargs.temperature": False,
    f"{_ACTOR}.optim.lr": False,
    f"{_ACTOR}.optim.clip_grad": True,
    f"{_ACTOR}.clip_ratio": False,
    f"{_ACTOR}.clip_ratio_low": True,
    f"{_ACTOR}.clip_ratio_high": True,
}
"""Options with a number of at least 0, and whether they may be None. A negative one turns a sign around."""


def check_values(config: Any) -> None:
    """Reject numbers and switches that are none, and a batch that verl cannot fetch.

    Args:
        config: The whole verl config.

    Raises:
        ConfigError: verl would fail in the first step, or take a word for True.
    """
    for option, default, value in _pairs(_defaults(), OmegaConf.to_container(config)):
        if isinstance(value, (str, list, dict)) and not str(value).startswith("${"):
            kind = "True or False" if isinstance(default, bool) else "a number"
            raise expected(option, value, f"{kind}, such as {default}, which is verl's default")
    for option, low in _COUNTS.items():
        check_int(option, option_at(config, option), low)
    for option, low in _OPTIONAL_COUNTS.items():
        check_int(option, option_at(config, option), low, optional=True)
    for option, high in _POSITIVE.items():
        check_number(option, option_at(config, option), above=0, high=high)
    for option, optional in _NOT_NEGATIVE.items():
        if not (optional and option_at(config, option) is None):
            check_number(option, option_at(config, option), 0)
    batch, part = config.data.train_batch_size, config.data.get("gen_batch_size")
    single = ("algorithm.filter_groups.enable", "trainer.v1.sampler.sync_refill_failed_groups")
    if part and batch % part and _mode(config) == "sync" and not any(option_at(config, o) for o in single):
        raise ConfigError(
            f"data.gen_batch_size={part}: data.train_batch_size={batch} is not a multiple of it, and verl "
            "fetches a batch in whole parts of this size"
        )


def check_sizes(config: Any) -> None:
    """Reject batches that verl cannot cut into parts, which it notices only after the first rollouts.

    Args:
        config: The whole verl config, in which an episode has one row.

    Raises:
        ConfigError: A batch is not a multiple of its parts.
    """
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    if not str(actor.strategy).startswith("fsdp"):
        return
    gpus = config.trainer.nnodes * config.trainer.n_gpus_per_node
    ranks = max(gpus // option_at(actor, "fsdp_config.ulysses_sequence_parallel_size", 1), 1)
    update = actor.ppo_mini_batch_size * rollout.n
    micro = 1 if actor.use_dynamic_bsz else actor.ppo_micro_batch_size_per_gpu or 1
    if update % (ranks * micro):
        raise ConfigError(
            f"{_ACTOR}.ppo_mini_batch_size={actor.ppo_mini_batch_size} with {_ROLLOUT}.n={rollout.n} is "
            f"{update} rows per update: expected a multiple of {ranks * micro}, the number of ranks, "
            f"{ranks}, times ppo_micro_batch_size_per_gpu, {micro}"
        )
    size = None if rollout.log_prob_use_dynamic_bsz else rollout.log_prob_micro_batch_size_per_gpu
    if not size or config.critic.enable or config.algorithm.adv_estimator == "gae":
        return
    batch = config.data.train_batch_size // option_at(
        config, f"trainer.v1.{_mode(config)}.parameter_sync_step", 1
    )
    whole = math.lcm(ranks, update)
    rows = math.ceil(batch * rollout.n / whole) * whole // ranks
    if rows % size:
        raise ConfigError(
            f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu={size}: each rank gets {rows} rows, which is not "
            "a multiple of it"
        )


def _mode(config: Any) -> str:
    return str(config.trainer.v1.trainer_mode).removeprefix("gem_")


@functools.cache
def _defaults() -> dict[str, Any]:
    file = Path(verl.trainer.__file__).parent / "config" / "_generated_ppo_trainer.yaml"
    defaults: dict[str, Any] = OmegaConf.to_container(OmegaConf.load(file))
    return defaults


def _pairs(
    defaults: Mapping[str, Any], given: Any, prefix: str = ""
) -> Iterator[tuple[str, bool | int | float, Any]]:
    """Yield the options whose defaults are numbers or switches, with the defaults and the given values."""
    for name, default in defaults.items():
        if not isinstance(given, Mapping) or name not in given:
            continue
        if isinstance(default, Mapping):
            yield from _pairs(default, given[name], f"{prefix}{name}.")
        elif isinstance(default, (bool, int, float)):
            yield f"{prefix}{name}", default, given[name]
