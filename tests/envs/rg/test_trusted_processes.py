"""Items are the same in another process, where sets have a different order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

reasoning_gym = pytest.importorskip("reasoning_gym", reason="needs the extra 'rg'")

import gem_core  # noqa: E402
from gem_core.errors import EnvError  # noqa: E402
from gem_envs._rg import trusted  # noqa: E402
from gem_envs._rg.env import _MADE_ELSEWHERE  # noqa: E402

NAMES = sorted(_MADE_ELSEWHERE)
COUNTS = {name: 2 if name == "knight_swap" else 3 for name in NAMES}  # its items take a second
PARTS = [{"name": name, "weight": 1, "config": {}} for name in ("ransom_note", "chain_sum")]
PROGRAM = f"""
import json
import gem_core
counts, items = {COUNTS}, {{}}
for name, count in counts.items():
    env = gem_core.make(f"rg:{{name}}", seed=5)
    items[name] = [env.reset(options={{"index": index}})[0] for index in range(count)]
env = gem_core.make("rg:composite", datasets={PARTS}, size=None)
items["composite"] = [env.reset(seed=seed)[0] for seed in range(8)]
import reasoning_gym
data = {{name: reasoning_gym.create_dataset(name, size=500, seed=5) for name in counts}}
direct = {{name: [d[index]["question"] for index in range(counts[name])] for name, d in data.items()}}
print(json.dumps([items, direct]))
"""


def run(program: str, hash_seed: str) -> Any:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(child.stdout.splitlines()[-1])


def test_every_process_has_the_same_items() -> None:
    (first, fixed), (second, other) = run(PROGRAM, "0"), run(PROGRAM, "3")
    assert first == second
    for name in set(NAMES) - {"codeio"}:
        assert all(a.startswith(b) for a, b in zip(first[name], fixed[name], strict=True))
    assert {name for name in NAMES if fixed[name] != other[name]} > {"isomorphic_strings", "ransom_note"}


@pytest.mark.parametrize("name", NAMES)
def test_scores_of_items_made_elsewhere_are_the_packages_own(name: str) -> None:
    env = gem_core.make(f"rg:{name}", size=20, seed=7)
    data = reasoning_gym.create_dataset(name, size=20, seed=7)
    for index in range(3):
        env.reset(options={"index": index})
        answer = env.oracle_action()
        assert answer is not None
        assert env.step(answer)[1] == data.score_answer(answer[7:-1], env.unwrapped.row) == 1.0


def test_an_item_that_cannot_be_made_names_the_dataset() -> None:
    env = gem_core.make("rg:ransom_note", config={"min_note_length": 5, "max_note_length": 5})
    env.unwrapped._items.settings["max_note_length"] = "five"
    with pytest.raises(EnvError, match=r"no item \d+ of 'ransom_note': ConfigError"):
        env.reset(seed=0)


def test_only_programs_are_not_deterministic() -> None:
    assert [name for name in NAMES if not gem_core.spec(f"rg:{name}").deterministic] == ["codeio"]


def test_programs_of_codeio_leave_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trusted.close_workers()  # the next one starts in this folder
    observation, _ = gem_core.make("rg:codeio").reset(options={"index": 406})
    assert "sailor_performance.csv" in observation  # the program writes it to its working directory
    assert not list(tmp_path.iterdir())


BAD_ANSWERS = """
import json
import logging
import gem_core
said = []
log = logging.getLogger("gem_envs._rg.env")
log.setLevel(logging.DEBUG)
log.addHandler(handler := logging.Handler())
handler.emit = lambda record: said.append(record.getMessage())
for name, answer in {"pool_matrix": "#" * 1000, "tower_of_hanoi": "Move disk 1 from Peg 99 to Peg 1"}.items():
    env = gem_core.make(f"rg:{name}")
    env.reset(seed=0)
    env.step(f"\\\\boxed{{{answer}}}")
"""


def test_scoring_a_bad_answer_prints_nothing() -> None:
    said = "print(json.dumps(said))"
    child = subprocess.run(
        [sys.executable, "-c", BAD_ANSWERS + said], capture_output=True, text=True, check=True
    )
    assert child.stderr == ""
    assert child.stdout.count("\n") == 1, "more than the program's own line"
    assert "Error validating move" in json.loads(child.stdout)[0]


def test_items_that_draw_from_the_global_generators_are_the_same_in_each_environment() -> None:
    """Some kinds of list_functions do so, in a module that is imported at the first item."""
    first, second = (gem_core.make("rg:list_functions", size=120).unwrapped.rows for _ in range(2))
    assert [first[index] for index in range(120)] == [second[index] for index in range(120)]
