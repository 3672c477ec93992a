"""Does Oat learn a game with ReBN? The run and its control; see `tests.trainers.learning`.

    python -m tests.trainers.oat.learn --model tiny --out docs/results/oat
    python -m tests.trainers.oat.learn --model tiny --out docs/results/oat --control

Oat's actor, learner and collector in one process on two CPU cores, as in the tests. Oat's batch is a
number of turns: TURNS of them are those of about as many episodes as the budget has.
"""

from __future__ import annotations

import argparse
import tempfile
from importlib.metadata import version
from pathlib import Path

from tests.trainers import learning
from tests.trainers.learning import BUDGET
from tests.trainers.oat import harness

TURNS = 3 * BUDGET.episodes
SUCCESS = f"eval/{BUDGET.env}/gem/success"
SHOWN = ("gem/", "rebn/", "eval/", "train/policy_grad_norm", "train/entropy", "actor/")


def flags(given: argparse.Namespace) -> dict[str, str | None]:
    """The flags of the run."""
    return {
        "modules": "oat_cpu oat_log oat_zero",
        "estimator": "zeroed" if given.control else "rebn",
        "env_id": BUDGET.env,
        "wrappers": None,
        "gamma": str(BUDGET.gamma),
        "seed": str(given.seed),
        "num_env": "16",
        "group_size": str(BUDGET.samples),
        "rollout_batch_size": str(TURNS),
        "rollout_batch_size_per_device": str(TURNS),
        "train_batch_size": str(TURNS // BUDGET.updates),
        "train_batch_size_per_device": str(TURNS // BUDGET.updates),
        "max_train": str(TURNS * BUDGET.steps),
        "max_norm": "1",
        "tis_c": "2",
        "learning_rate": str(BUDGET.lr),
        "temperature": str(BUDGET.temperature),
        "generate_max_length": "32",
        "eval_steps": str(10 * BUDGET.steps),  # before the first step and after the last
        "eval_temperature": str(BUDGET.temperature),
        "eval_generate_max_length": "32",
        "eval_batch_size": "125",
        "max_eval": str(BUDGET.held_out),
    }


def main() -> None:
    given = learning.arguments(__doc__)
    with tempfile.TemporaryDirectory(prefix="gem-oat-", ignore_cleanup_errors=True) as folder:
        run = harness.run_oat(Path(folder), given.model.resolve(), timeout=7200, **flags(given)).check()
        records = harness.metrics_of(run)
    kept = [{key: value for key, value in record.items() if key.startswith(SHOWN)} for record in records]
    evaluations = [record[SUCCESS] for record in kept if SUCCESS in record]
    learning.write_run(
        given,
        trainer=f"Oat {version('oat-llm')}",
        steps=[record for record in kept if "gem/return" in record][: BUDGET.steps],
        before=evaluations[0],
        after=evaluations[-1],
    )


if __name__ == "__main__":
    main()
