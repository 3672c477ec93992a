"""Writes gem_lab/_conform/batches.json: batches of rows, with the exact advantages of each turn as fractions.

python tools/conformance_batches.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from gem_core.advantages import Threads

FILE = Path(__file__).parents[1] / "gem_lab/_conform/batches.json"
FORMAT = "conformance batches 1"

BATCHES: dict[str, tuple[str, list[str]]] = {
    "one turn": ("a row per episode", ["a: 3=1", "a: 1=0", "b: 2=1", "b: 2=1/2"]),
    "uneven groups": ("groups of three and two", ["a: 2=1", "a: 2=0", "a: 2=0", "b: 2=1", "b: 2=0"]),
    "turn rewards": ("rewards during the episode", ["a: 2=1 3=0 1=0", "a: 1=0 2=1"]),
    "adjacent turns": ("no token between two responses", ["a: 2=1 +3=0", "a: 2=0"]),
    "failed episode": ("a masked row", ["a: 2=1", "a: 2=0", "a: 2=0 failed"]),
    "alone in its group": ("nothing to compare", ["a: 2=1", "b: 2=0 2=1", "b: 2=0"]),
    "equal scores": ("0.1 three times, and 0.3", ["a: 2=1/10 2=1/10 2=1/10", "a: 2=3/10"]),
    "turn rows": ("a row per turn, with the outcome on the last", ["a: 2=0 | 2=1", "a: 2=0 | 2=0"]),
    "turn rows with rewards": ("a row per turn", ["a: 2=1 | 2=0", "a: 2=0 | 2=1"]),
    "rewritten": ("a history rewritten twice: three rows", ["a: 4=0 | 2=0 | 2=1", "a: 2=0"]),
    "rewritten, longer turns": ("rows of several turns", ["a: 2=1/2 1=0 | 3=0 2=1", "a: 2=0 2=1/2"]),
    "rows in turns": ("row 0 goes on after row 1", ["a: 2=0 | 1=0 | 3=1/4@0", "a: 1=1 2=0 | 2=1"]),
    "sub-agent": ("turn 0 calls two turns", ["a: 2=-1/2 | 3=0~1 1=0~1 | 2=1@0; 1: 0 0", "a: 2=0"]),
    "sub-agent with rewards": ("earned inside", ["a: 2=0 | 1=1/2~1 | 2=1@0; 1: 0 0", "a: 1=1"]),
    "compaction": ("turn 1 writes the summary", ["a: 5=0 | 3=0~1 | 2=1; 1: 0 2", "a: 2=0 2=0"]),
    "rejected attempt": ("asked again in a new row", ["a: 2=0~1 | 2=1; 1: - 1", "a: 2=0"]),
    "two compactions": (
        "of unequal lengths",
        ["a: 1=0 | 2=0~1 | 4=0 | 1=0~2 | 3=1; 1: 0 2, 2: 2 4", "a: 3=1/2"],
    ),
}
"""Name, description, and episodes. ``a: 2=1/2 +3=0 | 1=1~1@0; 1: 0 -`` is an episode of group a: a row with a
turn of 2 tokens and reward 1/2 and one of 3 tokens directly after it; a turn of thread 1, in row 0 again.
Thread 1 is called by turn 0 and returns to none."""


def read(text: str) -> dict[str, Any]:
    """Return an episode of `BATCHES` as data."""
    group, rest = text.removesuffix(" failed").split(": ", 1)
    body, _, links = rest.partition("; ")
    turns, row = [], 0
    for index, part in enumerate(body.split(" | ")):
        for word in part.split():
            word, _, place = word.partition("@")
            word, _, thread = word.partition("~")
            tokens, _, reward = word.partition("=")
            row = int(place) if place else index
            turns.append(
                {
                    "row": row,
                    "tokens": int(tokens),
                    "reward": reward,
                    "gap": 0 if tokens.startswith("+") else 1,
                    "thread": int(thread or 0),
                }
            )
    rows = list(dict.fromkeys(turn["row"] for turn in turns))
    for turn in turns:
        turn["row"] = rows.index(turn["row"])
    threads = {}
    for link in filter(None, links.split(", ")):
        thread, called_by, returns_to = link.replace(":", "").split()
        threads[thread] = [None if turn == "-" else int(turn) for turn in (called_by, returns_to)]
    return {"group": group, "failed": text.endswith(" failed"), "threads": threads, "turns": turns}


def returns(episode: dict[str, Any], gamma: Fraction) -> list[Fraction]:
    """Return the return of each turn."""
    links = {int(thread): (*link, False) for thread, link in episode["threads"].items()}
    weights, _ = Threads(tuple(turn["thread"] for turn in episode["turns"]), links).coefficients(float(gamma))
    rewards = [Fraction(turn["reward"]) for turn in episode["turns"]]
    # A power of 1/2 is exact in binary.
    return [sum((Fraction(c) * r for c, r in zip(row, rewards, strict=True)), Fraction()) for row in weights]


def expected(episodes: Sequence[dict[str, Any]]) -> dict[str, list[list[str]]]:
    """Return the advantages of the turns of each episode that did not fail, by kind of estimator."""
    live = [episode for episode in episodes if not episode["failed"]]
    scores = [sum(Fraction(turn["reward"]) for turn in episode["turns"]) for episode in live]
    found: dict[str, list[list[Fraction]]] = {"group mean": [], "leave one out": []}
    for episode, score in zip(live, scores, strict=True):
        group = [s for e, s in zip(live, scores, strict=True) if e["group"] == episode["group"]]
        advantage = score - Fraction(sum(group), len(group))
        found["group mean"].append([advantage] * len(episode["turns"]))
        factor = Fraction(len(group), max(1, len(group) - 1))
        found["leave one out"].append([advantage * factor] * len(episode["turns"]))
    for gamma in (Fraction(1), Fraction(1, 2)):
        gs = [returns(episode, gamma) for episode in live]
        every = [value for values in gs for value in values]
        mean = sum(every, Fraction()) / len(every)
        found[f"mean of turns, gamma={gamma}"] = [[value - mean for value in values] for values in gs]
    return {kind: [[str(value) for value in values] for values in table] for kind, table in found.items()}


def batches() -> list[dict[str, Any]]:
    """Return the content of the file."""
    made = []
    for name, (about, texts) in BATCHES.items():
        episodes = [read(text) for text in texts]
        made.append({"name": name, "about": about, "episodes": episodes, "advantages": expected(episodes)})
    return made


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(batch) for batch in batches())
    FILE.write_text(f'{{"format": "{FORMAT}", "batches": [\n{lines}\n]}}\n', encoding="utf-8")
