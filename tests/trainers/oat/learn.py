"""Trains with Oat and ReBN, or runs the control; see `tests.trainers.learning`.

    python -m tests.trainers.oat.learn
    python -m tests.trainers.oat.learn --control

Oat's actor, learner, and collector in one process on two CPU cores, as in the tests. Oat's batch is a
number of turns: those of about as many episodes as the budget has.
"""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path

from gem_lab.repro._recipe import ADAM_BETAS
from tests.trainers import learning
from tests.trainers.oat import harness


def flags(given: learning.Given) -> dict[str, str | None]:
    """Return the flags of the run."""
    budget = given.budget
    turns = budget.turns * budget.episodes
    return {
        "modules": "oat_cpu oat_log oat_zero",
        "estimator": "zeroed" if given.control else "rebn",
        "env_id": given.env,
        "wrappers": None,
        "gamma": str(budget.gamma),
        "seed": str(given.seed),
        "num_env": "16",
        "group_size": str(budget.samples),
        "rollout_batch_size": str(turns),
        "rollout_batch_size_per_device": str(turns),
        "train_batch_size": str(turns // budget.updates),
        "train_batch_size_per_device": str(turns // budget.updates),
        "max_train": str(turns * budget.steps),
        "adam_beta_1": str(ADAM_BETAS[0]),
        "adam_beta_2": str(ADAM_BETAS[1]),
        "max_norm": "1",
        "max_model_len": str(budget.max_tokens),
        "learning_rate": str(budget.lr),
        "temperature": str(budget.temperature),
        "generate_max_length": str(budget.turn_tokens),
        "eval_steps": str(10 * budget.steps),  # before the first step and after the last
        "eval_temperature": str(budget.temperature),
        "eval_generate_max_length": str(budget.turn_tokens),
        "eval_batch_size": "125",
        "max_eval": str(budget.eval_episodes),
    }


def main() -> None:
    given = learning.arguments(__doc__)
    with tempfile.TemporaryDirectory(prefix="gem-oat-", ignore_cleanup_errors=True) as folder:
        run = harness.run_oat(Path(folder), given.model.resolve(), timeout=7200, **flags(given)).check()
        records = harness.metrics_of(run)
    success = f"eval/{given.env}/gem/success"
    evaluations = [record[success] for record in records if success in record]
    learning.write_run(
        given,
        trainer="oat",
        version=f"Oat {version('oat-llm')}",
        steps=[record for record in records if "gem/return" in record][: given.budget.steps],
        before=evaluations[0],
        after=evaluations[-1],
    )


if __name__ == "__main__":
    main()
