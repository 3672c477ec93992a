"""`gem-core exam`: compare advantage estimators with exact policy gradients."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gem_lab._cli import _console
from gem_lab._cli._arguments import (
    LIST,
    CliCommand,
    a_number,
    add_json_flag,
    add_option_flags,
    given_options,
    listed,
    positive_int,
)

if TYPE_CHECKING:
    from gem_lab.exam import Exam


COMMAND = CliCommand(
    "compare advantage estimators with exact policy gradients",
    examples=[
        "rebn grpo --tasks stop --budget 5000",
        "--html exam.html",
        "grpo --tasks stop --batch-sizes 64 4096 --group-sizes 2 4 8 16",
        "my_package.credit:my_estimator --workers 1 --json",
    ],
    details=(
        "Every estimator computes advantages on small tasks whose policy gradient is known exactly. The "
        "table shows whether the expected gradient points in the right direction (with an error rate of "
        "1%), the largest relative bias and its task, and the signal-to-noise ratio of a batch "
        "relative to plain REINFORCE. All estimators on all tasks take about two minutes on two cores."
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from gem_lab._options import RunOptions

    parser.add_argument(
        "estimators",
        nargs="*",
        metavar="ESTIMATOR",
        help="names, such as \"rebn(statistics='group')\", or functions as module:function (default: all)",
    )
    parser.add_argument("--tasks", **LIST, type=listed(), metavar="NAME", help="tasks (default: all)")
    parser.add_argument(
        "--stages",
        **LIST,
        type=listed(),
        metavar="NAME",
        help="initial, halfway, or late (default: initial halfway)",
    )
    parser.add_argument(
        "--batch-sizes", **LIST, type=listed(positive_int), metavar="N",
        help="episodes per batch (default 8 64 512)",
    )  # fmt: skip
    parser.add_argument(
        "--group-sizes", **LIST, type=listed(positive_int), metavar="N",
        help="episodes per group (default 8)",
    )  # fmt: skip
    parser.add_argument(
        "--gammas", **LIST, type=listed(a_number), metavar="G",
        help="discounts per turn; certificates use the largest (default 1)",
    )  # fmt: skip
    parser.add_argument(
        "--aggregation",
        default="token-sum",
        choices=("token-sum", "turn-mean", "episode-mean", "token-mean"),
        metavar="NAME",
        help="aggregation shown in the table: token-sum, turn-mean, episode-mean, or token-mean; the JSON "
        "document has all (default token-sum)",
    )
    parser.add_argument(
        "--budget", type=positive_int, default=60_000, metavar="TURNS",
        help="turns to play for each task, stage, and size (default 60000)",
    )  # fmt: skip
    add_option_flags(parser, RunOptions, "seed")
    parser.add_argument(
        "--workers", type=positive_int, default=os.cpu_count() or 1, metavar="N",
        help="processes; the results do not depend on it (default: one per core)",
    )  # fmt: skip
    parser.add_argument(
        "--resume", metavar="FOLDER", help="save finished parts in this folder, and continue from them"
    )
    parser.add_argument("--html", metavar="FILE", help="also write a page with plots")
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Run the exam and print the certificates."""
    from gem_lab import exam
    from gem_lab._options import RunOptions

    chosen = [_load(name) for name in args.estimators] or None
    settings: dict[str, Any] = {
        "budget": args.budget,
        **given_options(args, RunOptions),
        "workers": args.workers,
        "resume": args.resume,
    }
    with _console.progress("exam", 1.0) as advance:
        result = exam.run(
            chosen,
            tasks=args.tasks,
            stages=args.stages or ["initial", "halfway"],
            batch_sizes=args.batch_sizes or [8, 64, 512],
            group_size=args.group_sizes or [8],
            gamma=args.gammas or [1.0],
            advance=advance,
            **settings,
        )
    if args.html:
        _write_page(args.html, result, chosen, settings)
    if args.json:
        rounded = [{key: _rounded(value) for key, value in asdict(row).items()} for row in result.results]
        _console.print_json(
            {
                "config": result.config,
                "certificates": [asdict(certificate) for certificate in result.certificates],
                "skipped": result.skipped,
                "results": rounded,
            }
        )
    else:
        _print(result, args.aggregation)
    return 0


def _write_page(
    out: str,
    result: Exam,
    chosen: list[str | Callable[..., Any]] | None,
    settings: dict[str, Any],
) -> None:
    from gem_lab.exam._page import write_page
    from gem_lab.exam._sweeps import sweep_gamma, sweep_groups, sweep_turns

    sweeps: dict[str, Exam] = {}
    for name, sweep in (("gammas", sweep_gamma), ("groups", sweep_groups), ("turns", sweep_turns)):
        with _console.progress(f"{name} for the page", 1.0) as advance:
            sweeps[name] = sweep(chosen, advance=advance, **settings)
    write_page(result, out, **sweeps)


def _print(result: Exam, aggregation: str) -> None:
    rows = []
    for certificate in result.certificates:
        if certificate.aggregation == aggregation:
            bias = f"{certificate.bias:.1%}"
            if certificate.verdict in ("unbiased", "not decided"):
                bias = f"<{max(certificate.bias, 0.001):.1%}"
            gain = relative_snr(result, certificate.estimator, aggregation)
            rows.append(
                [
                    certificate.estimator,
                    certificate.verdict,
                    bias,
                    f"{certificate.task} {certificate.batch_size}",
                    "" if gain is None else f"{gain:.2f}",
                ]
            )
    title = f"Bias of the expected gradient, {aggregation}; signal-to-noise relative to REINFORCE"
    _console.print_table(["estimator", "verdict", "bias", "task and B", "SNR"], rows, title=title)
    for name, reason in result.skipped.items():
        _console.note(f"{name} left out: {reason}")


def relative_snr(result: Exam, estimator: str, aggregation: str) -> float | None:
    """Return the geometric mean over tasks of the SNR relative to REINFORCE, at the largest batch size.

    None if REINFORCE did not take part.
    """
    size = max(result.config["batch_sizes"])
    plain = {
        (row.task, row.stage, row.gamma): row.snr
        for row in result.select(estimator="reinforce", aggregation=aggregation, batch_size=size)
    }
    logs = [
        math.log(row.snr / base)
        for row in result.select(estimator=estimator, aggregation=aggregation, batch_size=size)
        if row.snr and (base := plain.get((row.task, row.stage, row.gamma)))
    ]
    return math.exp(sum(logs) / len(logs)) if logs else None


def _load(name: str) -> str | Callable[..., Any]:
    """Return the function that ``module:function`` names, or the name of an estimator."""
    if ":" not in name:
        return name
    from gem_core._util.entry_points import check_entry_point, load_attribute

    check_entry_point("estimator", name)
    function: Callable[..., Any] = load_attribute("estimator", name)
    return function


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
