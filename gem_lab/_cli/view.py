"""`gem-core view`: convert a trace, or the runs in a folder, to web pages."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gem_core.errors import ConfigError
from gem_lab._cli import _console
from gem_lab._cli._arguments import CliCommand, add_json_flag, number_between, positive_float
from gem_lab._pages.document import check_page

if TYPE_CHECKING:
    from gem_core.rollout import Episode


COMMAND = CliCommand(
    "turn a trace, or all runs in a folder, into web pages",
    examples=[
        "runs/demo/traces.jsonl",
        "traces.jsonl --out page.html --tokenizer runs/demo/model",
        "runs --watch",
    ],
    details=(
        "The page works without a network or a server; open it in a browser. Its address describes the "
        "view, as in page.html#episode=3&q=higher&tokens=1, so you can link to a view.\n\n"
        "For a folder, the command writes an index of the evaluations, training runs, consistency "
        "records, and traces in it, with a page for each. --watch keeps them up to date during runs."
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "trace",
        metavar="TRACE|DIR",
        help="JSON Lines file of episodes, log of Inspect, trajectory in ATIF, or folder of runs",
    )
    parser.add_argument(
        "--out", metavar="FILE", help="page to write (default: name of the trace, with .html; DIR/index.html)"
    )
    parser.add_argument(
        "--watch",
        type=positive_float,
        nargs="?",
        const=5.0,
        metavar="S",
        help="rewrite the pages of a folder every S seconds (default 5) until Ctrl-C",
    )
    parser.add_argument(
        "--tokenizer", metavar="DIR", help="tokenizer for traces that do not contain the text of tokens"
    )
    parser.add_argument(
        "--gamma",
        type=number_between(0, 1),
        default=1.0,
        metavar="G",
        help="discount of the return-to-go, for episodes that do not record one (default 1)",
    )
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Write the page, or the pages of a folder."""
    if Path(args.trace).is_dir():
        return _view_folder(Path(args.trace), args)
    if args.watch:
        raise ConfigError(f"--watch requires a folder of runs; {args.trace} is not a folder")
    from gem_lab.eval._token_texts import read_token_texts
    from gem_lab.eval._viewer import write_page

    trace = Path(args.trace)
    out = Path(args.out) if args.out else trace.with_suffix(".html")
    if out.exists() and out.samefile(trace):
        raise ConfigError(f"--out {out} is the trace itself; name another file")
    if not args.out:
        check_page(out)
    texts = read_token_texts(trace) if trace.suffix not in (".json", ".eval") else {}
    fallback = _decoder(args.tokenizer) if args.tokenizer else texts.get
    with _console.progress("writing", _number_of_lines(trace)) as advance:
        summary = write_page(
            _console.counted(_read(trace), advance),
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


def _number_of_lines(trace: Path) -> int | None:
    """Return the number of episodes of a trace, or None for another kind of file."""
    if trace.suffix in (".json", ".eval"):
        return None
    with trace.open("rb") as lines:
        return sum(1 for _ in lines)


def _read(path: Path) -> Iterable[Episode]:
    """Return the episodes of a trace, of a log of Inspect, or of a trajectory in ATIF."""
    from gem_core.rollout import read_traces
    from gem_lab.eval._atif import is_atif, read_atif
    from gem_lab.eval._inspect_read import read_inspect_log

    if path.suffix == ".json" and is_atif(path):
        return [read_atif(path)]
    return read_inspect_log(path) if path.suffix in (".json", ".eval") else read_traces(path)


def _view_folder(root: Path, args: argparse.Namespace) -> int:
    from gem_lab._cli._runs import INDEX, write_index

    if args.tokenizer:
        raise ConfigError(
            "--tokenizer is for a single trace, not for a folder of runs; name a trace, or remove it"
        )
    out = Path(args.out) if args.out else root / INDEX
    while True:
        entries = write_index(root, out, gamma=args.gamma, refresh=args.watch)
        if args.json:
            _console.print_json(
                {
                    "page": str(out),
                    "runs": [
                        {
                            "path": str(entry.path),
                            "kind": entry.kind,
                            "state": entry.state,
                            "score": entry.score,
                        }
                        for entry in entries
                    ],
                }
            )
        else:
            _console.note(f"wrote {len(entries)} runs to {out}; open it in a browser")
        if not args.watch:
            return 0
        time.sleep(args.watch)


def _decoder(folder: str) -> Callable[[int], str]:
    from gem_chat._wrappers import load_tokenizer

    tokenizer: Any = load_tokenizer(folder)
    return lambda id: str(tokenizer.decode([id]))
