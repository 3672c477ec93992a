"""The tables of docs/concepts/upstream.md: of the entries, and of the recorded exam."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.trainers.upstream.entries import ENTRIES, TITLES, VERSIONS

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "concepts" / "upstream.md"
RECORDS = ROOT / "docs" / "results" / "exam"


def fill(text: str) -> str:
    """Return the page with its tables redrawn from entries and records."""
    tables = {"estimators": _estimators(), "exam": _exam()}
    for name, table in tables.items():
        pattern = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text, count = pattern.subn(lambda match, t=table: f"{match[1]}\n{t}\n{match[2]}", text)  # type: ignore[misc]
        assert count == 1, name
    return text


def _estimators() -> str:
    parts = []
    for trainer, number in VERSIONS.items():
        rows = [entry for entry in ENTRIES if entry.trainer == trainer]
        files = list(dict.fromkeys(entry.where.partition(": ")[0] for entry in rows))
        parts.append(f"### {TITLES[trainer]} {number}\n\n" + _table(
            ["upstream", "function", "ours", "discount per", "difference"],
            [
                [
                    f"`{entry.name}`",
                    f"`{entry.where.partition(': ')[2]}`",
                    f"`{entry.ours}`" if entry.ours else "none",
                    entry.discount() if entry.ours else "",
                    entry.difference(),
                ]
                for entry in rows
            ],
        ) + f"\nFile: {', '.join(f'`{file}`' for file in files)}.\n")  # fmt: skip
    return "\n".join(parts)


def read(trainer: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return header and lines of a record."""
    text = (RECORDS / f"trainer-{trainer}.jsonl").read_text(encoding="utf-8")
    header, *lines = map(json.loads, text.splitlines())
    return header, lines


def _exam() -> str:
    rows, origins = [], []
    for trainer in VERSIONS:
        if not (RECORDS / f"trainer-{trainer}.jsonl").is_file():
            continue
        header, lines = read(trainer)
        config = header["config"]
        verdicts = {line["estimator"]: line["verdict"] for line in lines}
        for line in lines:
            name = line["estimator"].removeprefix(f"{trainer} ")
            if name == line["estimator"]:
                continue  # one of ours
            place = f"{line['task']}, B = {line['batch_size']}" if line["bias"] > 0.001 else ""
            size = f"{line['bias']:.1%}"
            if line["verdict"] == "unbiased":
                size = f"below {max(line['bias'], 0.001):.1%}"
            ours = f"`{line['ours']}`: {verdicts[line['ours']]}" if line["ours"] else ""
            rows.append(
                [TITLES[trainer], f"`{name}`", line["verdict"], size, f"{line['cosine']:.3f}", place, ours]
            )
        origins.append(
            f"`{header['command']}`, commit `{header['commit']}`, seed {config['seed']}, "
            f"tasks {', '.join(config['tasks'])}, batches of {', '.join(map(str, config['batch_sizes']))}, "
            + ", ".join(f"{name} {number}" for name, number in header["versions"].items())
        )
    table = _table(["trainer", "upstream", "verdict", "relative bias", "cosine", "on", "ours"], rows)
    return table + "\nRecorded with:\n\n" + "".join(f"- {origin}\n" for origin in origins)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
