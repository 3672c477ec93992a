"""`gem-core harness check`: play a scripted policy through an installed agent."""

from __future__ import annotations

import argparse
import asyncio
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING

from gem_lab._cli import _console
from gem_lab._cli._arguments import CliCommand, add_json_flag, positive_float

if TYPE_CHECKING:
    from gem_agents._check import HarnessReport

COMMAND = CliCommand(
    "play a scripted policy through an agent, and show what it needs and changes",
    examples=["check claude-code", "check my_package.agent:play --json"],
    details="Needs no model, no account, and no network. The exit code is 1 if the agent fails, or if it\n"
    "sends back an answer that was not sampled. An agent that is not installed is an error that says\n"
    "how to install it.",
)

_WIDTH, _LABEL = 80, 15
_MOST = 4
"""Maximum number of texts that a report shows of a kind."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("action", choices=["check"], help="action to take")
    parser.add_argument("name", metavar="NAME", help="registered name, module:function, or command")
    parser.add_argument(
        "--timeout", type=positive_float, default=300.0, metavar="SECONDS", help="maximum time of the agent"
    )
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Play, and print the report; return exit code 1 if the agent fails or is not recognized."""
    from gem_agents._check import check_harness
    from gem_agents._scripted import CHAT_TEMPLATE
    from gem_chat._report import stand_in_tokenizer

    report = asyncio.run(check_harness(args.name, stand_in_tokenizer(CHAT_TEMPLATE), args.timeout))
    if args.json:
        _console.print_json({"ok": report.ok, **asdict(report)})
    else:
        for line in report_lines(report):
            _console.print_text(line)
    return int(not report.ok)


def report_lines(report: HarnessReport) -> list[str]:
    """Return the report as lines of at most 80 columns."""
    answers = report.recognized + report.spliced + sum(report.foreign.values())
    spliced = f", {report.spliced} of them in a rewritten history" if report.spliced else ""
    facts = [
        ("harness", report.name),
        ("agent", f"{report.program} {report.version or '(version unknown)'}"),
        ("calls", _counted(report.endpoints)),
        ("user agent", report.user_agent or "none"),
        ("own headers", ", ".join(report.headers) or "none"),
        ("system prompt", f"{report.system} characters" if report.system else "none"),
        ("tools", f"{len(report.tools)}: {', '.join(report.tools)}" if report.tools else "none"),
        ("no effect", ", ".join(report.unserved) or "none of its parameters"),
        ("changes", _counted(report.changes) or "nothing in what the model said"),
        ("recognized", f"{report.recognized + report.spliced} of {answers} answers{spliced}"),
        *(("", f"not sampled: {text!r}") for text in [*report.foreign][:_MOST]),
        ("rows of tokens", f"{len(report.rows)}, {'exact' if report.exact else 'NOT what was sampled'}"),
        *(("", why) for why in report.rows[1 : _MOST + 1]),
        ("actions", f"{report.actions} in the environment"),
    ]
    if report.error is not None:
        facts.append(("failed", report.error))
    return [line for label, text in facts for line in _lines(label, text)]


def _counted(counts: dict[str, int]) -> str:
    return "; ".join(f"{count} {name}" for name, count in counts.items())


def _lines(label: str, text: str) -> list[str]:
    lines = textwrap.wrap(text, _WIDTH - _LABEL, break_on_hyphens=False) or [""]
    return [f"{label if not index else '':<{_LABEL}}{line}" for index, line in enumerate(lines)]
