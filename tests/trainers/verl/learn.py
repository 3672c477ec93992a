"""A run that shows whether verl learns with ReBN, or its control; see `tests.trainers.learning`.

    python -m tests.trainers.verl.learn
    python -m tests.trainers.verl.learn --control

verl's own trainer and engine on two CPU cores, as in the tests.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import verl

from tests.trainers import learning
from tests.trainers.verl import harness


def overrides(given: learning.Given) -> list[str]:
    """Return the overrides of the run."""
    budget = given.budget
    return [
        "trainer.v1.trainer_mode=gem_sync",
        f"algorithm.adv_estimator={'zeroed' if given.control else 'rebn'}",
        f"algorithm.gamma={budget.gamma}",
        f"data.train_files=['{given.env}']",
        f"data.val_files=['{given.env}']",
        f"data.seed={given.seed}",
        f"data.train_batch_size={budget.prompts}",
        f"data.train_max_samples={budget.prompts * budget.steps}",
        f"data.val_max_samples={budget.eval_episodes}",
        f"data.max_prompt_length={budget.max_tokens // 2}",
        f"data.max_response_length={budget.max_tokens // 2}",
        f"trainer.total_training_steps={budget.steps}",
        f"trainer.test_freq={budget.steps}",
        f"actor_rollout_ref.rollout.n={budget.samples}",
        f"actor_rollout_ref.rollout.temperature={budget.temperature}",
        "actor_rollout_ref.rollout.max_num_seqs=128",
        "actor_rollout_ref.rollout.max_num_batched_tokens=2048",
        f"actor_rollout_ref.rollout.val_kwargs.temperature={budget.temperature}",
        "actor_rollout_ref.rollout.val_kwargs.do_sample=True",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=128",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={budget.prompts // budget.updates}",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32",
        "actor_rollout_ref.actor.optim.optimizer=AdamW",
        "actor_rollout_ref.actor.optim.optimizer_impl=torch.optim",
        "actor_rollout_ref.actor.optim.weight_decay=0.0",
        "actor_rollout_ref.actor.optim.clip_grad=1.0",
        f"actor_rollout_ref.actor.optim.lr={budget.lr}",
        f"+gem.max_tokens_per_turn={budget.turn_tokens}",
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
        records: list[dict[str, Any]] = [json.loads(line)["data"] for line in path.read_text().splitlines()]
    success = f"val-aux/{given.env}/gem/success/mean@1"
    learning.write_run(
        given,
        trainer="verl",
        version=f"verl {verl.__version__}",
        steps=[record for record in records if "gem/return" in record],
        before=records[0][success],
        after=records[-1][success],
    )


if __name__ == "__main__":
    main()
