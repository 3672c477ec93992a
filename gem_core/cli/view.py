"""`gem-core view`: a trace as one web page."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gem_core.cli import _console
from gem_core.cli._arguments import add_json_flag, command_parser
from gem_core.errors import ConfigError


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = command_parser(
        commands,
        "view",
        "turn a trace into one web page",
        examples=[
            "runs/demo/traces.jsonl",
            "traces.jsonl --out page.html --tokenizer runs/demo/model",
        ],
        details=(
            "The page needs no network and no server: open it in a browser. Its address holds the\n"
            "view, such as page.html#episode=3&q=higher&tokens=1, so a view can be linked.\n"
        ),
    )
    parser.add_argument("trace", metavar="TRACE", help="file of episodes, one JSON document a line")
    parser.add_argument("--out", metavar="FILE", help="page to write (default: the trace's name with .html)")
    parser.add_argument(
        "--tokenizer", metavar="DIR", help="shows tokens as text where the trace does not hold it"
    )
    parser.add_argument(
        "--gamma",
        type=_discount,
        default=1.0,
        metavar="G",
        help="discount of the return-to-go, for episodes that do not say (default 1)",
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


def _discount(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a discount from 0 to 1, not {text}")
    return value
