"""Learning runs of several trainers, and the results of level 4."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest

from gem_core.errors import TraceError
from gem_lab import main
from gem_lab._cli import FAILED, MISTAKE, OK
from gem_lab.consistency._learning import Equivalence, compare_learning, read_runs
from gem_lab.consistency._learning_page import write_learning_page

RUNS = "runs.jsonl"
LEARNED = (0.60, 0.55, 0.62, 0.58, 0.65)


def write_runs(
    folder: Path,
    trainer: str,
    after: tuple[float, ...] = LEARNED,
    *,
    task: str = "game",
    variant: str = "rebn",
    **changed: Any,
) -> None:
    """Append a run for each number, with seeds starting at 0."""
    for seed, value in enumerate(after):
        run = {
            "task": task,
            "trainer": trainer,
            "version": f"{trainer} 1.0",
            "variant": variant,
            "seed": seed,
            "before": 0.3,
            "after": value,
            "model": "a1" * 32,
            "budget": {"env": "game", "steps": 2},
            "command": f"learn <{trainer}>",
            "commit": "c0ffee1",
            "success": [0.3, 0.6],
        }
        with (folder / RUNS).open("a") as file:
            file.write(json.dumps(run | changed) + "\n")


def compared(folder: Path) -> Equivalence:
    (result,) = compare_learning(read_runs(folder / RUNS))
    return result


def shifted(by: float) -> tuple[float, ...]:
    return tuple(value + by for value in LEARNED)


@pytest.mark.parametrize(
    ("after", "equal", "word"),
    [
        (LEARNED, True, "equivalent"),
        (shifted(0.05), True, "equivalent"),
        (shifted(-0.07), False, "differs"),
        (shifted(0.07), False, "differs"),
        ((0.54, 0.49, 0.58, 0.52, 0.59), None, "undecided"),  # -0.056, -0.065 to -0.047
        ((0.60, 0.55, 0.62, 0.58, 0.05), None, "undecided"),  # one collapse in five
    ],
)
def test_the_interval_decides(
    tmp_path: Path, after: tuple[float, ...], equal: bool | None, word: str
) -> None:
    write_runs(tmp_path, "reference")
    write_runs(tmp_path, "verl", after)
    found = compared(tmp_path)
    assert found.margin == pytest.approx(0.2 * (sum(LEARNED) / 5 - 0.3))  # 0.06
    assert found.equal is equal
    assert found.verdict.startswith(f"{word} (")
    mean, low, high = (found.interval[name] or 0.0 for name in ("mean", "low", "high"))
    assert mean == pytest.approx(sum(after) / 5 - sum(LEARNED) / 5)
    differences = [a - b for a, b in zip(after, LEARNED, strict=True)]
    half = 2.1318 * stdev(differences) / 5**0.5  # the 95% quantile of t with 4 degrees of freedom
    assert (low, high) == pytest.approx((mean - half, mean + half), abs=1e-4)


def test_without_a_gain_of_the_reference_there_is_no_verdict(tmp_path: Path) -> None:
    write_runs(tmp_path, "reference", before=0.7)
    write_runs(tmp_path, "verl")
    found = compared(tmp_path)
    assert found.equal is None
    assert found.verdict == (
        "not comparable: the reference trainer's success does not rise, so there is no margin"
    )
    write_learning_page(read_runs(tmp_path / RUNS), [found], tmp_path / "page.html")
    assert "does not rise" in (tmp_path / "page.html").read_text()


def test_seeds_are_paired(tmp_path: Path) -> None:
    write_runs(tmp_path, "reference")
    write_runs(tmp_path, "verl", shifted(0.01))
    interval = compared(tmp_path).interval
    assert interval["low"] == pytest.approx(interval["high"])  # though the seeds themselves are 0.1 apart


def test_few_seeds_give_no_verdict(tmp_path: Path) -> None:
    write_runs(tmp_path, "reference")
    write_runs(tmp_path, "oat", LEARNED[:4])
    found = compared(tmp_path)
    assert (found.equal, found.verdict) == (None, "4 of 5 seeds")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": "b2" * 32}, "different weights, b2b2"),
        ({"budget": {"env": "game", "steps": 3}}, "a different budget: steps"),
        ({"seed": 9}, "no run with seed 9"),
    ],
)
def test_other_runs_are_not_compared(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    write_runs(tmp_path, "reference")
    write_runs(tmp_path, "rl2", **changed)
    found = compared(tmp_path)
    assert found.equal is None
    assert message in found.verdict


@pytest.mark.parametrize("line", ["{}", "[1]", "not JSON", '{"task": "game", "success": [0.5]}'])
def test_a_line_without_a_run_is_named(tmp_path: Path, line: str) -> None:
    write_runs(tmp_path, "reference")
    with (tmp_path / RUNS).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(TraceError, match=r"runs\.jsonl:6: not a learning run: "):
        read_runs(tmp_path / RUNS)


def test_the_command_prints_a_table_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_runs(tmp_path, "reference")
    write_runs(tmp_path, "reference", shifted(-0.3), variant="per-token")
    write_runs(tmp_path, "verl", shifted(0.02))
    page = tmp_path / "page.html"
    command = ["consistency", "--level", "4", "--records", str(tmp_path / RUNS)]
    assert main([*command, "--html", str(page)]) == OK  # the fault is detected
    shown = capsys.readouterr().out
    assert "equivalent (+0.020" in shown
    assert "reference, per-token" in shown
    assert "differs (-0.300" in shown
    text = page.read_text()
    assert text.count("<svg") == 3
    assert text.index("<h3>Trainers") < text.index("<h3>Controls") < text.index("<td>reference, per-token")
    assert text.count('class="band"') == text.count('class="grid zero"') == 2
    assert 'stroke-dasharray="6 3"/><text' in text  # the sample in the legend
    assert "learn &lt;verl&gt;" in text
    assert "http" not in text
    assert "Margin: ±0.060" in text
    assert main([*command, "--trainers", "verl", "oat"]) == FAILED  # oat has no run
    capsys.readouterr()
    write_runs(tmp_path, "oat", shifted(0.2))
    assert main([*command, "--json"]) == FAILED
    verdicts = {each["trainer"]: each["equal"] for each in json.loads(capsys.readouterr().out)}
    assert verdicts == {"reference": False, "verl": True, "oat": False}
    write_runs(tmp_path, "rl2", (0.60, 0.55, 0.62, 0.58, 0.05))
    assert main([*command, "--trainers", "verl"]) == OK
    capsys.readouterr()
    assert main([*command, "--trainers", "rl2"]) == FAILED
    assert "undecided (-0.1" in capsys.readouterr().out
    assert main(["consistency", "--level", "4", "--records", str(tmp_path / "none")]) == MISTAKE
    assert "holds no learning runs" in capsys.readouterr().err


def test_a_named_trainer_needs_runs_in_every_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for task, trainers in {"game": ("reference", "verl", "oat"), "letters": ("reference", "verl")}.items():
        for trainer in trainers:
            write_runs(tmp_path, trainer, task=task)
    command = ["consistency", "--level", "4", "--records", str(tmp_path / RUNS), "--trainers"]
    assert main([*command, "verl"]) == OK
    assert main([*command, "verl", "oat"]) == FAILED
    assert "not run" in capsys.readouterr().out
