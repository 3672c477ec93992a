"""Does verl learn a game with ReBN? The run and its control; see `tests.trainers.learning`.

    python -m tests.trainers.verl.learn --model tiny --out docs/results/verl
    python -m tests.trainers.verl.learn --model tiny --out docs/results/verl --control

verl's own trainer and engine on two CPU cores, as in the tests.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import verl

from tests.trainers import learning
from tests.trainers.learning import BUDGET
from tests.trainers.verl import harness

SUCCESS = f"val-aux/{BUDGET.env}/gem/success/mean@1"
SHOWN = ("gem/", "rebn/", "val-core/", "val-aux/", "actor/grad_norm", "actor/entropy", "timing_s/step")


def overrides(given: argparse.Namespace) -> list[str]:
    """The config words of the run."""
    return [
        "trainer.v1.trainer_mode=gem_sync",
        f"algorithm.adv_estimator={'zeroed' if given.control else 'rebn'}",
        f"algorithm.gamma={BUDGET.gamma}",
        f"data.train_files=['{BUDGET.env}']",
        f"data.val_files=['{BUDGET.env}']",
        f"data.seed={given.seed}",
        f"data.train_batch_size={BUDGET.prompts}",
        f"data.train_max_samples={BUDGET.prompts * BUDGET.steps}",
        f"data.val_max_samples={BUDGET.held_out}",
        "data.max_response_length=128",
        f"trainer.total_training_steps={BUDGET.steps}",
        f"trainer.test_freq={BUDGET.steps}",
        f"actor_rollout_ref.rollout.n={BUDGET.samples}",
        f"actor_rollout_ref.rollout.temperature={BUDGET.temperature}",
        "actor_rollout_ref.rollout.max_num_seqs=128",
        "actor_rollout_ref.rollout.max_num_batched_tokens=2048",
        f"actor_rollout_ref.rollout.val_kwargs.temperature={BUDGET.temperature}",
        "actor_rollout_ref.rollout.val_kwargs.do_sample=True",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=128",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={BUDGET.prompts // BUDGET.updates}",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32",
        "actor_rollout_ref.actor.optim.optimizer=AdamW",
        "actor_rollout_ref.actor.optim.optimizer_impl=torch.optim",
        "actor_rollout_ref.actor.optim.weight_decay=0.0",
        "actor_rollout_ref.actor.optim.clip_grad=1.0",
        f"actor_rollout_ref.actor.optim.lr={BUDGET.lr}",
        "+gem.wrappers=''",
    ]


def main() -> None:
    given = learning.arguments(__doc__)
    with tempfile.TemporaryDirectory(prefix="gem-verl-", ignore_cleanup_errors=True) as folder:
        run = harness.run_verl(
            Path(folder),
            given.model.resolve(),
            *overrides(given),
            modules="verl_cpu,verl_zero",
            timeout=7200,
        ).check()
        (path,) = run.folder.glob("gem/*.jsonl")
        records: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [
        {key: value for key, value in record["data"].items() if key.startswith(SHOWN)} for record in records
    ]
    learning.write_run(
        given,
        trainer=f"verl {verl.__version__}",
        steps=[step for step in kept if "gem/return" in step],
        before=kept[0][SUCCESS],
        after=kept[-1][SUCCESS],
    )


if __name__ == "__main__":
    main()
