"""The plan of a run, which `gem-core doctor --trainer roll` prints."""

from __future__ import annotations

from typing import Any

from gem_core._core import Split
from gem_core.trainers import Plan
from gem_core.trainers._plan import SourceRows, describe_budget, describe_truncation
from gem_roll._kinds import OURS, STEP, tag_section
from gem_roll._options import GemOptions, check_tag
from gem_roll._tasks import rows_of


def plan_of(config: Any, options: GemOptions, *, own_pipeline: bool) -> Plan:
    """Return the plan of a run.

    Args:
        config: ROLL's `AgenticConfig`, after its checks.
        options: Options of the section ``custom_envs.gem``.
        own_pipeline: Whether ROLL's own pipeline runs, with ROLL's estimator.
    """
    sections: dict[Split, Any] = {"train": config.train_env_manager}
    notes = []
    if config.eval_steps > 0:
        sections["eval"] = config.val_env_manager
    else:
        notes.append(f"eval_steps={config.eval_steps}: no validation takes place")
    sources: list[SourceRows] = []
    budget: dict[str, None] = {}  # without repetitions
    for split, section in sections.items():
        for tag in section.tags:
            sources.append(_source(config, options, split, tag))
            budget[_budget(config, options, tag)] = None
    generating = config.actor_infer.generating_args
    sampling = {name: getattr(generating, name, None) for name in ("top_p", "top_k")}
    notes += describe_truncation("actor_infer.generating_args.", sampling)
    if own_pipeline:
        estimator = f"ROLL's {config.adv_estimator}, gamma={config.gamma} per token"
        notes.append("ROLL's own pipeline counts a failed episode with a score of 0")
    else:
        estimator = options.choose_estimator(config).summary
    return Plan(sources, estimator, list(budget), notes)


def _source(config: Any, options: GemOptions, split: Split, tag: str) -> SourceRows:
    section = config.train_env_manager if split == "train" else config.val_env_manager
    manager = tag_section(config, tag)["env_manager_cls"]
    groups = list(section.num_groups_partition)[list(section.tags).index(tag)]
    share = f"tag {tag}, {groups} of {section.num_env_groups} groups of {section.group_size}"
    if manager not in OURS:
        return SourceRows(
            split, f"{tag_section(config, tag)['env_type']} ({share})", manager, "the environment", None
        )
    source, _ = check_tag(config, tag)
    path = options.task_file(split)
    rows = None
    if path is not None:
        rows = len(rows_of(path, tag, source.for_split(split), training=split == "train"))
    elif split == "eval":
        rows = groups * section.max_traj_per_env
    return SourceRows(split, f"{source.label} ({share})", manager, "the environment", rows)


def _budget(config: Any, options: GemOptions, tag: str) -> str:
    section = tag_section(config, tag)
    longest = config.actor_infer.generating_args.max_new_tokens
    per_turn = min(section.get("max_tokens_per_step") or longest, longest)
    turn_rows = section["env_manager_cls"] == STEP and options.context == "rebuild"
    limit = None if turn_rows else config.sequence_length
    return describe_budget(section.get("max_steps"), per_turn, limit, "sequence_length", with_prompt=True)
