"""The script that measures environments; the pages contain what it would write."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import gem_core
from gem_core.errors import MissingDependency
from gem_envs._rg import installed_version
from gem_envs.datasets._base import Graded
from gem_envs.sandbox import self_check
from gem_lab import _cli
from gem_lab._checker.fingerprint import WIDTH, fingerprint
from gem_lab._checker.floors import documented
from tests.docs.blocks import ROOT


def load(name: str) -> ModuleType:
    """Import a script of the folder tools, which may import another one."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "tools"))
    return module


tables, floors = load("env_tables"), load("floors")


NEEDS_BM25S = pytest.mark.skipif(
    importlib.util.find_spec("bm25s") is None, reason="webshop.md needs the extra 'search'"
)
NEEDS_PILLOW = pytest.mark.skipif(
    importlib.util.find_spec("PIL") is None, reason="vision.md needs the extra 'vision'"
)
NEEDS_MCP = pytest.mark.skipif(
    importlib.util.find_spec("mcp") is None, reason="databases.md needs the extra 'mcp'"
)
NEEDS_NAMESPACE = pytest.mark.skipif(
    not self_check()["namespace"].available, reason="terminal.md needs level 'namespace'"
)
NEEDS = {
    "webshop.md": NEEDS_BM25S,
    "vision.md": NEEDS_PILLOW,
    "databases.md": NEEDS_MCP,
    "terminal.md": NEEDS_NAMESPACE,
}
PAGES = [pytest.param(page, file, marks=NEEDS.get(page, ())) for page, file in tables.PAGES.items()]


@pytest.mark.parametrize(("page", "records"), PAGES)
def test_a_page_holds_the_tables_of_its_records(page: str, records: str) -> None:
    text = (ROOT / "docs" / "environments" / page).read_text()
    filled = tables.fill(text, tables.read(ROOT / "docs" / "results" / records))
    command = f"python tools/env_tables.py fill docs/environments/{page} docs/results/{records}"
    new = [line for line in filled.splitlines() if line not in text.splitlines()]
    assert not new, f"run `{command}`, or for a new environment `make records ID=...`: it writes {new[0]}"
    assert filled == text, f"run `{command}`: a table has too many lines"


def test_every_game_was_measured() -> None:
    records = tables.read(ROOT / "docs" / "results" / "games.jsonl")
    games = set(gem_core.list_envs("game:*"))
    assert games
    missing = sorted(games - set(records))
    assert not missing, f"not measured: {', '.join(missing)}. Run `make records ID={missing[0]}` for each"
    assert min(record["episodes"] for record in records.values()) >= 100


def test_every_environment_that_can_be_played_here_has_a_floor() -> None:
    records = floors.read(ROOT / "docs" / "results" / "floors.jsonl.gz")
    specs = [gem_core.spec(id) for id in gem_core.list_envs()]  # other tests register environments as well
    ours = [s for s in specs if str(s.entry_point).startswith("gem_envs.")]
    offline = {spec.id for spec in ours if "dataset_name" not in spec.kwargs}
    own_data = {"eval:SQLiteFolder", "eval:TerminalBench", "service:TauBenchRetail-v0"}
    assert own_data <= offline - set(records)
    missing = sorted(offline - set(records) - own_data)
    assert not missing, f"without a floor: {', '.join(missing)}. Run `make records ID={missing[0]}` for each"
    for id, record in records.items():
        assert floors.complete(record, 20), f"{id} lacks players: run `make records ID={id}`"
        assert documented(gem_core.spec(id)) == (*floors.floor(record),), (
            f"{id} has another floor in gem_lab/_checker/floors.json: run `make records ID={id}`"
        )


SLOW = {"rg:futoshiki", "rg:ab", "rg:knight_swap"}
"""Ids whose first items take more than a second of CPU time."""
RG_VERSION = "0.1.25"
IMPORTS = ("numpy", "sympy")
"""Packages that prompts for programs mention where they are installed."""


@pytest.mark.parametrize("kind", ["game", "rg", "other"])
def test_recorded_results_describe_the_current_environments(kind: str) -> None:
    if kind == "rg" and installed_version() != RG_VERSION:
        pytest.skip(f"the records are from version {RG_VERSION} of reasoning-gym")
    results = ROOT / "docs" / "results"
    files = [tables.read(results / name) for name in sorted(set(tables.PAGES.values()))]
    files.append(floors.read(results / "floors.jsonl.gz"))
    assert all(files)
    recorded: dict[str, set[str]] = {}
    for id, record in [item for records in files for item in records.items()]:
        prefix = id.partition(":")[0]
        if (prefix if prefix in ("game", "rg") else "other") == kind:
            recorded.setdefault(id, set()).add(record["fingerprint"][:WIDTH])
    changed, compared = [], 0
    for id in recorded.keys() - SLOW:
        if gem_core.spec(id).deterministic and (id[:5] != "code:" or all(map(find_spec, IMPORTS))):
            try:
                env = gem_core.make(id)
            except MissingDependency:
                continue
            with env:
                compared += 1
                if recorded[id] != {fingerprint(env, range(1))}:
                    changed.append(id)
    assert not changed, (
        f"prompts, items, or rewards differ from the recorded ones: {', '.join(sorted(changed))}. "
        f"Run `make records ID={min(changed)}` for each"
    )
    if not compared:
        pytest.skip("the packages of these environments are not installed")


def test_a_fingerprint_depends_on_the_items_and_the_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(seeds: range = range(2), **kwargs: Any) -> str:
        return fingerprint(gem_core.make("math:Arithmetic-v0-easy", **kwargs), seeds)

    assert found() == found()
    assert len(found()) == 2 * WIDTH
    assert found(range(1)) == found()[:WIDTH]
    assert found(split="test") != found()
    env = gem_core.make("math:Arithmetic-v0-easy")
    monkeypatch.setattr(env.unwrapped, "grade", lambda answer, row: Graded(0.5, ""))
    assert fingerprint(env, range(2)) != found()


def test_measured_floors_come_from_the_best_player(tmp_path: Path) -> None:
    floors.measure("logic:Proofs-v0-d0", tmp_path / "out.jsonl.gz", 10, 1, False)
    before = (tmp_path / "out.jsonl.gz").read_bytes()
    floors.measure("logic:Proofs-v0-d0", tmp_path / "out.jsonl.gz", 5, 1, False)
    assert (tmp_path / "out.jsonl.gz").read_bytes() == before, "measured already"
    (record,) = floors.read(tmp_path / "out.jsonl.gz").values()
    shares = record["success, return"]["boxed"]
    assert shares["True"][0] + shares["False"][0] == 1
    best, player, seeds = floors.floor(record)
    assert (best, seeds) == (max(shares["True"][0], shares["False"][0]), 10)
    assert player in ("\\boxed{True}", "\\boxed{False}")
    floors.write(tmp_path / "out.jsonl.gz", tmp_path / "floors.json")
    assert json.loads((tmp_path / "floors.json").read_text()) == {"logic:Proofs-v0-d0": [best, player, 10]}


def test_only_the_missing_players_of_an_unchanged_environment_are_measured(tmp_path: Path) -> None:
    id, out = "game:TowerofHanoi-v0-easy", tmp_path / "out.jsonl.gz"
    floors.measure(id, out, 20, 1, False)
    first = gzip.decompress(out.read_bytes())
    record = json.loads(first)
    assert record["replays"] == 10
    name, success, _ = record["best replay"]
    assert floors.floor(record) == [success, name, 20]
    del record["best replay"], record["replays"], record["success, return"]["boxed"]["tower"]
    record["success, return"]["boxed"]["zigzag"] = [0.5, 0.5]
    out.write_bytes(gzip.compress(f"{json.dumps(record)}\n".encode()))
    floors.measure(id, out, 20, 1, False)
    (added,) = floors.read(out).values()
    assert (added["replays"], added["best replay"]) == (10, [name, *json.loads(first)["best replay"][1:]])
    players = added["success, return"]["boxed"]
    assert players["tower"] == json.loads(first)["success, return"]["boxed"]["tower"]
    assert players["zigzag"] == [0.5, 0.5], "it was measured before"
    changed = {**added, "fingerprint": "changed", "replays": 0, "seeds": 19}
    out.write_bytes(gzip.compress(f"{json.dumps(changed)}\n".encode()))
    floors.measure(id, out, 20, 1, False)
    (again,) = floors.read(out).values()
    assert again["success, return"] == json.loads(first)["success, return"]


def test_high_floors_are_listed_in_order() -> None:
    rows = tables.floors(["game:Mastermind-v0-hard", "logic:Proofs-v0-d3", "game:GuessTheNumber-v0-easy"], {})
    assert [row.split("`")[1] for row in rows.splitlines()[2:]] == [
        "logic:Proofs-v0-d3",
        "game:GuessTheNumber-v0-easy",
    ]


def test_measure_appends_what_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    tables.measure("game:TowerofHanoi-v0-*", out, 3)
    first = out.read_text()
    tables.measure("game:TowerofHanoi-v0-*", out, 3)
    assert out.read_text() == first
    tables.measure("game:TowerofHanoi-v0-easy", out, 4)
    assert json.loads(out.read_text().splitlines()[-1])["episodes"] == 4
    easy = tables.read(out)["game:TowerofHanoi-v0-easy"]
    assert easy["oracle"] == {"return": 1.0, "success": 1.0, "turns": 6.25}
    assert easy["random"]["return"] < 1.0


def test_fill_replaces_only_what_is_marked(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    tables.measure("game:TowerofHanoi-v0-easy", out, 1)
    page = "a\n<!-- table: game:TowerofHanoi-v0-easy -->\nold\n<!-- end -->\nb\n"
    filled = tables.fill(page, tables.read(out))
    assert filled.startswith("a\n<!-- table")
    assert filled.endswith("<!-- end -->\nb\n")
    assert "old" not in filled
    assert (
        "| `game:TowerofHanoi-v0-easy` | `num_disks=3, max_turns=10` | 1 | 0.130 | 1.000 (1.000), 6.0 | "
        in filled
    )
    assert ", 1 episodes |" in filled
    assert tables.fill(filled, tables.read(out)) == filled
    assert "No such mark" in tables.fill("No such mark", {})


QUICK = (
    "game:GuessTheNumber-v0*",
    "game:TowerofHanoi-v0*",
    "math:Arithmetic-v0*",
    "logic:Proofs-v0*",
    "game:Wordle-v0",
)


@pytest.mark.once
@pytest.mark.parametrize("player", ["random", "oracle"])
def test_players_of_an_evaluation_earn_what_is_documented(
    player: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "--model", player, "--env", *QUICK, "--episodes", "60", "--out", str(tmp_path / "run")]
    assert _cli.main(words) == 0
    records = [ROOT / "docs" / "results" / name for name in ("games.jsonl", "datasets.jsonl")]
    tables.verify(tmp_path / "run", records)
    assert ", 0 differ" in capsys.readouterr().out
    wrong = tables.read(records[0])["game:GuessTheNumber-v0-easy"]
    wrong["random"]["return"] += 0.3
    if player == "oracle":
        summary = json.loads((tmp_path / "run" / "summary.json").read_text())
        summary["envs"]["game:GuessTheNumber-v0-easy"]["return"]["mean"] -= 0.01
        (tmp_path / "run" / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "wrong.jsonl").write_text(json.dumps(wrong) + "\n")
    with pytest.raises(SystemExit):
        tables.verify(tmp_path / "run", [tmp_path / "wrong.jsonl"])
    assert "game:GuessTheNumber-v0-easy: " in capsys.readouterr().out


def test_a_rare_win_that_was_never_observed_is_not_a_difference() -> None:
    summary = {
        "model": "random",
        "envs": {"game:Wordle-v0": {"return": {"mean": 0.0, "se": 0.0}, "episodes": 100}},
    }
    of = {"game:Wordle-v0": {"random": {"return": 0.002}, "oracle": None, "episodes": 1000}}
    assert tables.differences(summary, of) == {}
    of["game:Wordle-v0"]["random"]["return"] = 0.2
    assert list(tables.differences(summary, of)) == ["game:Wordle-v0"]


@pytest.mark.once
def test_one_command_writes_every_record_of_a_new_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four files hold an environment: the records, the floors, their summary, and the page."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    records = load("records")
    id = "game:TowerofHanoi-v0-easy"
    results, pages = tmp_path / "results", tmp_path / "pages"
    for folder in (results, pages):
        folder.mkdir()
    for name in set(tables.PAGES.values()):
        known = tables.read(ROOT / "docs" / "results" / name)
        lines = [json.dumps(known[each]) + "\n" for each in sorted(known) if each != id]
        (results / name).write_text("".join(lines))
    for page in tables.PAGES:
        (pages / page).write_text("")
    (pages / "games.md").write_text("<!-- table: game:Tower* -->\n<!-- end -->\n")
    monkeypatch.setattr(records, "ROOT", tmp_path)
    monkeypatch.setattr(records, "RESULTS", results)
    monkeypatch.setattr(records, "PAGES", pages)
    monkeypatch.setattr(records, "SOURCE", results / "floors.jsonl.gz")
    monkeypatch.setattr(records, "FLOORS", tmp_path / "floors.json")
    with pytest.raises(SystemExit, match=rf"{id} has no record: run `make records ID={id}`"):
        tables.fill((pages / "games.md").read_text(), tables.read(results / "games.jsonl"))
    written = records.write_records(id, None, None, 5)
    assert {path.relative_to(tmp_path).as_posix() for path in written} == {
        "results/games.jsonl",
        "results/floors.jsonl.gz",
        "floors.json",
        "pages/games.md",
    }
    assert tables.read(results / "games.jsonl")[id]["episodes"] == 1000
    assert floors.read(results / "floors.jsonl.gz")[id]["seeds"] == 5
    assert f"| `{id}` | `num_disks=3, max_turns=10` |" in (pages / "games.md").read_text()
    assert list(json.loads((tmp_path / "floors.json").read_text())) == [id]

    measured = (results / "games.jsonl").read_bytes(), (results / "floors.jsonl.gz").read_bytes()
    records.write_records(id, None, None, 5)
    assert measured == ((results / "games.jsonl").read_bytes(), (results / "floors.jsonl.gz").read_bytes())

    with pytest.raises(SystemExit, match="no id matches 'game:Nothing': register it first"):
        records.write_records("game:Nothing", None, None, None)
    with pytest.raises(
        SystemExit, match=r"no file of docs/results has records of 'multi:': choose one with --f"
    ):
        records.write_records("multi:KuhnPoker-v0", None, None, None)
    (pages / "games.md").write_text("")
    with pytest.raises(
        SystemExit, match=rf"no table shows {id}: write the two lines `<!-- table: {id} -->` and"
    ):
        records.write_records(id, None, None, 5)


class Untold(gem_core.Env):
    """A class that does not say what pays.

    Action: ``\\boxed{1}``.
    """


def test_a_docstring_without_rewards_is_named() -> None:
    assert tables.paragraph(Untold, "Action: ") == "`\\boxed{1}`."
    with pytest.raises(
        SystemExit, match=r"test_env_tables\.Untold has no paragraph that begins with 'Rewards: '"
    ):
        tables.paragraph(Untold, "Rewards: ")
