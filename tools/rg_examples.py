"""Choose the answers that the prompts of reasoning-gym show as examples, and write them to a file.

    python tools/rg_examples.py gem_envs/_rg/examples.json

The examples come from a dataset with a separate seed, so they answer no item that the environments show.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import gem_core
from gem_core._util.files import write_atomically
from gem_envs._rg.env import EXAMPLE_SEED

ITEMS = 8
MOST_CHARACTERS = 60
CHOSEN = {
    "boxnet": '[{"Agent[0.5, 0.5]": "move(box_blue, square[0.5, 1.5])"}]',
    "graph_color": '{"0": 1, "1": 2, "2": 1}',
    "knight_swap": '["w,B3,C1", "B,A1,B3"]',
    "n_queens": "_ Q _ _\n_ _ _ Q\nQ _ _ _\n_ _ Q _",
    "propositional_logic": "(A → B)",
    "rush_hour": "F+1 K+1 M-1 C+3",
}
"""Examples from questions, for datasets without answers; an example for a dataset in which most answers are
"No"; and examples of smaller problems, or with other letters, for datasets in which a copied answer is often
right."""


def example(name: str) -> str:
    """Return the longest answer with at most `MOST_CHARACTERS` characters, or else the shortest answer."""
    if name in CHOSEN:
        return CHOSEN[name]
    with gem_core.make(f"rg:{name}", size=ITEMS, seed=EXAMPLE_SEED) as env:
        answers = []
        for index in range(ITEMS):
            env.reset(options={"index": index})
            answers.append((env.oracle_action() or "").removeprefix("\\boxed{")[:-1])
    short = [answer for answer in answers if len(answer) <= MOST_CHARACTERS]
    return max(short, key=len) if short else min(answers, key=len)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    names = [id.removeprefix("rg:") for id in gem_core.list_envs("rg:*")]
    lines = (f"{json.dumps(name)}: {json.dumps(example(name))}" for name in names if name != "composite")
    write_atomically(out, ["{\n", ",\n".join(lines), "\n}\n"])
    sys.stdout.write(f"{len(names) - 1} examples\n")


if __name__ == "__main__":
    main()
