"""The plan of a run, which `gem-core doctor --trainer oat` prints."""

from __future__ import annotations

from gem_core._tasks import evaluation_tasks
from gem_core.tasks import EnvChoice
from gem_core.trainers import Plan
from gem_core.trainers._plan import SourceRows, count_rows, describe_budget, describe_truncation
from gem_oat._args import Args

PLAYED = ("gem_oat.Actor", "the environment")
"""What plays the rows, and what rewards them."""


def plan_of(args: Args) -> Plan:
    """Return the plan of a run.

    Args:
        args: Arguments after `gem_oat._checks.prepare`.
    """
    sources = [
        SourceRows("train", source.label + (f" (weight {source.weight:g})" * mixed), *PLAYED, None)
        for mixed in [len(args.sources) > 1]
        for source in args.sources
    ]
    if args.eval_steps > 0:
        tasks = evaluation_tasks(args.eval_sources, args.max_eval, repeat=args.eval_n)
        sources += count_rows(("eval", EnvChoice.of(task).label, *PLAYED) for task in tasks)
    options = args.rollout_options()
    limit = None if options.context == "rebuild" else args.max_model_len
    budget = describe_budget(
        options.max_turns, args.generate_max_length, limit, "--max-model-len", with_prompt=True
    )
    notes = [
        f"a step trains on {args.rollout_batch_size:,} turns, and the run on {args.max_train:,}, however "
        "many episodes they come from"
    ]
    if args.eval_steps <= 0:
        notes.append(f"--eval-steps={args.eval_steps}: no evaluation takes place")
    notes += describe_truncation("--", {"top_p": args.top_p, "top_k": args.top_k})
    return Plan(sources, args.choose_estimator().summary, [budget], notes)
