"""`gem-core eval`: evaluate a model on environments."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gem_chat._files import read_text
from gem_core.errors import ConfigError
from gem_lab._cli import _console
from gem_lab._cli._arguments import CliCommand, add_json_flag, add_option_flags, given_options, is_pattern

if TYPE_CHECKING:
    from gem_core.rollout import Episode
    from gem_lab.eval._run import EvalOutcome, EvalReporter


COMMAND = CliCommand(
    "evaluate a model on environments",
    examples=[
        "--model random --env game:GuessTheNumber-v0-easy game:Mastermind-v0-easy",
        "--model gpt-4o-mini --env 'game:*-easy' --episodes 50 --group-size 4 --out runs/mini",
        "--model my-model --base-url http://127.0.0.1:8000/v1 --env math:Arithmetic-v0",
        "--model ./checkpoint --env game:Wordle-v0",
        "--rescore runs/mini --out runs/mini-rescored",
    ],
    details=(
        "To resume a stopped run, repeat the command. To extend a finished run, raise --episodes or "
        "--group-size; with any other change, use a new folder. "
        "Only the evaluation items of a dataset are played, each at most once per sample. "
        "--rescore replays the recorded answers of a run in the environments of this version, without a "
        "model, and lists the scores that changed; exit code 1 if an episode cannot be scored, for "
        "instance because its observations have changed. "
        "Exit code 1 if every episode failed. "
        "`gem-core report FOLDER...` writes a page of the results."
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from gem_lab.eval._config import EvalConfig

    add_option_flags(parser, EvalConfig)
    parser.add_argument(
        "--api-key-env",
        metavar="NAME",
        help="environment variable that holds the key of the endpoint (default OPENAI_API_KEY)",
    )
    parser.add_argument(
        "--rescore", metavar="RUN", help="grade the recorded answers of a run, without a model"
    )
    parser.add_argument(
        "--trust-run",
        action="store_true",
        default=None,
        help="for --rescore: use the files, programs, and addresses that the recorded run names",
    )
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Evaluate, or grade recorded answers again, and print the table."""
    if args.rescore:
        return _rescore(args)
    if args.trust_run:
        raise ConfigError("--trust-run has no effect without --rescore RUN; remove it, or add --rescore")
    if missing := [f"--{name}" for name in ("model", "env") if getattr(args, name) is None]:
        raise ConfigError(f"expected {' and '.join(missing)}, or --rescore RUN; see --help")
    from gem_lab.eval import EvalConfig, evaluate

    values = given_options(args, EvalConfig) | {"env": _expand(args.env)}
    if args.api_key_env:
        values["api_key"] = _read_key(args.api_key_env)
    config = EvalConfig(**values)
    outcome = evaluate(config, _reporter(quiet=args.json))
    if args.json:
        _console.print_json(outcome.summary)
    else:
        _show(outcome)
    return int(not outcome.summary["overall"]["episodes"])


def _rescore(args: argparse.Namespace) -> int:
    from gem_lab.eval._rescore import rescore

    allowed = {"rescore", "trust_run", "out", "concurrency", "json", "run", "command"}
    if extra := sorted(
        name for name, value in vars(args).items() if value is not None and name not in allowed
    ):
        names = ", ".join("--" + name.replace("_", "-") for name in extra)
        raise ConfigError(f"--rescore uses the options of the recorded run; omit {names}")
    out = args.out or f"{args.rescore.rstrip('/')}-rescored"
    result = rescore(
        args.rescore,
        out,
        _reporter(quiet=args.json),
        concurrency=args.concurrency or 8,
        trust_run=bool(args.trust_run),
    )
    if args.json:
        _console.print_json(
            {
                "folder": str(result.folder),
                "scored": result.scored,
                "differences": result.differences,
                "unscored": result.unscored,
                "summary": result.summary,
            }
        )
        return int(bool(result.unscored))
    columns = ("environment", "task", "sample", "return", "success")
    rows = [
        [
            item["env"], str(item["task"]), str(item["sample"]),
            "{:.3f} -> {:.3f}".format(*item["return"]), "{} -> {}".format(*item["success"]),
        ]
        for item in result.differences
    ]  # fmt: skip
    if rows:
        _console.print_table(columns, rows, title="Scores that changed")
    _print_summary(result.summary)
    for item in result.unscored:
        _console.note(f"{item['env']}, task {item['task']}, sample {item['sample']}: {item['reason']}")
    _console.note(
        f"{result.folder}: {result.scored} episodes scored, {len(rows)} scores changed, "
        f"{len(result.unscored)} not scored; compare with `gem-core report {args.rescore} {result.folder}`"
    )
    return int(bool(result.unscored))


def _expand(texts: list[str]) -> list[str]:
    from gem_core import list_envs

    chosen: list[str] = []
    for text in (line for argument in texts for line in _lines(argument)):
        matching = list_envs(text) if is_pattern(text) else [text]
        if not matching:
            raise ConfigError(f"no environment matches {text!r}; `gem-core envs` lists all")
        chosen += [id for id in matching if id not in chosen]
    return chosen


def _lines(text: str) -> list[str]:
    """Return the lines of a suite ``@FILE`` without blank lines and comments, or the text itself."""
    if not text.startswith("@"):
        return [text]
    try:
        lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in read_text(text[1:]).split("\n")]
    except OSError as error:
        raise ConfigError(f"--env {text}: {error.strerror}") from None
    if not any(lines):
        raise ConfigError(f"--env {text}: the file names no environment; expected one in each line")
    return [line for line in lines if line]


def _read_key(variable: str) -> str:
    import os

    key = os.environ.get(variable)
    if not key:
        raise ConfigError(f"--api-key-env={variable}: this environment variable is not set")
    return key


def _show(outcome: EvalOutcome) -> None:
    _print_summary(outcome.summary)
    if failed := [episode for episode in outcome.episodes if episode.error is not None]:
        _console.note(
            f"{len(failed)} of {len(outcome.episodes)} episodes failed; the first is {failed[0].env_id} with "
            f"seed {failed[0].seed}: {failed[0].error}"
        )
    if outcome.repeated:
        many = (
            "1 call failed and was" if outcome.repeated == 1 else f"{outcome.repeated} calls failed and were"
        )
        _console.note(f"{many} retried")
    _console.note(
        f"{outcome.folder}: {outcome.played} episodes played; for a web page, run "
        f"`gem-core report {outcome.folder}`"
    )


def _print_summary(summary: Mapping[str, Any]) -> None:
    from gem_lab.eval._report import SUMMARY_COLUMNS, summary_rows

    _console.print_table(SUMMARY_COLUMNS, summary_rows(summary), title=summary["model"])


def _reporter(quiet: bool) -> EvalReporter:
    import sys

    from gem_lab.eval._run import EvalReporter

    console = None if quiet else _console.rich_console(sys.stderr)

    class Plain(EvalReporter):
        """Reporter that prints a line when an environment is finished."""

        def note(self, text: str) -> None:
            if not quiet:
                _console.note(text)

        def start(self, totals: Mapping[str, int], done: Mapping[str, int]) -> None:
            self.left = {label: totals[label] - done[label] for label in totals}

        def episode(self, label: str, episode: Episode) -> None:
            self.left[label] -= 1
            if not self.left[label]:
                self.note(f"{label}: all episodes are finished")

    if console is None:
        return Plain()
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    class Bars(Plain):
        """Reporter that shows a bar per environment, with the mean return and success of this call."""

        def start(self, totals: Mapping[str, int], done: Mapping[str, int]) -> None:
            figures = TextColumn("return {task.fields[total_return]} solved {task.fields[solved]}")
            self.bars = Progress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                figures, console=console,
            )  # fmt: skip
            self.played: dict[str, list[Episode]] = {label: [] for label in totals}
            self.ids: dict[str, Any] = {
                label: self.bars.add_task(
                    label, total=totals[label], completed=done[label], total_return="-", solved="-"
                )
                for label in totals
            }
            self.bars.start()

        def episode(self, label: str, episode: Episode) -> None:
            from statistics import fmean

            self.bars.update(self.ids[label], advance=1)
            if episode.error is not None:  # also excluded from the summary
                return
            played = self.played[label]
            played.append(episode)
            self.bars.update(
                self.ids[label],
                total_return=f"{fmean(one.total_reward for one in played):.2f}",
                solved=f"{fmean(one.success for one in played):.2f}",
            )

        def close(self) -> None:
            if hasattr(self, "bars"):
                self.bars.stop()

    return Bars()
