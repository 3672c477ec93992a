"""The plan of a run for `gem-core doctor`: rows by source, estimator, tokens, and options of sampling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from gem_core._core import Split
from gem_core.trainers import Plan
from gem_core.trainers._options import AdvantageOptions
from gem_core.trainers._plan import SourceRows, count_rows, describe_budget
from gem_trl._config import GemConfig, changed_distribution
from gem_trl._dataset import source_rows
from gem_trl._rewards import episode_return, func_name

if TYPE_CHECKING:
    from gem_trl._trainer import GemGRPOTrainer

LIMIT = "max_completion_length"


def plan_of(trainer: GemGRPOTrainer, given: Mapping[str, Any]) -> Plan:
    """Return what a run would do.

    Args:
        trainer: The trainer, before TRL's constructor.
        given: Arguments of TRL's constructor.
    """
    args, gem = given["args"], trainer.gem
    funcs = given["reward_funcs"] if isinstance(given["reward_funcs"], list) else [given["reward_funcs"]]
    own = ", ".join(func_name(func) for func in funcs if func is not episode_return)
    splits: list[tuple[str, Split]] = [("train_dataset", "train"), ("eval_dataset", "eval")]
    rows = [
        (split, source, is_task)
        for name, split in splits
        for source, is_task in source_rows(given.get(name), name)
    ]
    answers = "TRL" if trainer.gem_rollout is None else "gem_trl in one turn"
    counted = count_rows(
        (split, source, "gem_trl", "the environment") if is_task else (split, source, answers, own)
        for split, source, is_task in rows
    )
    streams = {split for name, split in splits if not hasattr(given.get(name), "__len__")}
    sources = [row._replace(rows=None) if row.split in streams else row for row in counted]
    notes = [*_unused(trainer), *_notes(args, gem)]
    return Plan(sources, trainer.choice.summary, list(_budget(sources, args, gem)), notes)


def _unused(trainer: GemGRPOTrainer) -> Iterator[str]:
    """Yield a note about options of the rollout if TRL plays all rows."""
    read = {"modules", *(item.name for item in fields(AdvantageOptions))}
    own, defaults = asdict(trainer.gem), asdict(GemConfig())
    changed = [name for name in own if name not in read and own[name] != defaults[name]]
    if trainer.gem_rollout is None and changed:
        yield f"{', '.join(changed)}: no effect, because TRL plays all rows; add an environment, or omit this"


def _budget(sources: list[SourceRows], args: Any, gem: Any) -> Iterator[str]:
    limit = args.max_completion_length
    if any(row.player == "gem_trl" for row in sources):
        yield describe_budget(gem.max_turns, gem.max_tokens_per_turn, limit, LIMIT)
    if any(row.player == "gem_trl in one turn" for row in sources):
        yield f"an answer to a prompt of your own has at most {LIMIT}={limit:,} tokens"


def _notes(args: Any, gem: Any) -> Iterator[str]:
    if changed := changed_distribution(args):
        yield f"{changed}: responses come from another distribution than the policy's, which the loss uses"
    if args.use_vllm and args.vllm_importance_sampling_correction and "sequence" in _mode(args):
        yield (
            f"vllm_importance_sampling_mode={_mode(args)} multiplies the ratios of all tokens of an episode; "
            "an episode that it masks is left out of statistics and loss"
        )


def _mode(args: Any) -> str:
    return str(args.vllm_importance_sampling_mode)
