"""Does verl learn a game with rebn? The run and its control, whose advantages are zero.

    python -m tests.trainers.verl.learn --model tiny --out docs/results/verl --seed 0
    python -m tests.trainers.verl.learn --model tiny --out docs/results/verl --seed 0 --control

``gem-core tiny --env game:GuessTheNumber-v0-easy --out tiny`` makes the model. verl's own trainer and
engine on two CPU cores, as in the tests; takes some twenty minutes and is no part of them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tests.trainers.verl import harness

ENV = "game:GuessTheNumber-v0-easy"
SUCCESS = f"val-aux/{ENV}/gem/success/mean@1"
SHOWN = ("gem/", "rebn/", "val-core/", "val-aux/", "actor/grad_norm", "actor/entropy", "timing_s/step")


def overrides(arguments: argparse.Namespace) -> list[str]:
    """The config words of the run."""
    return [
        "trainer.v1.trainer_mode=gem_sync",
        f"algorithm.adv_estimator={'zeroed' if arguments.control else 'rebn'}",
        f"data.train_files=['{ENV}']",
        f"data.val_files=['{ENV}']",
        f"data.seed={arguments.seed}",
        "data.train_batch_size=64",
        f"data.train_max_samples={64 * arguments.steps}",
        f"data.val_max_samples={arguments.eval_episodes}",
        "data.max_response_length=128",
        f"trainer.total_training_steps={arguments.steps}",
        f"trainer.test_freq={arguments.steps}",
        "actor_rollout_ref.rollout.n=2",
        "actor_rollout_ref.rollout.max_num_seqs=128",
        "actor_rollout_ref.rollout.max_num_batched_tokens=2048",
        "actor_rollout_ref.rollout.val_kwargs.temperature=1.0",
        "actor_rollout_ref.rollout.val_kwargs.do_sample=True",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=128",
        "actor_rollout_ref.actor.ppo_mini_batch_size=16",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32",
        "actor_rollout_ref.actor.optim.optimizer=AdamW",
        "actor_rollout_ref.actor.optim.optimizer_impl=torch.optim",
        "actor_rollout_ref.actor.optim.weight_decay=0.0",
        "actor_rollout_ref.actor.optim.clip_grad=1.0",
        f"actor_rollout_ref.actor.optim.lr={arguments.lr}",
        "+gem.wrappers=''",
    ]


def main() -> None:
    """Run, and write one line of JSON per step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="a folder that `gem-core tiny` made")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--eval-episodes", type=int, default=500)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--control", action="store_true", help="zeroed advantages")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gem-verl-"))
    words = overrides(arguments)
    modules = "verl_cpu,verl_zero"
    run = harness.run_verl(folder, arguments.model.resolve(), *words, modules=modules, timeout=7200).check()
    (path,) = run.folder.glob("gem/*.jsonl")
    records: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    arguments.out.mkdir(parents=True, exist_ok=True)
    name = f"{'control' if arguments.control else 'rebn'}-seed{arguments.seed}"
    with open(arguments.out / f"{name}.jsonl", "w", encoding="utf-8") as file:
        for record in records:
            kept = {key: value for key, value in record["data"].items() if key.startswith(SHOWN)}
            file.write(json.dumps({"step": record["step"], **kept}) + "\n")
    watched = [record["data"][SUCCESS] for record in records if SUCCESS in record["data"]]
    tiny = json.loads((arguments.model / "gem_tiny.json").read_text())
    summary = {
        "success_before": watched[0], "success_after": watched[-1], "steps": arguments.steps,
        "episodes_per_step": 128, "lr": arguments.lr, "seed": arguments.seed, "model": tiny, "words": words,
    }  # fmt: skip
    (arguments.out / f"{name}.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(f"{name}: success {watched[0]:.3f} -> {watched[-1]:.3f}")
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
