"""The report in a real browser; see `test_viewer_browser`."""

from __future__ import annotations

import re

from gem_lab.eval import read_run
from gem_lab.eval._report import write_report
from tests.eval.test_report import runs  # noqa: F401
from tests.eval.test_viewer_browser import browse, listed, pytestmark, section  # noqa: F401


def test_the_comparison_and_the_episodes_below_it(runs, tmp_path, browse):  # noqa: F811
    write_report([read_run(runs / "oracle"), read_run(runs / "evil")], tmp_path / "page.html")
    document = browse("")
    results = " ".join(section(document, "results").split())
    assert "environment run return success" in results
    assert results.count("evil") == 1  # the other environment is not in this run
    assert "game:Mastermind-v0-easy oracle 1.000 ± 0.000 1.000 ± 0.000 [0.510, 1.000]" in results
    details = section(document, "details")
    assert "all, weighted equally" in details
    assert document.count('<svg class="chart"') == 2
    assert len(re.findall("<circle", document)) == 6  # three estimates in each plot
    assert "system_prompt" in section(document, "settings")
    legend = " ".join(section(document, "legend").split())
    assert legend.startswith("oracle evil </script>")  # the model has the name of its run, or not
    assert len(listed(document)) == 19
    # No means over episodes of several runs.
    assert " ".join(section(document, "facts").split()) == "episodes 19 not trainable 0"
    assert "all runs oracle (16) evil (3)" in " ".join(section(document, "run").split()).replace(
        "evil (3) oracle (16)", "oracle (16) evil (3)"
    )
    assert "<title>broken" not in document


def test_an_episode_of_one_run_is_read_through_its_address(runs, tmp_path, browse):  # noqa: F811
    write_report([read_run(runs / "oracle"), read_run(runs / "evil")], tmp_path / "page.html")
    document = browse("run=evil&episode=17")
    assert "mean return" in section(document, "facts")
    assert listed(document) == [16, 17, 18]
    pane = " ".join(section(document, "episode").split())
    assert "Episode 17: game:GuessTheNumber-v0-easy seed 1" in pane
    assert "run evil" in pane
    assert "invalid format" in pane
    assert "12 + 3 tokens" in pane
    assert "alert(1)" in pane  # the answer is shown as text
