"""The page, its plots, and the learning curves."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gem_lab.exam import run
from gem_lab.exam._exact import gradient
from gem_lab.exam._inputs import Candidate
from gem_lab.exam._learning import learning_curve
from gem_lab.exam._page import line_plot, write_page
from gem_lab.exam._tasks import get_task
from tests.eval.test_viewer_browser import CHROMIUM, subprocess

SETTINGS = {"tasks": ["stop"], "stages": ["initial"], "budget": 1000, "aggregations": ["token-sum"]}


@pytest.mark.once
def test_the_page_holds_certificates_and_plots(tmp_path) -> None:
    exam = run(["rebn", "grpo"], batch_sizes=[8, 64], **SETTINGS)
    gammas = run(["rebn", "grpo"], batch_sizes=[8], gamma=[1.0, 0.9], **SETTINGS)
    groups = run(["rebn", "grpo"], batch_sizes=[16], group_size=[2, 16], **SETTINGS)
    write_page(exam, tmp_path / "page.html", gammas=gammas, groups=groups)
    text = (tmp_path / "page.html").read_text()
    assert text.count("<svg") == 4
    assert text.count("<polyline") == 8
    assert str(exam.certificate("grpo")) in text
    assert "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    if CHROMIUM:
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
        command = [CHROMIUM, *options, "--dump-dom", f"file://{tmp_path / 'page.html'}"]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        assert shown.count("<polyline") == 8


def test_a_plot_places_points_on_logarithmic_axes() -> None:
    plot = line_plot("t", {"a & b": [(8, 1.0), (64, 0.1), (512, 0.01)]}, x_label="B", log_y=True, legend=True)
    (points,) = re.findall(r'points="([^"]+)"', plot)
    (x0, y0), (x1, y1), (x2, y2) = (map(float, pair.split(",")) for pair in points.split())
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y1 - y0 == pytest.approx(y2 - y1, abs=0.2)
    assert y0 < y2
    assert "a &amp; b" in plot


def test_learning_follows_the_gradient() -> None:
    task = get_task("tool")
    good = learning_curve(task, Candidate.of("rloo"), steps=30)
    again = learning_curve(task, Candidate.of("rloo"), steps=30)
    np.testing.assert_array_equal(good, again)
    assert good[-1] > good[0] + 0.1
    assert good[0] == pytest.approx(0.385, abs=1e-3)
    assert np.linalg.norm(gradient(task, task.policy())) > 0
