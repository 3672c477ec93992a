"""Compare the mathematics grader with math-verify and gem-llm on labeled answers, and write the table.

    python benchmarks/grader_study.py           # in .venv-bench, after `make bench`
    python benchmarks/grader_study.py --draw    # only write the page again

The pairs are those of tests/graders: hand-written ones, one answer in many styles, and structured answers
with single-place changes. Their labels decide each disagreement. ``--before COMMIT`` also measures the grader
of gem-core at an earlier commit. Results are ``graders.jsonl.gz`` (every pair on which a grader is wrong) and
``graders.md`` in docs/results.
"""

from __future__ import annotations

import argparse
import io
import logging
import multiprocessing
import resource
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from records import ROOT, read_rows, write_rows

from gem_core._util.files import write_atomically

sys.path.insert(0, str(ROOT))
from tests.graders.pairs import PAIRS
from tests.graders.structures import STRUCTURED, TEMPLATES
from tests.graders.styles import STYLED, Pair

GRADERS = ("gem-core", "math-verify", "gem-llm")
BEFORE = "gem-core before"
SIZES = {"gem-core": 10_000, BEFORE: 10_000, "math-verify": 100, "gem-llm": 100}
"""Number of pairs that one process grades at a time; gem-core starts its sandbox each time."""
ENDLESS = ("9^{9^{9^{9}}}",)
"""Answers left out because math-verify never finishes them and cannot be interrupted."""
RESPELLED = 6
"""Every n-th of the structured right answers is graded."""
SLOW = ("9^{9^{9}}",)
"""Answers for which math-verify needs minutes and cannot be interrupted; they count as rejected by it."""
SECONDS = 5
"""CPU time that a peer may use per answer; gem-llm limits itself to one second."""
PAGE = ROOT / "docs" / "results" / "graders.md"
RECORDS = PAGE.with_suffix(".jsonl.gz")


def graders() -> dict[str, Callable[[str, str], Any]]:
    """Return the graders by name; each takes an answer and a reference and returns a true value if right."""
    from gem.utils.math_grader import grade as gem_grade
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    from gem_envs.graders.math import judge

    configs = (LatexExtractionConfig(), ExprExtractionConfig())

    def read(text: str) -> Any:
        return parse(f"${text}$", configs, parsing_timeout=None, raise_on_error=False)

    def math_verify(answer: str, reference: str) -> bool:
        return bool(verify(read(reference), read(answer), timeout_seconds=None, raise_on_error=False))

    def gem_llm(answer: str, reference: str) -> bool:
        return bool(gem_grade(answer, reference, fast=False))

    return {"gem-core": judge, BEFORE: judge, "math-verify": math_verify, "gem-llm": gem_llm}


def count_cpu_time() -> None:
    """Make alarms count CPU time, so that the peers' time limits do not depend on other load."""
    set_handler, get_handler = signal.signal, signal.getsignal

    def handle(number: int, handler: Any) -> Any:
        return set_handler(signal.SIGVTALRM if number == signal.SIGALRM else number, handler)

    def alarm(seconds: float) -> int:
        return int(signal.setitimer(signal.ITIMER_VIRTUAL, seconds)[0])

    signal.signal, signal.alarm = handle, alarm  # type: ignore[assignment]
    signal.getsignal = lambda number: get_handler(  # type: ignore[assignment]
        signal.SIGVTALRM if number == signal.SIGALRM else number
    )


def within(seconds: int, grade: Callable[[str, str], Any], answer: str, reference: str) -> Any:
    """Return the verdict of a peer; an exception or a timeout counts as a rejection."""

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        return grade(answer, reference)
    except Exception:  # a peer may raise anything
        return False
    finally:
        signal.alarm(0)


def children_seconds() -> float:
    """Close the sandboxes that this process started, and return their CPU time."""
    from gem_envs.graders._symbolic import calls

    calls.close()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def grade_all(name: str, pairs: Sequence[Pair], earlier: str = "") -> tuple[list[bool], float, int]:
    """Return the verdicts of a grader, its CPU time without the start of its sandbox, and how many are open.

    Args:
        name: Name of the grader.
        pairs: What to grade.
        earlier: Folder with gem_core of an earlier commit, for `BEFORE`.
    """
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    count_cpu_time()
    if name == BEFORE:
        sys.path.insert(0, earlier)
    if name in ("gem-core", BEFORE):
        for module in [module for module in sys.modules if module.startswith("gem_")]:
            del sys.modules[module]
    grade = graders()[name]
    if name == BEFORE:
        sys.path.remove(earlier)
        assert str(sys.modules["gem_envs.graders.math"].__file__).startswith(earlier)
    limit = 60 if name in ("gem-core", BEFORE) else SECONDS  # gem-core limits itself
    before = children_seconds()
    within(60, grade, r"\int_0^1 x dx", "1/2")  # loads lazy imports
    start_up = children_seconds() - before
    start = time.process_time()
    verdicts = [
        (name != "math-verify" or pair.answer not in SLOW)
        and within(limit, grade, pair.answer, pair.reference)
        for pair in pairs
    ]
    seconds = time.process_time() - start
    undecided = sum(not getattr(verdict, "decided", True) for verdict in verdicts)
    right = [bool(verdict) for verdict in verdicts]
    return right, seconds + max(0.0, children_seconds() - before - 2 * start_up), undecided


class Measured(NamedTuple):
    """What one grader did with a part of the pairs."""

    verdicts: list[bool]
    seconds: float
    undecided: int


def measure(every: int, workers: int, before: str) -> list[dict[str, Any]]:
    """Return the summary, followed by the pairs on which a grader is wrong."""
    plain = [Pair("hand-written", "", *pair) for pair in PAIRS if pair[0] not in ENDLESS] + STYLED[::every]
    numbers = [pair for pair in plain if pair.kind == "number"]
    others = [pair for pair in plain if pair.kind != "number"]
    structured = [pair for pair in STRUCTURED if not pair.right]
    structured += [pair for pair in STRUCTURED if pair.right][::RESPELLED]
    names = (*GRADERS, BEFORE) if before else GRADERS
    with tempfile.TemporaryDirectory() as folder:
        if before:
            unpack(before, Path(folder))
        parts = {part: run(names, part, workers, folder) for part in (tuple(numbers), tuple(others))}
        changed = run(names, structured, workers, folder)
    summary: dict[str, Any] = {"every": every, "templates": len(TEMPLATES), **counts(plain)}
    summary["structured"] = counts(structured)
    for name in names:
        halves = [parts[tuple(numbers)][name], parts[tuple(others)][name]]
        verdicts = [verdict for half in halves for verdict in half.verdicts]
        summary[name] = {
            **outcomes(verdicts, [*numbers, *others]),
            "undecided": sum(half.undecided for half in halves),
            "seconds per 1,000": round(1000 * sum(half.seconds for half in halves) / len(plain), 3),
            "seconds per 1,000 numbers": round(1000 * halves[0].seconds / len(numbers), 4),
            "structured": {
                **outcomes(changed[name].verdicts, structured),
                "undecided": changed[name].undecided,
            },
        }
    records = []
    for pairs, results in (
        (numbers, parts[tuple(numbers)]),
        (others, parts[tuple(others)]),
        (structured, changed),
    ):
        for index, pair in enumerate(pairs):
            wrong = [name for name in names if results[name].verdicts[index] is not pair.right]
            if wrong:
                records.append({**pair._asdict(), "wrong graders": wrong})
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True, cwd=ROOT).strip()
    command = " ".join(["python", "benchmarks/grader_study.py", *sys.argv[1:]])
    return [{**summary, "commit": commit, "before": before, "command": command}, *records]


def run(names: Sequence[str], pairs: Sequence[Pair], workers: int, earlier: str) -> dict[str, Measured]:
    """Grade pairs with each grader."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        jobs = {
            name: [
                pool.submit(grade_all, name, pairs[at : at + SIZES[name]], earlier)
                for at in range(0, len(pairs), SIZES[name])
            ]
            for name in names
        }
        done = {name: [job.result() for job in parts] for name, parts in jobs.items()}
    return {
        name: Measured(
            [verdict for verdicts, _, _ in parts for verdict in verdicts],
            sum(seconds for _, seconds, _ in parts),
            sum(undecided for _, _, undecided in parts),
        )
        for name, parts in done.items()
    }


def unpack(commit: str, folder: Path) -> None:
    """Write gem_core of a commit into a folder."""
    archive = subprocess.run(
        ["git", "archive", commit, "gem_core", "gem_chat", "gem_envs"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")


def counts(pairs: Sequence[Pair]) -> dict[str, int]:
    """Return how many pairs are right and wrong."""
    right = sum(pair.right for pair in pairs)
    return {"pairs": len(pairs), "right": right, "wrong": len(pairs) - right}


def outcomes(verdicts: Sequence[bool], pairs: Sequence[Pair]) -> dict[str, int]:
    """Return how many pairs a grader judges as they are labeled."""
    both = [(verdict, pair.right) for verdict, pair in zip(verdicts, pairs, strict=True)]
    return {
        "right accepted": sum(verdict and label for verdict, label in both),
        "wrong rejected": sum(not verdict and not label for verdict, label in both),
    }


def page(summary: dict[str, Any], records: list[dict[str, Any]]) -> str:
    """Return the page of results."""
    right, wrong = summary["right"], summary["wrong"]
    lines = [
        "# Grading of mathematical answers",
        "",
        f"{summary['pairs']:,} pairs of an answer and a reference, labeled by construction: {right:,} right "
        f"and {wrong:,} wrong answers in the styles of models (`tests/graders`). We chose the styles "
        "while we wrote gem-core's grader, so the comparison favors it; the disagreements below show what "
        "each grader does. math-verify is the library, and gem-llm is the grader of the original GEM, which "
        f"also calls math-verify. Measured at commit `{summary['commit']}` with",
        "",
        "```bash",
        summary["command"],
        "```",
        "",
        "| grader | right accepted | wrong rejected | seconds per 1,000 | seconds per 1,000 numbers |",
        "|---|---|---|---|---|",
    ]
    names = [name for name in (*GRADERS, BEFORE) if name in summary]
    titles = {BEFORE: f"gem-core at commit `{summary['before']}`"}
    for name in names:
        row = summary[name]
        lines.append(
            f"| {titles.get(name, name)} | {row['right accepted']:,} of {right:,} "
            f"| {row['wrong rejected']:,} of {wrong:,} "
            f"| {row['seconds per 1,000']} | {row['seconds per 1,000 numbers']} |"
        )
    part = summary["structured"]
    peer, ours = (summary[name]["seconds per 1,000 numbers"] for name in ("gem-llm", "gem-core"))
    lines += [
        "",
        f"In this run, gem-llm needs {float(peer) / float(ours):.0f} times the CPU time of gem-core for "
        "numbers. Times are CPU times; the start of the sandbox in which gem-core calls math-verify is left "
        "out. The limits of the peers (one second in gem-llm, five for math-verify) count CPU time, too. "
        "One pair is left out, "
        f"because math-verify never returns: `{ENDLESS[0]}`. `{SLOW[0]}` counts as rejected by math-verify, "
        "which needs minutes for it.",
        "",
        "## Structured answers with one place changed",
        "",
        f"{summary['templates']} templates of structured answers (`tests/graders/structures.txt`): "
        "congruences, cases, set builders, sequences with dots, quantifiers, operators, general solutions, "
        f"vectors, systems, and numbers that are close. {part['wrong']} answers differ from the reference "
        f"at one place and are wrong; {part['right']} are the reference, or an equal form of it, in another "
        "spelling. They are enumerated, so there is no seed. An undecided answer earns nothing and is "
        "counted as "
        '`info["metrics"]["grader_undecided"]`.',
        "",
        "| grader | wrong answers paid | right answers lost | undecided |",
        "|---|---|---|---|",
    ]
    for name in names:
        row = summary[name]["structured"]
        undecided = f"{row['undecided']} of {part['pairs']}" if name == "gem-core" else "-"
        lines.append(
            f"| {titles.get(name, name)} | {part['wrong'] - row['wrong rejected']} of {part['wrong']} "
            f"| {part['right'] - row['right accepted']} of {part['right']} | {undecided} |"
        )
    if BEFORE in names:
        times = [summary[name]["seconds per 1,000"] for name in ("gem-core", BEFORE)]
        lines += [
            "",
            f"Of the other pairs, gem-core leaves {summary['gem-core']['undecided']} of {summary['pairs']:,} "
            f"undecided, and needs {times[0] / times[1]:.2f} times the CPU time of commit "
            f"`{summary['before']}` for them.",
        ]
    lines += [
        "",
        "## Disagreements",
        "",
        f"The graders disagree on {len(records):,} pairs. The label decides: an answer is right if it has "
        "the meaning of the reference, whatever its layout. The table groups them by the kind of answer and "
        "by who is wrong, with an example; `docs/results/graders.jsonl.gz` lists every pair.",
        "",
        "| kind | decision | wrong graders | pairs | example: answer | reference |",
        "|---|---|---|---|---|---|",
    ]
    groups = Counter(
        (record["kind"], record["right"], ", ".join(record["wrong graders"])) for record in records
    )
    for (kind, label, wrong), count in sorted(groups.items(), key=lambda item: (item[0][0], -item[1])):
        example = next(
            record
            for record in records
            if (record["kind"], record["right"], ", ".join(record["wrong graders"])) == (kind, label, wrong)
        )
        decision = "right: accept" if label else "wrong: reject"
        lines.append(
            f"| {kind} | {decision} | {wrong} | {count} | {code(example['answer'])} "
            f"| {code(example['reference'])} |"
        )
    return "\n".join([*lines, ""])


def code(text: str) -> str:
    """Return the text as code in a cell of a Markdown table."""
    fence = "``" if "`" in text else "`"
    space = " " if "`" in text else ""
    return f"{fence}{space}{text.strip()}{space}{fence}".replace("|", "\\|")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--every", type=int, default=1, help="take every n-th of the styled pairs")
    parser.add_argument("--workers", type=int, default=2, help="number of processes")
    parser.add_argument("--before", default="", help="another commit whose grader of gem-core to measure")
    parser.add_argument("--draw", action="store_true", help="write the page from the recorded results")
    args = parser.parse_args()
    if not args.draw:
        write_rows(RECORDS, measure(args.every, args.workers, args.before))
    summary, *records = read_rows(RECORDS)
    write_atomically(PAGE, [page(summary, records)])


if __name__ == "__main__":
    main()
