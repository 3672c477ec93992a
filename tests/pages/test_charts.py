from __future__ import annotations

from gem_lab._pages.charts import interval_chart


def test_a_chart_shows_each_estimate_where_it_lies():
    estimate = {"mean": 0.5, "low": 0.25, "high": 0.75}
    chart = interval_chart("Return", {"one": [estimate, None], "<two>": [{"mean": -1.0, "low": None}]})
    assert chart.count("<circle") == 2
    assert "&lt;two&gt;" in chart
    # The scale from -1 to 1 covers 420 units, starting at 12.
    assert 'cx="327.0"' in chart
    assert 'x1="274.5" x2="379.5"' in chart
    assert 'cx="12.0"' in chart
