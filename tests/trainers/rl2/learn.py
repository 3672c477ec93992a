"""Trains with RL2 and ReBN, or runs the control; see `tests.trainers.learning`.

    python -m tests.trainers.rl2.learn
    python -m tests.trainers.rl2.learn --control

rl-square 0.0.2 on two CPU cores, as in the tests. It validates after a step only: the first weights play
the evaluation seeds in a run of one step whose learning rate is zero.
"""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path

from tests.trainers import learning
from tests.trainers.rl2 import harness


def overrides(given: learning.Given) -> list[str]:
    """Return the overrides of the run."""
    budget = given.budget
    return [
        f"adv.gamma={budget.gamma}",
        f"train_data.prompts_per_rollout={budget.prompts}",
        f"train_data.responses_per_prompt={budget.samples}",
        "rollout.dynamic_filtering=false",
        "rollout.max_turns=16",
        f"rollout.train_sampling_params.temperature={budget.temperature}",
        f"rollout.test_sampling_params.temperature={budget.temperature}",
        f"rollout.train_sampling_params.max_new_tokens={budget.turn_tokens}",
        f"actor.update_per_rollout={budget.updates}",
        f"actor.lr={budget.lr}",
        "actor.weight_decay=0",
        "actor.max_grad_norm=1",
        "actor.max_length_per_device=8192",
    ]


def run(given: learning.Given, *more: str, steps: int) -> dict[int, dict[str, float]]:
    """Return the metrics by step; the last step validates."""
    budget = given.budget
    folder = Path(tempfile.mkdtemp(prefix="gem-rl2-"))
    done = harness.run_rl2(
        folder,
        given.model.resolve(),
        *overrides(given),
        f"trainer.test_freq={steps}",
        *more,
        wrappers="",
        spies="rl2_log,rl2_zero" if given.control else "rl2_log",
        tasks=budget.prompts * steps,
        num_eval=budget.eval_episodes,
        envs=(given.env,),
        seed=given.seed,
        timeout=7200,
    )
    return harness.metrics_of(done.check())


def main() -> None:
    """Run and write one line of JSON per step."""
    given = learning.arguments(__doc__)
    before = run(given, "actor.lr=0", steps=1)[1]["gem/success/test"]
    steps = [metrics for _, metrics in sorted(run(given, steps=given.budget.steps).items())]
    learning.write_run(
        given,
        trainer="rl2",
        version=f"rl-square {version('rl-square')}",
        steps=steps,
        before=before,
        after=steps[-1]["gem/success/test"],
    )


if __name__ == "__main__":
    main()
