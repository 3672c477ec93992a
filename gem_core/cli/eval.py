"""`gem-core eval`: how good is a model at some environments?"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gem_core.cli import _console
from gem_core.cli._arguments import (
    add_json_flag,
    command_parser,
    is_pattern,
    positive_float,
    positive_int,
    seed,
)
from gem_core.errors import ConfigError

if TYPE_CHECKING:
    from gem_core.eval.run import EvalOutcome, Reporter
    from gem_core.rollout import Episode


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = command_parser(
        commands,
        "eval",
        "evaluate a model on environments",
        examples=[
            "--model random --envs game:GuessTheNumber-v0-easy game:Mastermind-v0-easy",
            "--model gpt-4o-mini --envs 'game:*-easy' --episodes 50 --samples 4 --out runs/mini",
            "--model my-model --base-url http://127.0.0.1:8000/v1 --envs math:Arithmetic-v0",
            "--model ./checkpoint --envs game:Wordle-v0",
        ],
        details=(
            "The key of an endpoint is read from OPENAI_API_KEY or the variable that --api-key-env names.\n"
            "A run that was stopped goes on when the same command is given again; a folder takes the\n"
            "episodes of one configuration only. `gem-core report FOLDER...` makes a page of the results.\n"
            "Of a data set only evaluation items are played, each one at most once per sample."
        ),
    )
    add = parser.add_argument
    add(
        "--model", required=True, metavar="M",
        help="random, oracle, a folder (hf:FOLDER), vllm:FOLDER, or a name at an endpoint (endpoint:NAME)",
    )  # fmt: skip
    add("--envs", required=True, nargs="+", metavar="ID", help="ids, 'ID(key=value)' or patterns")
    add("--episodes", type=positive_int, metavar="N", help="most tasks per environment (default 20)")
    add("--samples", type=positive_int, metavar="N", help="episodes per task; more than 1 gives pass@k")
    add("--seed", type=seed, metavar="N", help="of sampling; the tasks are always the same (default 0)")
    add("--out", metavar="DIR", help="folder of the run (default runs/eval)")
    add("--wrappers", metavar="NAMES", help="around each environment")
    add("--step-timeout", type=positive_float, metavar="S", help="seconds for a call of an environment")
    add("--on-env-error", choices=("mask", "retry"),
        help="what becomes of an episode whose environment failed: counted and left out (mask, the default), "
        "or first played again (retry)")  # fmt: skip
    add("--max-env-retries", type=positive_int, metavar="N", help="most attempts of retry (default 2)")
    sampling = parser.add_argument_group("sampling")
    add = sampling.add_argument
    add("--temperature", type=float, metavar="T", help="of sampling (default 1)")
    add("--top-p", type=float, metavar="P", help="of sampling (default 1)")
    add("--max-tokens-per-turn", type=positive_int, metavar="N", help="of an answer (default 1024)")
    add("--max-turns", type=positive_int, metavar="N", help="of an episode (default: the environment's)")
    add("--max-total-tokens", type=positive_int, metavar="N", help="of an episode; folders and vLLM only")
    add("--on-length-cut", choices=("invalid", "pass"), help="what a cut answer is (default invalid)")
    add("--system-prompt", metavar="TEXT", help="first message of each conversation")
    endpoint = parser.add_argument_group("endpoint")
    add = endpoint.add_argument
    add("--base-url", metavar="URL", help="address (default OPENAI_BASE_URL, else OpenAI)")
    add("--api-key-env", metavar="NAME", help="variable with the key (default OPENAI_API_KEY)")
    add("--concurrency", type=positive_int, metavar="N", help="most requests at the same time (default 8)")
    add("--requests-per-minute", type=positive_float, metavar="N", help="its limit (default none)")
    add("--tokens-per-minute", type=positive_float, metavar="N", help="its limit (default none)")
    add("--timeout", type=positive_float, metavar="S", help="seconds for one request (default 120)")
    add("--give-up-after", type=positive_float, metavar="S", help="seconds without any answer (default 60)")
    add("--no-send-seed", dest="send_seed", action="store_false", default=None, help="send no seeds")
    add("--price-in", type=float, metavar="USD", help="for a million tokens of prompts")
    add("--price-out", type=float, metavar="USD", help="for a million tokens of answers")
    add("--extra-body", type=_json_object, metavar="JSON", help="more for the body of each request")
    folder = parser.add_argument_group("folder")
    folder.add_argument(
        "--template-kwargs", type=_json_object, metavar="JSON", help="variables for the chat template"
    )
    folder.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:N (default auto)")
    folder.add_argument("--threads", type=int, metavar="N", help="torch threads (default torch's choice)")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Evaluate, and show the table."""
    import dataclasses

    from gem_core.eval import EvalConfig, evaluate

    names = {item.name for item in dataclasses.fields(EvalConfig)}
    given = {name: value for name, value in vars(args).items() if name in names and value is not None}
    given["envs"] = _expanded(args.envs)
    if args.api_key_env:
        given["api_key"] = _key(args.api_key_env)
    config = EvalConfig(**given)
    outcome = evaluate(config, _reporter(quiet=args.json))
    if args.json:
        _console.print_json(outcome.summary)
    else:
        _show(outcome)
    return 0


def _expanded(given: list[str]) -> list[str]:
    from gem_core.registration import list_envs

    chosen: list[str] = []
    for text in given:
        matching = list_envs(text) if is_pattern(text) else [text]
        if not matching:
            raise ConfigError(f"no environment matches {text!r}; `gem-core envs` lists all")
        chosen += [id for id in matching if id not in chosen]
    return chosen


def _json_object(text: str) -> dict[str, Any]:
    import json

    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object such as '{{\"key\": true}}'")
    return value


def _key(variable: str) -> str:
    import os

    key = os.environ.get(variable)
    if not key:
        raise ConfigError(f"the variable {variable} of --api-key-env is not set")
    return key


def _show(outcome: EvalOutcome) -> None:
    from gem_core.eval.report import SUMMARY_COLUMNS, summary_row

    rows = [summary_row(label, summary) for label, summary in outcome.summary["envs"].items()]
    if len(rows) > 1:
        rows.append(summary_row("all, each counting once", outcome.summary["overall"]))
    _console.print_table(SUMMARY_COLUMNS, rows, title=f"{outcome.summary['model']}")
    if outcome.repeated:
        _console.note(f"{outcome.repeated} calls failed and were made again")
    _console.note(f"{outcome.folder}: {outcome.played} episodes played; `gem-core report {outcome.folder}`")


def _reporter(quiet: bool) -> Reporter:
    import sys

    from gem_core.eval.run import Reporter

    console = None if quiet else _console.rich_console(sys.stderr)

    class Plain(Reporter):
        """A line when an environment is finished."""

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
        """A bar for each environment, with the mean return and success so far of this call."""

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
            if episode.error is not None:  # it says nothing about the model, as in the summary
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
