"""The plan of a run, which `gem-core doctor --trainer rl2` prints."""

from __future__ import annotations

from typing import Any

from gem_core._core import Split
from gem_core.tasks import EnvChoice
from gem_core.trainers import Plan
from gem_core.trainers._options import option_at
from gem_core.trainers._plan import SourceRows, count_rows, describe_budget, describe_truncation
from gem_rl2 import _SUPPORTED
from gem_rl2._options import choose_estimator, plays_gem, read_options
from gem_rl2._rows import tasks_of
from gem_rl2._upstream import SPLITS, Upstream


def plan_of(config: Any, upstream: Upstream) -> Plan:
    """Return the plan of a run.

    Args:
        config: RL2's whole config, after `gem_rl2._options.check_config`.
        upstream: The installed RL2.
    """
    sources, notes = [], []
    for split in SPLITS:
        found, problem = _sources(config, upstream, split)
        sources += found
        notes += problem
    limit = config.actor.max_length_per_device
    params = upstream.sampling_params(config, "train")
    if plays_gem(config):
        options = read_options(config)
        turns = [options.max_turns, config.rollout.max_turns if upstream.is_index else None]
        tokens = [options.max_tokens_per_turn, params.get("max_new_tokens")]
        budget = describe_budget(
            min((n for n in turns if n), default=None),
            min((n for n in tokens if n), default=None),
            None if options.context == "rebuild" else limit,
            "actor.max_length_per_device",
            with_prompt=True,
        )
    else:
        budget = f"{config.rollout.env_path} limits an episode, and actor.max_length_per_device={limit} a row"
    notes += describe_truncation(f"{upstream.sampling_section('train')}.", params)
    name = str(config.adv.estimator)
    own = name in _SUPPORTED.own_estimators
    estimator = f"RL2's {name}, gamma={config.adv.gamma}" if own else choose_estimator(config.adv).summary
    return Plan(sources, estimator, [budget], notes)


def _sources(config: Any, upstream: Upstream, split: str) -> tuple[list[SourceRows], list[str]]:
    """Return the rows of a file of the dataset, and notes about it."""
    label: Split = "train" if split == "train" else "eval"
    option = f"{upstream.data_section(split)}.path"
    path = option_at(config, option)
    if path is None:
        held = "no evaluation takes place"
        if not upstream.is_index:
            held = f"RL2 sets aside rollout.test_ratio={config.rollout.test_ratio} of the training rows"
        return [], [f"{option} is not set: {held}"] if label == "eval" else []
    ours = plays_gem(config)
    played = ("gem_rl2", "the environment") if ours else (str(config.rollout.env_path),) * 2
    tasks = list(tasks_of(str(path))) if ours else []
    notes = []
    if label == "eval" and config.trainer.test_freq is None and not option_at(config, "trainer.eval_only"):
        notes = ["trainer.test_freq is not set: no evaluation takes place"]
    if tasks:
        return count_rows((label, EnvChoice.of(task).label, *played) for _, task in tasks), notes
    return [SourceRows(label, str(path), *played, None)], notes
