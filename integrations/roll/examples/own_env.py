"""An environment of your own, trained by ROLL with ReBN. One file, two commands:

    python own_env.py            # play it here: no ROLL, no GPU
    python own_env.py train      # write own_env.yaml and print the command that trains with it

ROLL's worker processes import this file by the name under ``custom_envs.gem.modules``, so its folder has to
be on their path, which the printed command does.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from random import Random

import gem_core
from gem_core.envs.base import MoveResult, MoveVerdict, TurnBasedEnv


class Doubling(TurnBasedEnv[int]):
    """Double a number three times; the last double solves the task, a wrong one loses it."""

    state_fields = (*TurnBasedEnv.state_fields, "number")

    def new_game(self) -> None:
        """A number from 1 to 9."""
        self.turn_limit = 3
        self.number = self.random.randint(1, 9)

    def rules(self) -> str:
        """The first observation."""
        return f"Start with {self.number}. Answer with its double in \\boxed{{}}, three times in a row."

    def parse(self, text: str) -> int | None:
        """A whole number."""
        return int(text) if text.isdecimal() and len(text) < 10 else None

    def play(self, move: int) -> MoveResult:
        """A third of the reward for each double."""
        if move != 2 * self.number:
            return f"Wrong, the double of {self.number} is {2 * self.number}.", 0.0, "lost"
        self.number = move
        verdict: MoveVerdict = "solved" if self.turn == self.turn_limit else "continue"
        return f"Right. Now double {move}.", 1 / 3, verdict

    def random_move(self, random: Random) -> str:
        """Any number."""
        return str(random.randint(1, 80))

    def best_move(self) -> str:
        """The double."""
        return str(2 * self.number)


gem_core.register("example:Doubling", Doubling)

FOLDER = Path(__file__).resolve().parent
CONFIG = {
    "defaults": ["rebn", "_self_"],  # the YAML beside this file
    "exp_name": "gem_own_env",
    "custom_envs": {
        "gem": {"modules": [Path(__file__).stem]},
        "Doubling": {
            "env_type": "gem_core:example:Doubling",
            "env_manager_cls": "gem_roll.GemTrajEnvManager",
            "max_steps": 3,
            "max_tokens_per_step": 256,
            "agent_system_template": None,
            "agent_template": "{observation}",
        },
    },
    "train_env_manager": {"tags": ["Doubling"], "num_groups_partition": [64]},
    "val_env_manager": {"tags": ["Doubling"], "num_groups_partition": [128]},
}


def play() -> None:
    """One episode of the best player."""
    env = gem_core.make("example:Doubling")
    observation, _ = env.reset(seed=0)
    done = False
    while not done:
        action = env.oracle_action()
        print(f"{observation}  ->  {action}")
        observation, reward, terminated, truncated, _ = env.step(action or "")
        done = terminated or truncated
    print(f"last reward {reward:.2f}")


def command(home: str) -> str:
    """Write the YAML; the command line that trains with it, from ROLL's checkout in `home`."""
    (FOLDER / "own_env.yaml").write_text(json.dumps(CONFIG, indent=1) + "\n")
    place = os.path.relpath(FOLDER, Path(home).resolve() / "examples")
    words = [
        "python",
        "examples/start_agentic_pipeline.py",
        "--config_path",
        place,
        "--config_name",
        "own_env",
    ]
    return f"PYTHONPATH={shlex.quote(f'{home}:{FOLDER}')} {shlex.join(words)}"


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        print(command(os.environ["ROLL_HOME"]))
    else:
        play()
