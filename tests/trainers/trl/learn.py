"""Trains with TRL and ReBN, or runs the control; see `tests.trainers.learning`.

    python -m tests.trainers.trl.learn
    python -m tests.trainers.trl.learn --control

TRL's own trainer with its own sampling of transformers models, on one CPU core, as in the tests. The budget's
updates of a step are TRL's `steps_per_generation`.
"""

from __future__ import annotations

import os
import tempfile
from importlib.metadata import version
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", TRL_EXPERIMENTAL_SILENCE="1", TOKENIZERS_PARALLELISM="false")

import torch
from datasets import Dataset
from gem_trl import GemConfig, GemGRPOTrainer, tasks
from gem_trl._dataset import task_prompt
from trl import GRPOConfig

from gem_core.tasks import EVAL_SEEDS, TaskRow
from gem_lab.repro._recipe import ADAM_BETAS
from tests.trainers import learning

SUCCESS = "eval_gem/success"


class Zeroed(GemGRPOTrainer):
    """Sets all advantages to zero."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        return {**output, "advantages": 0 * output["advantages"]}


def config(given: learning.Given, folder: str) -> GRPOConfig:
    """Return the settings of the run."""
    budget = given.budget
    return GRPOConfig(
        folder,
        per_device_train_batch_size=budget.episodes // budget.updates,
        gradient_accumulation_steps=1,
        steps_per_generation=budget.updates,
        num_generations=budget.samples,
        max_steps=budget.steps * budget.updates,
        per_device_eval_batch_size=250,
        num_generations_eval=1,
        max_completion_length=budget.max_tokens,
        temperature=budget.temperature,
        learning_rate=budget.lr,
        lr_scheduler_type="constant",
        adam_beta1=ADAM_BETAS[0],
        adam_beta2=ADAM_BETAS[1],
        weight_decay=0.0,
        max_grad_norm=1.0,
        epsilon=0.2,
        beta=0.0,
        seed=given.seed,
        shuffle_dataset=False,
        logging_steps=budget.updates,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )


def evaluation(budget: learning.Budget) -> list[TaskRow]:
    """Return the evaluation tasks of all recorded runs: seeds, which draw from all items of a dataset."""
    return [
        TaskRow(env_id=budget.env, env_kwargs={}, seed=seed, index=seed, item=None)
        for seed in EVAL_SEEDS[: budget.eval_episodes]
    ]


def main() -> None:
    given = learning.arguments(__doc__)
    torch.set_num_threads(1)
    budget = given.budget
    with tempfile.TemporaryDirectory(prefix="gem-trl-") as folder:
        trainer = (Zeroed if given.control else GemGRPOTrainer)(
            str(given.model),
            args=config(given, folder),
            train_dataset=tasks(budget.env, budget.prompts * budget.steps, seed=given.seed),
            eval_dataset=Dataset.from_list([task_prompt(task) for task in evaluation(budget)]),
            gem=GemConfig(
                gamma=budget.gamma, max_tokens_per_turn=budget.turn_tokens, max_tokens=budget.max_tokens
            ),
        )
        before = trainer.evaluate()[SUCCESS]
        trainer.train()
        after = trainer.evaluate()[SUCCESS]
    learning.write_run(
        given,
        trainer="trl",
        version=f"TRL {version('trl')}",
        steps=[entry for entry in trainer.state.log_history if "gem/success" in entry],
        before=before,
        after=after,
    )


if __name__ == "__main__":
    main()
