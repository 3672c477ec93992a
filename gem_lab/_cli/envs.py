"""`gem-core envs`: list the environments."""

from __future__ import annotations

import argparse
import itertools

from gem_core import EnvSpec
from gem_lab._cli import _console
from gem_lab._cli._arguments import CliCommand, add_json_flag

COMMAND = CliCommand(
    "list environments",
    examples=["", "'game:*-easy'", "--json"],
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "pattern",
        nargs="?",
        default="*",
        metavar="PATTERN",
        help="shell-style pattern or part of an id, in upper or lower case (default: all)",
    )
    parser.add_argument(
        "--extra",
        metavar="NAME",
        help="only environments that need this extra of gem-core; 'none' for those that need only numpy",
    )
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Print the matching environments; return exit code 1 if there are none."""
    from gem_core import list_envs, spec
    from gem_lab._checker.floors import documented

    specs = [spec(id) for id in list_envs(args.pattern) or _containing(args.pattern)]
    if args.extra is not None:
        extra = None if args.extra == "none" else args.extra
        specs = [one for one in specs if one.extra == extra]
    if args.json:
        _console.print_json(
            [
                {
                    "id": s.id,
                    "description": s.description,
                    "extra": s.extra,
                    "needs": _needs(s),
                    "kwargs": s.kwargs,
                    "deterministic": s.deterministic,
                    "stateful": s.stateful,
                    "floor": (floor := documented(s)) and floor._asdict(),
                }
                for s in specs
            ]
        )
        return 0 if specs else 1
    if not specs:
        extra = "" if args.extra is None else f" and the extra {args.extra!r}"
        _console.note(f"no environment matches {args.pattern!r}{extra}; `gem-core envs` lists all")
        return 1
    for family, members in itertools.groupby(specs, key=lambda s: s.id.partition(":")[0]):
        rows = [(s.id, s.description, s.extra or "-", _floor(s)) for s in members]
        _console.print_table(("id", "description", "extra", "floor"), rows, title=f"{family} ({len(rows)})")
    return 0


def _containing(pattern: str) -> list[str]:
    """Return the ids that contain a match of the pattern, ignoring case."""
    from fnmatch import fnmatchcase

    from gem_core import list_envs

    return [id for id in list_envs() if fnmatchcase(id.lower(), f"*{pattern.lower()}*")]


def _floor(spec: EnvSpec) -> str:
    """Return the success rate of the best player that solves nothing, and the name of the player."""
    from gem_lab._checker.floors import documented

    floor = documented(spec)
    if floor is None:
        return "-"
    return f"{floor.success:g}" + (f" ({floor.policy})" if floor.policy else "")


def _needs(spec: EnvSpec) -> list[str]:
    """Return the installs and downloads that the environment requires."""
    needs = []
    if spec.extra is not None:
        needs.append(f"pip install 'gem-core[{spec.extra}]'")
    if name := spec.kwargs.get("dataset_name"):
        needs.append(f"the dataset {name} on the Hugging Face Hub, or dataset_name= a local copy")
    return needs
