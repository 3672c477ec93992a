"""`gem-core view`: convert a trace to a web page."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gem_core.cli import _console
from gem_core.cli._arguments import add_json_flag, command_parser, number
from gem_core.errors import ConfigError


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = command_parser(
        commands,
        "view",
        "turn a trace into a web page",
        examples=[
            "runs/demo/traces.jsonl",
            "traces.jsonl --out page.html --tokenizer runs/demo/model",
        ],
        details=(
            "The page works without a network or a server; open it in a browser. Its address describes the "
            "view, as in page.html#episode=3&q=higher&tokens=1, so you can link to a view."
        ),
    )
    parser.add_argument("trace", metavar="TRACE", help="JSON Lines file of episodes")
    parser.add_argument(
        "--out", metavar="FILE", help="page to write (default: name of the trace, with .html)"
    )
    parser.add_argument(
        "--tokenizer", metavar="DIR", help="tokenizer for traces that do not contain the text of tokens"
    )
    parser.add_argument(
        "--gamma",
        type=number(0, 1),
        default=1.0,
        metavar="G",
        help="discount of the return-to-go, for episodes that do not record one (default 1)",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the page."""
    from gem_core.eval.viewer import write_page
    from gem_core.rollout.traces import read_token_texts, read_traces

    trace = Path(args.trace)
    out = Path(args.out) if args.out else trace.with_suffix(".html")
    if out.exists() and out.samefile(trace):
        raise ConfigError(f"--out {out} is the trace itself")
    texts = read_token_texts(trace)
    fallback = _decoder(args.tokenizer) if args.tokenizer else texts.get
    summary = write_page(
        read_traces(trace),
        out,
        title=trace.name,
        token_text=lambda id: texts.get(id) or fallback(id),
        gamma=args.gamma,
    )
    if args.json:
        _console.print_json(
            {"page": str(out), "episodes": summary.episodes, "turns": summary.turns, "bytes": summary.size}
        )
    else:
        _console.note(f"wrote {summary.episodes} episodes to {out}; open it in a browser")
    return 0


def _decoder(folder: str) -> Callable[[int], str]:
    from gem_core.wrappers.chat import load_tokenizer

    tokenizer: Any = load_tokenizer(folder)
    return lambda id: str(tokenizer.decode([id]))
