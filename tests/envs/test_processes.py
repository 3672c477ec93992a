"""Prompts, oracles, and random players of all ids are the same in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

SLOW = {"rg:ab", "rg:codeio", "rg:futoshiki", "rg:number_sequence", "rg:zebra_puzzles"}
"""Ids that take a second or more."""
ELSEWHERE = ("openenv:", "gymnasium:", "textarena:", "skyrl:", "verifiers:", "eval:", "terminal:")
"""Families that need another package, a folder, or a sandbox."""
PROGRAM = f"""
import json, os
from gem_core import list_envs, make
from gem_lab._checker.replay_rules import first_moves
from gem_core.errors import GemError
results = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
seen = {{}}
for id in list_envs():
    if id in {SLOW} or id.startswith({ELSEWHERE}):
        continue
    try:
        with make(id) as env:
            seen[id] = [repr(env.reset(seed=3)), *first_moves(env, 3)]
    except GemError:
        continue  # a dataset that is not here, or a package
with results:
    json.dump(seen, results)
"""


def moves(hash_seed: int) -> dict[str, list[str | None]]:
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HF_HUB_OFFLINE": "1",
    }
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    played: dict[str, list[str | None]] = json.loads(child.stdout)
    return played


def test_players_do_not_follow_the_order_of_sets() -> None:
    with ThreadPoolExecutor() as pool:
        one, two = pool.map(moves, (1, 2))
    assert one.keys() == two.keys()
    assert len(one) > 60
    assert [id for id in one if one[id] != two[id]] == []
