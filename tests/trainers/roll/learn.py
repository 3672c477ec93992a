"""Trains with ROLL and ReBN, or runs the control; see `tests.trainers.learning`.

    ROLL_HOME=... python -m tests.trainers.roll.learn
    ROLL_HOME=... python -m tests.trainers.roll.learn --control

ROLL's own pipeline on two CPU cores with the stub of its engine, as in the tests. It validates before a
step only: one step more, whose learning is thrown away, plays the evaluation seeds with the last weights.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from tests.trainers import learning
from tests.trainers.roll import harness

SUCCESS = "val/gem/success"
COMMIT = "8eb27cc2"
ROW = 256
"""Padded length of rows. Every episode is shorter; with 512 a step takes nearly twice as long."""


def changed(given: learning.Given) -> dict[str, Any]:
    """Return the overrides of the YAML for the run."""
    budget = given.budget
    section = {"tags": ["Guess"], "max_env_num_per_worker": 128}
    eval_groups = 100
    return {
        "pipeline_cls": "roll_zero.ZeroedPipeline" if given.control else "gem_roll.ReBNAgenticPipeline",
        "seed": given.seed,
        "gamma": budget.gamma,
        "max_steps": budget.steps + 1,
        "eval_steps": budget.steps,
        "rollout_batch_size": budget.episodes,
        "val_batch_size": budget.eval_episodes,
        "max_grad_norm": 1.0,
        "actor_train": {
            "worker_cls": "roll_workers.CpuActor",
            "training_args": {
                "learning_rate": budget.lr,
                "per_device_train_batch_size": budget.episodes // budget.updates,
                "gradient_accumulation_steps": 1,
            },
            "infer_batch_size": budget.episodes // budget.updates,
        },
        "actor_infer": {
            "generating_args": {
                "temperature": budget.temperature,
                "max_new_tokens": budget.turn_tokens,
            }
        },
        "train_env_manager": {
            **section,
            "num_env_groups": budget.prompts,
            "group_size": budget.samples,
            "num_groups_partition": [budget.prompts],
        },
        "val_env_manager": {
            **section,
            "num_env_groups": eval_groups,
            "num_groups_partition": [eval_groups],
        },
        "custom_envs": {
            "Guess": {
                "env_type": f"gem_core:{given.env}",
                "max_steps": None,
                "env_config": {"wrappers": ""},
            }
        },
        "sequence_length": ROW,
    }


def main() -> None:
    """Run and write one line of JSON per step."""
    given = learning.arguments(__doc__)
    os.environ["GEM_ENGINE_SEED"] = str(given.seed)
    with tempfile.TemporaryDirectory(prefix="gem-roll-", ignore_cleanup_errors=True) as folder:
        run = harness.run_roll(Path(folder), given.model.resolve(), changed(given), quiet=True, timeout=14400)
        steps = harness.metrics_of(run.check())
    learning.write_run(
        given,
        trainer="roll",
        version=f"ROLL 0.3 ({COMMIT})",
        steps=steps[: given.budget.steps],
        before=steps[0][SUCCESS],
        after=steps[given.budget.steps][SUCCESS],
    )


if __name__ == "__main__":
    main()
