"""The harnesses have exact gradients, and the table on the page of episodes is theirs."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from gem_lab.exam import _harness_table
from gem_lab.exam._harness_table import HARNESSES, LOGITS, HarnessComparison, measure
from gem_lab.exam._harnesses import exact_gradient, paths, scores

PAGE = Path(__file__).parents[2] / "docs/concepts/episodes.md"

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def table() -> dict[tuple[str, str], HarnessComparison]:
    return {(one.harness, one.credit): one for one in measure()}


@pytest.mark.parametrize("name", HARNESSES)
def test_the_exact_gradient_is_the_derivative_of_the_expected_return(name: str) -> None:
    harness, _ = HARNESSES[name]
    found = paths(harness, LOGITS)
    assert math.fsum(path.probability for path in found) == pytest.approx(1, abs=1e-12)
    keys = sorted(
        {(c, one) for path in found for (c, _), options in zip(path.choices, path.options, strict=True)
         for one in options}
    )  # fmt: skip
    exact = exact_gradient(found, scores(found, LOGITS))
    assert np.abs(exact).max() > 1e-3
    for column, key in enumerate(keys):
        values = []
        for step in (-1e-5, 1e-5):
            moved = {**LOGITS, key: LOGITS.get(key, 0.0) + step}
            values.append(math.fsum(path.probability * sum(path.rewards) for path in paths(harness, moved)))
        assert exact[column] == pytest.approx((values[1] - values[0]) / 2e-5, abs=1e-8)


@pytest.mark.parametrize("credit", ["returns", "rloo"])
@pytest.mark.parametrize("name", HARNESSES)
def test_returns_along_threads_and_episodes_that_count_once_are_exact(
    name: str, credit: str, table: dict[tuple[str, str], HarnessComparison]
) -> None:
    found = table[name, credit]
    assert (found.cosine, found.scale, found.off) == pytest.approx((1, 1, 0), abs=1e-9)


def test_rows_that_count_as_episodes_unlearn_the_better_action(
    table: dict[tuple[str, str], HarnessComparison],
) -> None:
    wrong = table["long success", "rloo, rows as episodes"]
    assert (wrong.cosine, wrong.scale) == pytest.approx((-1, -1.2))
    assert table["long success", "dr_grpo, rows as episodes"].least < 0
    assert table["compaction", "returns cut at rows"].cosine == pytest.approx(0.2437, abs=1e-4)
    assert table["retry", "returns, rejected attempts dropped"].cosine == pytest.approx(0.8548, abs=1e-4)
    assert table["retry", "returns, rejected attempts dropped"].off > 0.7
    assert table["shared sandbox", "returns, threads independent"].least < 0
    assert table["parallel", "returns, threads independent"].off == pytest.approx(0, abs=1e-9)


def test_the_page_has_the_table(table: dict[tuple[str, str], HarnessComparison]) -> None:
    text = PAGE.read_text()
    header, _, *lines = re.findall(r"^\|.*\|$", text[text.index("| credit |") :], re.MULTILINE)
    names = [cell.strip() for cell in header.strip("|").split("|")[1:]]
    assert names == list(HARNESSES)
    shown = 0
    for line in lines[: len(_harness_table.CREDITS)]:
        credit, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        for name, cell in zip(names, cells, strict=True):
            if (name, credit) in table:
                assert cell.strip("*") == f"{table[name, credit].cosine:.3f}", (name, credit)
                shown += 1
            else:
                assert cell == ""
    assert shown == len(table)
