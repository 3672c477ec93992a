"""`gem-core template`: show what a chat template does with an episode."""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING

from gem_lab._cli import _console
from gem_lab._cli._arguments import CliCommand, add_json_flag

if TYPE_CHECKING:
    from gem_chat._report import TemplateReport

COMMAND = CliCommand(
    "show what a chat template does with an episode",
    examples=["Qwen/Qwen3-0.6B", "template.jinja --tools", "runs/model --json"],
    details="A file is read with a stand-in tokenizer, which has one token per byte and the special tokens "
    "that the template spells. The exit code is 1 if contexts that only append tokens reject the template, "
    "or, with --tools, if it does not show the schemas of tools.",
)

_WIDTH = 80
_LABEL = 15
_SELF_TEST = {
    "equal": "four turns have the tokens that the template gives the whole conversation",
    "keeps": "four turns have the tokens that the template gives the whole conversation, except that marks "
    "of thoughts and answers stay in the history, as the model saw them",
    "differs": "four turns differ from the template's own rendering of the whole conversation; first "
    "difference, played and rendered:",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "source", metavar="MODEL|FILE", help="model folder, name on the Hugging Face Hub, or Jinja file"
    )
    parser.add_argument("--tools", action="store_true", help="require that the template shows tools")
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Print the report; return exit code 1 if the template does not suffice."""
    from gem_chat._report import describe_template
    from gem_lab._engines.loading import load_template

    report = describe_template(load_template(args.source))
    if args.json:
        _console.print_json({"source": args.source, **asdict(report)})
    else:
        for line in page(args.source, report):
            _console.print_text(line)
    return int(report.rejected is not None or (args.tools and "tools" in report.dropped))


def page(source: str, report: TemplateReport) -> list[str]:
    """Return the report as lines of at most 80 columns."""
    facts = [("template", source)]
    if report.rejected is None:
        facts.append(("accepted", "yes"))
    else:
        others = {"template": report.template_rejected, "rebuild": report.rebuild_rejected}
        accepting = [f"context={kind}" for kind, reason in others.items() if reason is None]
        remedy = f" It is accepted with {' or '.join(accepting)}." if accepting else ""
        facts.append(("accepted", f"no: {report.rejected}.{remedy}"))
    if report.stops or report.ends:
        extra = report.extra_stop
        stops = ", ".join(report.stops) or "none"
        facts += [
            ("answer ends", " ".join(map(repr, report.ends)) if report.ends else "with plain text"),
            ("engine stops", f"{stops}{f'; must also stop at {extra}' if extra else ''}"),
            ("thoughts", _thoughts(report)),
        ]
    facts.append(("system prompt", "dropped" if "system prompt" in report.dropped else "shown"))
    facts.append(("tools", _tools(report)))
    if report.self_test is not None:
        facts.append(
            (
                "tool turns",
                f"no: {report.tool_turns}"
                if report.tool_turns
                else "results come back as the template writes them",
            )
        )
    if report.stops or report.ends:
        facts.append(("header", "depends on the day" if report.dated else "the same every day"))
    facts.append(("guarded", f"{report.guarded} tokens, which texts of the environment cannot spell"))
    if report.self_test is not None:
        facts.append(("self-test", _SELF_TEST[report.self_test]))
        facts += [("", repr(text)) for text in report.difference]
    return [line for label, text in facts for line in _lines(label, text)]


def _thoughts(report: TemplateReport) -> str:
    if report.thinking is None:
        return "none in the template"
    before, behind = report.thinking
    return f"{before!r} ... {behind!r}{', opened by the prompt' if report.prefilled else ''}"


def _tools(report: TemplateReport) -> str:
    shown = "schemas dropped" if "tools" in report.dropped else "schemas shown"
    return f"{shown}; calls {f'in the format {report.calls}' if report.calls else 'in no known format'}"


def _lines(label: str, text: str) -> list[str]:
    room = _WIDTH - _LABEL
    lines = textwrap.wrap(text, room, break_on_hyphens=False, break_long_words=True) or [""]
    return [f"{label if not index else '':<{_LABEL}}{line}" for index, line in enumerate(lines)]
