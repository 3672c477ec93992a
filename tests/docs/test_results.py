"""Every table under docs/results can be redrawn from the records next to it."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.blocks import ROOT

RESULTS = ROOT / "docs" / "results"
CATALOG = ROOT / "benchmarks" / "studies" / "catalog"
RUNS = "runs.jsonl.gz"
RECORDED = sorted(path.stem for path in CATALOG.glob("*.py") if (RESULTS / path.stem / RUNS).exists())


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    """The module of benchmarks/ that draws the table."""
    pytest.importorskip("matplotlib", reason="needs the extra 'train'")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module(request.param)


@pytest.mark.parametrize("tool", ["study"], indirect=True)
@pytest.mark.parametrize("name", RECORDED)
def test_a_study_is_drawn_from_its_records(tool: ModuleType, name: str, tmp_path: Path) -> None:
    study, records = tool.load_study(name), tool.read_records(RESULTS / name / RUNS)
    assert {record.name for record in records} <= {*study.arms}
    assert {record.seed for record in records if record.phase != "tuning"} <= {*study.seeds}
    tool.draw(name, study, records, tmp_path)
    assert (tmp_path / "summary.md").read_text() == (RESULTS / name / "summary.md").read_text()
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {path.name for path in (RESULTS / name).iterdir()} - {RUNS}
    assert (tmp_path / "curves.png").stat().st_size > 10_000


@pytest.mark.parametrize("tool", ["language_model"], indirect=True)
def test_the_page_of_the_language_model_is_drawn_from_its_records(tool: ModuleType, tmp_path: Path) -> None:
    records = tool.read_records(RESULTS / tool.NAME / RUNS)
    assert [record.task for record in records] == [*tool.STUDY.tasks]
    tool.draw(tool.NAME, tool.STUDY, records, tmp_path)
    assert (tmp_path / "summary.md").read_text() == (RESULTS / tool.NAME / "summary.md").read_text()


@pytest.mark.parametrize("tool", ["overview"], indirect=True)
def test_the_overview_is_drawn_from_the_records(tool: ModuleType, tmp_path: Path) -> None:
    tool.draw(tmp_path)
    assert (tmp_path / "summary.md").read_text() == (RESULTS / "overview" / "summary.md").read_text()
    assert (tmp_path / "differences.png").stat().st_size > 10_000


@pytest.mark.parametrize("tool", ["records"], indirect=True)
def test_a_record_keeps_what_the_table_and_the_figure_show(tool: ModuleType, tmp_path: Path) -> None:
    evaluation = {when: {"env": {"gem/success": value}} for when, value in (("before", 0.1), ("after", 0.9))}
    (tmp_path / "evaluation.json").write_text(json.dumps(evaluation))
    steps = [{"step": 1, "gem/return": 0.5, "time/rollout": 3.0}, {"step": 2, "time/rollout": 3.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    played = {"env": "env", "seed": [7, 8], "success": [True, False], "return": [1.0, 0.1], "turns": [2, 3]}
    lines = [{"step": step, **played, "error": [step == 1] * 2} for step in (0, 1, 2)]
    (tmp_path / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = {
        "env": ["game:GuessTheNumber-v0-easy"],
        "eval_env": None,
        "wrappers": "",
        "gamma": 0.9,
        "out": "run",
        "model": "m",
    }
    (tmp_path / "config.json").write_text(json.dumps(options))
    record = tool.Record.from_run(
        "ReBN", 3, "gem-core train", tmp_path, table=["gem/success"], figure=["gem/return"]
    )
    tool.write_records(tmp_path / RUNS, [record])
    assert tool.read_records(tmp_path / RUNS) == [record]
    assert record.steps == {"gem/return": [0.5, None]}
    assert len(record.commit) >= 7
    assert (record.evaluation, record.config["gamma"]) == (evaluation, 0.9)
    assert "torch" in record.machine
    means = {"gem/success": 0.5, "gem/return": 0.55, "gem/turns": 2.5}
    assert record.evaluations == [{"step": 0, **means}, {"step": 1}, {"step": 2, **means}]
    assert record.raw == {"env": {"seeds": [7, 2], "success": "10", "return": [1.0, 0.1], "turns": [2, 3]}}


@pytest.mark.parametrize("tool", ["records"], indirect=True)
def test_a_record_is_outdated_when_its_environment_has_changed(tool: ModuleType) -> None:
    env = "game:GuessTheNumber-v0-easy"
    record = tool.Record("ReBN", 0, "", "", {}, {}, {}, fingerprints={env: tool.current_fingerprint(env)})
    assert not tool.outdated([record])
    other = tool.current_fingerprint("game:GuessTheNumber-v0-hard")
    assert tool.outdated([record, replace(record, fingerprints={env: other})])
    # The prompts of a wrapper belong to the environment.
    assert tool.outdated([replace(record, config={"wrappers": "tools(tools='python')"})])
    assert tool.outdated([replace(record, fingerprints={})])  # recorded before there were fingerprints


def test_the_evaluation_page_shows_the_figures_of_the_run() -> None:
    summary = json.loads((RESULTS / "eval" / "summary.json").read_text())
    page = (RESULTS / "eval" / "summary.md").read_text()
    for id, values in summary["envs"].items():
        means = [f"{values[name]['mean']:.3f} ± {values[name]['se']:.3f}" for name in ("return", "success")]
        tokens = f"{values['prompt_tokens']}/{values['response_tokens']}"
        errors = f"{values['metrics']['gem/format_error_rate']:.2f}"
        row = f"| `{id}` | {values['episodes']} | {' | '.join(means)} | {errors} | {tokens} |"
        assert row in page


@pytest.mark.parametrize("tool", ["common"], indirect=True)
@pytest.mark.parametrize("name", ["bench", "trainers"])
def test_the_table_of_benchmarks_matches_its_records(tool: ModuleType, name: str) -> None:
    assert tool.table(tool.load(RESULTS / f"{name}.json")) in (RESULTS / f"{name}.md").read_text()


@pytest.mark.parametrize("tool", ["common"], indirect=True)
def test_a_benchmark_that_runs_alone_replaces_only_its_own_lines(tool: ModuleType) -> None:
    recorded = [tool.Result(name, 1.0) for name in ("context: a", "game: a", "game: b", "rg: a")]
    results = [tool.Result("game: c", 2.0)]
    assert tool.merge(recorded, results) == [recorded[0], *results, recorded[3]]
    new = [tool.Result("trainers: a", 2.0)]
    assert tool.merge(recorded, new) == [*recorded, *new]


def test_the_exam_is_drawn_from_its_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    importlib.import_module("exam_study").draw(RESULTS / "exam", tmp_path)
    recorded = {
        path.name: path.read_text()
        for path in (RESULTS / "exam").iterdir()
        if path.suffix not in (".jsonl", ".gz")
    }
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == recorded


@pytest.mark.parametrize("tool", ["grader_study"], indirect=True)
def test_the_comparison_of_graders_is_drawn_from_its_records(tool: ModuleType) -> None:
    summary, *records = tool.read_rows(tool.RECORDS)
    assert tool.page(summary, records) == tool.PAGE.read_text()
    assert summary["pairs"] >= 2000
    for peer in ("math-verify", "gem-llm"):
        for column in ("right accepted", "wrong rejected"):
            assert summary["gem-core"][column] > summary[peer][column]
    column = "seconds per 1,000 numbers"
    assert summary["gem-llm"][column] >= 30 * summary["gem-core"][column]


def test_the_checks_of_other_ecosystems_are_drawn_from_their_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    tool = importlib.import_module("foreign_checks")
    rows = tool.read(RESULTS / "bridges.jsonl")
    assert len(rows) >= 20
    assert tool.draw(rows) == (RESULTS / "bridges.md").read_text()


@pytest.mark.parametrize("tool", ["openenv_study"], indirect=True)
def test_the_table_of_openenv_servers_matches_its_records(tool: ModuleType) -> None:
    runs = json.loads(tool.RECORD.read_text())["runs"]
    page = (RESULTS / "openenv.md").read_text(encoding="utf-8")
    assert "\n".join(tool.table(runs)) in page
    for peer in (tool.THEIRS, tool.THEIRS_ASYNC):
        few, many = (f"{tool.ratios(runs, 'steps_per_s', peer, sessions):.1f}" for sessions in tool.SESSIONS)
        assert few in page
        assert many in page


@pytest.mark.parametrize("tool", ["fleet_study"], indirect=True)
def test_the_table_of_fleets_matches_its_records(tool: ModuleType) -> None:
    page = (RESULTS / "openenv.md").read_text(encoding="utf-8")
    assert "\n".join(tool.table(tool.read_record())) in page


@pytest.mark.parametrize("tool", ["gateway_study"], indirect=True)
def test_the_tables_of_the_gateway_match_their_record(tool: ModuleType) -> None:
    record = json.loads(tool.RECORD.read_text())
    page = (RESULTS / "gateway.md").read_text(encoding="utf-8")
    assert tool.table(record) in page
    assert tool.load_table(record) in page
    assert record["load"]["agents"] == 1000
