"""Compare the mathematics grader with math-verify and gem-llm on labeled answers, and write the table.

    python benchmarks/grader_study.py           # in .venv-bench, after `make bench`
    python benchmarks/grader_study.py --draw    # only write the page again

The pairs are those of tests/graders: hand-written ones, and one answer in many styles. Their labels decide
each disagreement. Results are ``graders.jsonl`` (every pair on which a grader is wrong) and ``graders.md`` in
docs/results.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

from records import ROOT

from gem_core._util.files import write_atomically

sys.path.insert(0, str(ROOT))
from tests.graders.pairs import PAIRS
from tests.graders.styles import STYLED

GRADERS = ("gem-core", "math-verify", "gem-llm")
SECONDS = 5
"""Time limit of a peer per answer. gem-llm has its own limit of one second."""
PAGE = ROOT / "docs" / "results" / "graders.md"
RECORDS = PAGE.with_suffix(".jsonl")


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


def within(seconds: int, grade: Callable[[str, str], bool], answer: str, reference: str) -> bool:
    """Return the verdict of a peer; an exception or a timeout counts as a refusal."""

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


def measure(every: int) -> list[dict[str, Any]]:
    """Return the summary, followed by the pairs on which a grader is wrong."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    pairs = [("hand-written", "", *pair) for pair in PAIRS] + [tuple(pair) for pair in STYLED[::every]]
    numeric = [pair for pair in pairs if pair[0] == "number"]
    right = sum(pair[4] for pair in pairs)
    summary: dict[str, Any] = {"pairs": len(pairs), "right": right, "wrong": len(pairs) - right}
    verdicts: dict[str, list[bool]] = {}
    for name, grade in graders().items():
        within(60, grade, r"\int_0^1 x dx", "1/2")  # loads what is loaded late
        limit = 60 if name == "gem-core" else SECONDS
        start = time.perf_counter()
        verdicts[name] = [within(limit, grade, answer, reference) for *_, answer, reference, _ in pairs]
        seconds = time.perf_counter() - start
        start = time.perf_counter()
        for *_, answer, reference, _ in numeric:
            within(limit, grade, answer, reference)
        results = list(zip(verdicts[name], (pair[4] for pair in pairs), strict=True))
        summary[name] = {
            "right accepted": sum(verdict and label for verdict, label in results),
            "wrong refused": sum(not verdict and not label for verdict, label in results),
            "seconds per 1,000": round(1000 * seconds / len(pairs), 2),
            "seconds per 1,000 numbers": round(1000 * (time.perf_counter() - start) / len(numeric), 3),
        }
        sys.stdout.write(f"{name}: {summary[name]}\n")
        sys.stdout.flush()
    records = []
    for number, (kind, style, answer, reference, label) in enumerate(pairs):
        wrong = [name for name in GRADERS if verdicts[name][number] is not label]
        if wrong:
            records.append({"kind": kind, "style": style, "answer": answer, "reference": reference,
                            "right": label, "wrong graders": wrong})  # fmt: skip
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
        f"and {wrong:,} wrong answers in the styles of models (`tests/graders`). math-verify is the library, "
        "gem-llm the grader of the original GEM, which asks math-verify, too. Measured at commit "
        f"`{summary['commit']}` by",
        "",
        "```bash",
        summary["command"],
        "```",
        "",
        "| grader | right accepted | wrong refused | seconds per 1,000 | seconds per 1,000 numbers |",
        "|---|---|---|---|---|",
    ]
    for name in GRADERS:
        row = summary[name]
        lines.append(
            f"| {name} | {row['right accepted']:,} of {right:,} | {row['wrong refused']:,} of {wrong:,} "
            f"| {row['seconds per 1,000']} | {row['seconds per 1,000 numbers']} |"
        )
    lines += [
        "",
        "Times are wall-clock times of one thread, with the processes in which gem-core asks math-verify.",
        "",
        "## Disagreements",
        "",
        f"The graders disagree on {len(records):,} pairs. The label decides: an answer is right if it has "
        "the meaning of the reference, whatever its layout. The table groups them by the kind of answer and "
        "by who is wrong, with an example; `docs/results/graders.jsonl` lists every pair.",
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
        decision = "right: accept" if label else "wrong: refuse"
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
    parser.add_argument("--draw", action="store_true", help="write the page from the recorded results")
    args = parser.parse_args()
    if not args.draw:
        records = measure(args.every)
        write_atomically(RECORDS, [json.dumps(record) + "\n" for record in records])
    summary, *records = map(json.loads, RECORDS.read_text().splitlines())
    write_atomically(PAGE, [page(summary, records)])


if __name__ == "__main__":
    main()
