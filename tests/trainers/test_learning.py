"""What the learning runs leave is complete, and only a trainer that learned passes."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'train'")
pytest.importorskip("matplotlib", reason="needs the extra 'train'")

from tests.trainers import learning


@pytest.mark.parametrize(
    ("rebn", "control", "learned"), [(0.6, 0.3, True), (0.4, 0.3, False), (0.6, 0.5, False)]
)
def test_the_results_of_a_run_and_its_control(
    tmp_path: Path, rebn: float, control: float, learned: bool
) -> None:
    model, out = tmp_path / "tiny", tmp_path / "out"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"weights")
    steps = [{name: 0.5 for name, _ in learning.PANELS}] * learning.BUDGET.steps
    for after, is_control in ((rebn, False), (control, True)):
        given = argparse.Namespace(model=model, out=out, seed=0, control=is_control)
        learning.write_run(given, trainer="none 1.0", steps=steps, before=0.3, after=after)
    assert learning.write_results(out) is learned
    summary = (out / "summary.md").read_text()
    assert f"| rebn | 0 | 0.300 → {rebn:.3f} |" in summary
    assert f"| control | 0 | 0.300 → {control:.3f} |" in summary
    assert hashlib.sha256(b"weights").hexdigest() in summary
    assert len((out / "rebn-0.jsonl").read_text().splitlines()) == learning.BUDGET.steps
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
