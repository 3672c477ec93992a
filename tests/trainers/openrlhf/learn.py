"""A run that shows whether OpenRLHF learns with ReBN, or its control; see `tests.trainers.learning`.

    python -m tests.trainers.openrlhf.learn
    python -m tests.trainers.openrlhf.learn --control

OpenRLHF's own trainer and engine on two CPU cores, as in the tests. OpenRLHF does not evaluate before its
first step, so the first and the saved weights play the evaluation seeds with gem_core's own sampler.
"""

from __future__ import annotations

import asyncio
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gem_chat import AppendContext
from gem_chat._stop_ids import engine_stop_ids
from gem_core.rollout import EnvPool, EpisodeLimits, episode_metrics
from gem_core.tasks import EnvChoice, make_tasks
from gem_lab._engines.sampling import BatchingPolicy
from gem_lab.repro._recipe import ADAM_BETAS
from tests.trainers import learning
from tests.trainers.openrlhf import harness
from tests.trainers.openrlhf.data import write_rows
from tests.trainers.openrlhf.logged import metrics_of


def flags(given: learning.Given) -> dict[str, str | None]:
    """Return the flags of the run."""
    budget = given.budget
    return {
        "algo.advantage.gamma": str(budget.gamma),
        "actor.adam.lr": str(budget.lr),
        "actor.adam.betas": " ".join(str(beta) for beta in ADAM_BETAS),
        "actor.max_norm": "1",
        "train.seed": str(given.seed),
        "train.batch_size": str(budget.episodes // budget.updates),
        "train.micro_batch_size": str(budget.episodes // budget.updates),
        "rollout.batch_size": str(budget.prompts),
        "rollout.n_samples_per_prompt": str(budget.samples),
        "rollout.micro_batch_size": str(budget.episodes),
        "rollout.temperature": str(budget.temperature),
        "rollout.max_new_tokens": str(budget.turn_tokens),
        "data.max_len": str(budget.max_tokens),
        "gem.wrappers": "",
    }


def success(folder: Path, budget: learning.Budget) -> float:
    """Return the share of the evaluation seeds that these weights solve, each played once."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).float()
    policy = BatchingPolicy(
        model,
        eos_token_ids=engine_stop_ids(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        temperature=budget.temperature,
    )
    context, pool = AppendContext(tokenizer), EnvPool()
    tasks = make_tasks([EnvChoice.parse(budget.env)], budget.eval_episodes, split="eval")

    async def play() -> list[Any]:
        options: dict[str, Any] = {
            "limits": EpisodeLimits(max_tokens_per_turn=budget.turn_tokens),
            "max_total_tokens": budget.max_tokens,
        }
        return await asyncio.gather(
            *(pool.play(task, policy, context, request_id=str(task["index"]), **options) for task in tasks)
        )

    return episode_metrics(asyncio.run(play()))["gem/success"]


def main() -> None:
    given = learning.arguments(__doc__)
    budget = given.budget
    shims = ["openrlhf_cpu", "openrlhf_fp32", *(["openrlhf_zero"] if given.control else [])]
    with tempfile.TemporaryDirectory(prefix="gem-openrlhf-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        rows = write_rows(folder / "rows.jsonl", [given.env], budget.prompts * budget.steps, seed=given.seed)
        run = harness.run_openrlhf(
            folder, given.model.resolve(), rows, flags(given), shims=shims, scheme="off", timeout=7200
        ).check()
        steps = metrics_of(run)
        before, after = success(given.model, budget), success(folder / "model", budget)
    learning.write_run(
        given,
        trainer="openrlhf",
        version=f"OpenRLHF {version('openrlhf')}",
        steps=steps,
        before=before,
        after=after,
    )


if __name__ == "__main__":
    main()
