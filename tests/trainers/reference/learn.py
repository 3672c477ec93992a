"""The run that the trainers are compared with: `gem-core train`; see `tests.trainers.learning`.

    python -m tests.trainers.reference.learn
    python -m tests.trainers.reference.learn --control
    python -m tests.trainers.reference.learn --per-token

The last one discounts per token and normalizes over tokens, as trainers do that know no turns.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version

import torch

from gem_core.advantages import rebn
from gem_core.rollout import Episode
from gem_lab.repro._recipe import ADAM_BETAS
from gem_lab.train import TrainConfig, train
from gem_lab.train._batches import Batch
from tests.trainers import learning


def config(given: learning.Given, out: str) -> TrainConfig:
    """Return the config of the run."""
    budget = given.budget
    return TrainConfig(
        model=str(given.model),
        out=out,
        env=[budget.env],
        gamma=budget.gamma,
        zero_advantages=given.control,
        steps=budget.steps,
        episodes_per_step=budget.episodes,
        group_size=budget.samples,
        max_tokens_per_turn=budget.turn_tokens,
        max_total_tokens=budget.max_tokens,
        temperature=budget.temperature,
        learning_rate=budget.lr,
        learning_rate_schedule="constant",
        warmup_steps=0,
        adam_beta2=ADAM_BETAS[1],
        minibatches=budget.updates,
        kl=0.0,
        eval_episodes=budget.eval_episodes,
        save_every=budget.steps,
        trace_every=0,
        seed=given.seed,
        device="cpu",
        threads=1,
    )


def discount_per_token(gamma: float) -> None:
    """Inject the fault: ReBN treats each token as a separate turn."""

    def with_advantages(batch: Batch, episodes: Sequence[Episode]) -> Batch:
        rewards = torch.zeros_like(batch.advantages)
        paid = iter([turn.reward for episode in episodes for turn in episode.turns])
        for row, turns in enumerate(batch.turn_ids):
            for turn in turns[turns >= 0].unique():
                rewards[row, (turns == turn).nonzero()[-1]] = next(paid)
        tokens = batch.response_mask.long().cumsum(1) - 1
        tokens[batch.response_mask == 0] = -1
        advantages = rebn.tensors(rewards, batch.response_mask, turn_ids=tokens, gamma=gamma).advantages
        return replace(batch, advantages=advantages)

    Batch.with_advantages = with_advantages  # type: ignore[assignment, method-assign]


def main() -> None:
    given = learning.arguments(__doc__, "per-token")
    if given.variant == "per-token":
        discount_per_token(given.budget.gamma)
    with tempfile.TemporaryDirectory(prefix="gem-reference-") as folder:
        outcome = train(config(given, folder))
    learning.write_run(
        given,
        trainer="reference",
        version=f"gem-core {version('gem-core')}",
        steps=outcome.history,
        before=outcome.mean("before", "gem/success"),
        after=outcome.mean("after", "gem/success"),
    )


if __name__ == "__main__":
    main()
