"""Compare the mathematics grader with math-verify and gem-llm on labeled answers, and write the table.

    python benchmarks/grader_study.py           # in .venv-bench, after `make bench`
    python benchmarks/grader_study.py --draw    # only write the page again

The pairs are those of tests/graders: hand-written ones, and one answer in many styles. Their labels decide
each disagreement. Results are ``graders.jsonl.gz`` (every pair on which a grader is wrong) and ``graders.md``
in docs/results.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from records import ROOT, read_rows, write_rows

from gem_core._util.files import write_atomically

sys.path.insert(0, str(ROOT))
from tests.graders.pairs import PAIRS
from tests.graders.styles import STYLED, Pair

GRADERS = ("gem-core", "math-verify", "gem-llm")
SIZES = {"gem-core": 10_000, "math-verify": 100, "gem-llm": 100}
"""Number of pairs that one process grades at a time; gem-core starts its sandbox each time."""
ENDLESS = ("9^{9^{9^{9}}}",)
"""Answers left out because math-verify never finishes them and cannot be interrupted."""
SECONDS = 5
"""CPU time that a peer may use per answer; gem-llm limits itself to one second."""
PAGE = ROOT / "docs" / "results" / "graders.md"
RECORDS = PAGE.with_suffix(".jsonl.gz")


def graders() -> dict[str, Callable[[str, str], bool]]:
    """Return the graders by name; each takes an answer and a reference."""
    from gem.utils.math_grader import grade as gem_grade
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    from gem_core.graders.math import grade

    configs = (LatexExtractionConfig(), ExprExtractionConfig())

    def read(text: str) -> Any:
        return parse(f"${text}$", configs, parsing_timeout=None, raise_on_error=False)

    def math_verify(answer: str, reference: str) -> bool:
        return bool(verify(read(reference), read(answer), timeout_seconds=None, raise_on_error=False))

    def gem_llm(answer: str, reference: str) -> bool:
        return bool(gem_grade(answer, reference, fast=False))

    return {"gem-core": grade, "math-verify": math_verify, "gem-llm": gem_llm}


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


def within(seconds: int, grade: Callable[[str, str], bool], answer: str, reference: str) -> bool:
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
    from gem_core.graders.symbolic import calls

    calls.close()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def grade_all(name: str, pairs: Sequence[Pair]) -> tuple[list[bool], float]:
    """Return the verdicts of a grader, and its CPU time without the start of its sandbox."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    count_cpu_time()
    grade = graders()[name]
    limit = 60 if name == "gem-core" else SECONDS  # gem-core limits itself
    before = children_seconds()
    within(60, grade, r"\int_0^1 x dx", "1/2")  # loads lazy imports
    start_up = children_seconds() - before
    start = time.process_time()
    verdicts = [within(limit, grade, pair.answer, pair.reference) for pair in pairs]
    seconds = time.process_time() - start
    return verdicts, seconds + max(0.0, children_seconds() - before - 2 * start_up)


def measure(every: int, workers: int) -> list[dict[str, Any]]:
    """Return the summary, followed by the pairs on which a grader is wrong."""
    pairs = [Pair("hand-written", "", *pair) for pair in PAIRS if pair[0] not in ENDLESS] + STYLED[::every]
    pairs = sorted(pairs, key=lambda pair: pair.kind == "number")
    others = sum(pair.kind != "number" for pair in pairs)
    right = sum(pair.right for pair in pairs)
    summary: dict[str, Any] = {"pairs": len(pairs), "right": right, "wrong": len(pairs) - right}
    verdicts: dict[str, list[bool]] = {}
    times: dict[str, list[float]] = {}
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = {
            name: [
                [pool.submit(grade_all, name, part[at : at + size]) for at in range(0, len(part), size)]
                for part in (pairs[:others], pairs[others:])
            ]
            for name, size in SIZES.items()
        }
        for name, halves in jobs.items():
            results = [[job.result() for job in half] for half in halves]
            verdicts[name] = [verdict for half in results for part, _ in half for verdict in part]
            times[name] = [sum(seconds for _, seconds in half) for half in results]
    for name in GRADERS:
        outcomes = [(verdict, pair.right) for verdict, pair in zip(verdicts[name], pairs, strict=True)]
        seconds, numbers = sum(times[name]), times[name][1]
        summary[name] = {
            "right accepted": sum(verdict and label for verdict, label in outcomes),
            "wrong rejected": sum(not verdict and not label for verdict, label in outcomes),
            "seconds per 1,000": round(1000 * seconds / len(pairs), 2),
            "seconds per 1,000 numbers": round(1000 * numbers / (len(pairs) - others), 3),
        }
    records = []
    for number, pair in enumerate(pairs):
        wrong = [name for name in GRADERS if verdicts[name][number] is not pair.right]
        if wrong:
            records.append({**pair._asdict(), "wrong graders": wrong})
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True, cwd=ROOT).strip()
    command = " ".join(["python", "benchmarks/grader_study.py", *sys.argv[1:]])
    return [{**summary, "commit": commit, "command": command}, *records]


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
    for name in GRADERS:
        row = summary[name]
        lines.append(
            f"| {name} | {row['right accepted']:,} of {right:,} | {row['wrong rejected']:,} of {wrong:,} "
            f"| {row['seconds per 1,000']} | {row['seconds per 1,000 numbers']} |"
        )
    peer, ours = (summary[name]["seconds per 1,000 numbers"] for name in ("gem-llm", "gem-core"))
    lines += [
        "",
        f"In this run, gem-llm needs {float(peer) / float(ours):.0f} times the CPU time of gem-core for "
        "numbers. Times are CPU times; the start of the sandbox in which gem-core calls math-verify is left "
        "out. The limits of the peers (one second in gem-llm, five for math-verify) count CPU time, too. "
        "One pair is left out, "
        f"because math-verify never returns: `{ENDLESS[0]}`.",
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
    for (kind, label, names), count in sorted(groups.items(), key=lambda item: (item[0][0], -item[1])):
        example = next(
            record
            for record in records
            if (record["kind"], record["right"], ", ".join(record["wrong graders"])) == (kind, label, names)
        )
        decision = "right: accept" if label else "wrong: reject"
        lines.append(
            f"| {kind} | {decision} | {names} | {count} | {code(example['answer'])} "
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
    parser.add_argument("--draw", action="store_true", help="write the page from the recorded results")
    args = parser.parse_args()
    if not args.draw:
        write_rows(RECORDS, measure(args.every, args.workers))
    summary, *records = read_rows(RECORDS)
    write_atomically(PAGE, [page(summary, records)])


if __name__ == "__main__":
    main()
