"""`gem-core data`: show how a file of rows will be read and graded."""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING, Any

from gem_core.errors import ConfigError, GemError
from gem_lab._cli import _console
from gem_lab._cli._arguments import CliCommand, add_json_flag, positive_int

if TYPE_CHECKING:
    from gem_envs.datasets import DatasetEnv

COMMAND = CliCommand(
    "show how a file of questions and answers will be read",
    examples=[
        "train.parquet",
        "train.parquet --format squad --rows 1",
        "mine.jsonl --kind qa --question-key q --answer-key answers.text",
    ],
    details=(
        "Without --format and keys, the format is recognized by the columns. Every row of a local file is "
        "checked; the exit code is 1 if some cannot be graded."
    ),
)

_CLASSES = {
    "math": ("gem_envs.datasets._math", "MathEnv", "math:GSM8K"),
    "qa": ("gem_envs.datasets._qa", "QaEnv", "qa:HotpotQA"),
    "code": ("gem_envs.datasets._code", "CodeEnv", "code:Taco8k"),
}
"""Module, class, and an id of each family."""
_WIDTH = 76
_MOST_LINES = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", metavar="FILE", help="file, folder, or id on the Hugging Face Hub")
    parser.add_argument(
        "--format",
        metavar="NAME",
        help="format of the rows, such as squad or numina (default: recognized by the columns)",
    )
    parser.add_argument(
        "--kind", choices=tuple(_CLASSES), help="family that grades the answers (default: that of the format)"
    )
    parser.add_argument("--question-key", metavar="KEY", help="column of the prompt, or a path into it")
    parser.add_argument(
        "--answer-key", metavar="KEY", help="column of the answer or tests, or a path into it"
    )
    parser.add_argument("--split", metavar="NAME", help="split of the dataset")
    parser.add_argument("--subset", metavar="NAME", help="folder within the dataset")
    parser.add_argument("--rows", type=positive_int, default=3, metavar="N", help="rows to show (default 3)")
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Print how the file is read; return exit code 1 if a row cannot be graded."""
    from gem_envs.data import open_rows
    from gem_envs.data._formats import FORMATS, recognized

    if args.format and (args.question_key or args.answer_key):
        raise ConfigError("give --format, or --question-key and --answer-key, but not both")
    rows = open_rows(args.file, args.split, subset=args.subset)
    name = args.format
    if name is None and not (args.question_key or args.answer_key):
        name = recognized(rows.columns, rows[0])
        if name is None:
            raise ConfigError(
                f"{args.file} has the columns {', '.join(rows.columns)}, which are those of no known format; "
                "name them with --question-key and --answer-key"
            )
    form = None if name is None else FORMATS.get(name)
    kind = args.kind or ("math" if form is None else form.kind)
    options: dict[str, Any] = {"dataset_name": args.file}
    options |= {key: value for key, value in (("split", args.split), ("subset", args.subset)) if value}
    if name is not None:
        options["data_format"] = name
    named = {
        "question_key": args.question_key,
        "test_key" if kind == "code" else "answer_key": args.answer_key,
    }
    options |= {key: value for key, value in named.items() if value}
    problem = None
    try:
        env = _make(kind, options)
    except ConfigError:
        raise
    except GemError as error:
        problem = str(error)
        env = _make(kind, {**options, "bad_rows": "skip"})
    shown = [_shown(env, index) for index in range(min(args.rows, len(env.rows)))]
    about = {
        "file": args.file,
        "rows": len(rows),
        "columns": list(rows.columns),
        "format": name,
        "recognized": name is not None and args.format is None,
        "kind": kind,
        "prompt": env.keys[0],
        "answer": env.keys[1],
        "graded": _graded(env, kind),
        "usage": _usage(kind, options),
        "problem": problem,
        "first": shown,
    }
    if args.json:
        _console.print_json(about)
    else:
        _print(about)
    return 0 if problem is None else 1


def _make(kind: str, options: dict[str, Any]) -> Any:
    from importlib import import_module

    module, name, _ = _CLASSES[kind]
    if kind == "math":
        options = {**options, "symbolic": False}
    return getattr(import_module(module), name)(**options)


def _shown(env: DatasetEnv, index: int) -> dict[str, Any]:
    """Return a row as the model sees it, and its right answers or the reason why it has none."""
    from gem_envs.data._columns import answer_texts, prompt_text, value_at

    keys: Any = getattr(env, "keys")  # noqa: B009
    row = env.rows[index]
    try:
        is_code = env.form == "a code block"
        answer = [str(value_at(row, keys[1]))] if is_code else answer_texts(row, keys[1])
        return {"prompt": prompt_text(row, keys[0]), "answer": answer}
    except GemError as error:
        return {"problem": str(error)}


def _graded(env: Any, kind: str) -> str:
    if kind == "code":
        return "a program in a code block must pass the tests"
    answers = (
        "all of the answers, in any order"
        if getattr(env, "answers", "any") == "all"
        else "any of the answers"
    )
    how = "as mathematics" if kind == "math" else "as text, ignoring case, punctuation, and articles"
    key = getattr(env, "tolerance_key", None)
    return f"{env.form} must hold {answers}, compared {how}" + (
        f", within the error in {key!r}" if key else ""
    )


def _usage(kind: str, options: dict[str, Any]) -> str:
    arguments = ", ".join(f"{key}={value!r}" for key, value in options.items())
    return f"{_CLASSES[kind][2]}({arguments})"


def _print(about: dict[str, Any]) -> None:
    form = about["format"]
    how = (
        f"{form}{' (recognized by its columns)' if about['recognized'] else ''}" if form else "named by keys"
    )
    lines = [
        ("file", f"{about['file']}, {about['rows']:,} rows"),
        ("columns", ", ".join(about["columns"])),
        ("format", how),
        ("prompt", f"from {about['prompt']}"),
        ("answer", f"from {about['answer']}"),
        ("graded", about["graded"]),
        ("use it as", about["usage"]),
    ]
    for name, text in lines:
        _paragraph(name, text)
    for index, row in enumerate(about["first"]):
        _console.print_text(f"\nrow {index}")
        if "problem" in row:
            _paragraph("  problem", row["problem"])
            continue
        _paragraph("  prompt", row["prompt"])
        _paragraph("  answer", " | ".join(row["answer"]))
    if about["problem"]:
        _console.print_text()
        _paragraph("problem", about["problem"])


def _paragraph(name: str, text: str) -> None:
    """Print a name and a text next to it, in a terminal of 80 columns."""
    width = _WIDTH - 12
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, width) or [""]]
    if len(lines) > _MOST_LINES:
        rest = len(lines) - _MOST_LINES
        lines = [*lines[:_MOST_LINES], f"... ({rest} more lines)"]
    for index, line in enumerate(lines or [""]):
        _console.print_text(f"{name if index == 0 else '':<11} {line}".rstrip())
