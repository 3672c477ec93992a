"""Files of a user's own rows, as pandas, `datasets`, and pyarrow write them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pyarrow
import pyarrow.parquet
from verl.utils.reward_score.math_reward import compute_score

from tests.trainers.evidence import Played, Update


def question(number: int, split: str = "train", **fields: Any) -> dict[str, Any]:
    """Return a row with the columns that verl's preprocessing of GSM8K writes."""
    text, answer = f"What is {number} + {number}?", str(2 * number)
    return {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": text}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": {"split": split, "index": number, "answer": f"#### {answer}", "question": text},
        **fields,
    }


TRUTHS = ("1", "3")
"""Answers of `guess` that the tiny model gives most often, each in about one of nine responses."""


def guess(number: int, **fields: Any) -> dict[str, Any]:
    """Return a question that the tiny model of the tests answers, and that verl's score for MATH rewards."""
    text = (
        f"Question {number}.\nFind the hidden number from 1 to 10 in at most 4 turns. After each guess you "
        "are told whether the number is higher or lower. Give each guess as in \\boxed{10}."
    )
    return question(number) | {
        "data_source": "lighteval/MATH",
        "prompt": [{"role": "user", "content": text}],
        "reward_model": {"style": "rule", "ground_truth": TRUTHS[number % len(TRUTHS)]},
        **fields,
    }


def answered(
    spy: Path, update: Update, tokenizer: Any, score: Callable[[str, str], float] = compute_score
) -> dict[int, Played]:
    """Return the episodes of the rows that answer a `guess`, by the `id` of the row.

    Args:
        spy: Folder of the run's records.
        update: Update of the run.
        tokenizer: Tokenizer of the run.
        score: The run's scorer of a text and its ground truth, by default verl's.
    """
    requests = [json.loads(line) for line in (spy / "engine.jsonl").read_text().splitlines()]
    found = {}
    for row in update.rows:
        asked = re.search(r"Question (\d+)\.", tokenizer.decode(row.prompt))
        if asked and not row.is_pad:
            made = [r for r in requests if (r["prompt"], r["response"]) == (row.prompt, row.response)]
            request = min(made, key=lambda r: math.dist(r["logprobs"], row.rollout or []))  # of this step
            text = tokenizer.decode(row.response, skip_special_tokens=True)
            found[id(row)] = Played([request], [score(text, TRUTHS[int(asked[1]) % len(TRUTHS)])])
    return found


def _pandas(rows: Sequence[dict[str, Any]], path: Path) -> None:
    pd.DataFrame([*rows]).to_parquet(path)


def _datasets(rows: Sequence[dict[str, Any]], path: Path) -> None:
    datasets.Dataset.from_list([*rows]).to_parquet(path)


def _pyarrow(rows: Sequence[dict[str, Any]], path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([*rows]), path)


def _json(rows: Sequence[dict[str, Any]], path: Path) -> None:
    pd.DataFrame([*rows]).to_json(path, orient="records", lines=True)


WRITERS: dict[str, Callable[[Sequence[dict[str, Any]], Path], None]] = {
    "pandas": _pandas,
    "datasets": _datasets,
    "pyarrow": _pyarrow,
    "json": _json,
}
"""Writes rows to a path, by the name of the library."""


def write(writer: str, rows: Sequence[dict[str, Any]], folder: Path, name: str = "") -> str:
    """Write rows with a library, and return the path."""
    path = folder / f"{name or writer}{'.jsonl' if writer == 'json' else '.parquet'}"
    WRITERS[writer](rows, path)
    return str(path)
