"""OpenRLHF's own loop goes on after a step in which its engine or its environments died.

The engines and the update are stubs behind OpenRLHF's interface; data, sampling, filters, and the state of a
checkpoint are OpenRLHF's own. `test_kill` kills the processes of real runs.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from gem_openrlhf import _failures
from gem_openrlhf._executor import lay_out
from gem_openrlhf._labels import played_of, task_of
from openrlhf.trainer import ppo_trainer
from openrlhf.trainer.ppo_utils import samples_generator
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from openrlhf.utils.deepspeed import DeepspeedStrategy
from ray.exceptions import RayActorError

from gem_core.rollout import Episode, Turn
from tests.trainers.openrlhf.args import AGENT, parse
from tests.trainers.openrlhf.conftest import GUESS
from tests.trainers.openrlhf.data import write_rows

TRAINER = ppo_trainer.PPOTrainer.__ray_metadata__.modified_class
TASKS, STEPS, SAMPLES = 16, 4, 2


class Generator(SamplesGenerator):  # type: ignore[misc]
    """OpenRLHF's generator with GEM's hooks and engines that play one turn, until they die."""

    _generate_vllm = _failures.generate(SamplesGenerator._generate_vllm)
    _process_response_into_experience = _failures.process_response(
        SamplesGenerator._process_response_into_experience
    )

    def __init__(self, strategy: Any, loader: Any, lives: int) -> None:
        super().__init__(strategy, loader, None, None, [])
        self.lives = lives

    def _dispatch_prompts_to_vllm(self, prompts: Any, labels: list[str], **unused: Any) -> list[str]:
        return list(labels)

    def play(self, label: str) -> list[dict[str, Any]]:
        """Return the samples of a prompt; those of every fifth task failed, and some score alike."""
        self.lives -= 1
        if self.lives < 0:
            raise RayActorError(error_msg="the actor died")
        task = task_of(label)
        number = task["index"]
        result = []
        for sample in range(SAMPLES):
            reward = float(sample if number % 3 else 0)
            turn = Turn([1], [2], None, reward, "", "", "stop")
            good = number % 5 != 0
            episode = Episode(GUESS, task["seed"], [turn], True, False, "terminated", trainable=good)
            result.append(lay_out(episode, task, "", pad_id=0, with_logprobs=False))
        return result


class Trainer(TRAINER):  # type: ignore[misc, valid-type]
    """OpenRLHF's trainer with a stub of its update; `saved` is the state of its last checkpoint."""

    def __init__(self, args: Any, saved: dict[str, Any], lives: int) -> None:
        self.args = args
        self.strategy = SimpleNamespace(args=args, print=print, is_rank_0=lambda: True)
        self.strategy.setup_dataloader = functools.partial(DeepspeedStrategy.setup_dataloader, self.strategy)
        self.prompts_dataloader, self.eval_dataloader, _ = ppo_trainer.prepare_datasets(self.strategy, None)
        self.samples_generator = Generator(self.strategy, self.prompts_dataloader, lives)
        self.generate_kwargs = {"max_len": 64}
        self.saved = saved
        self.wandb_logger = self.tensorboard_logger = None

    def init_checkpoint_states(self) -> dict[str, Any]:
        fresh = {"episode": 0, "global_step": 0, "total_consumed_prompts": 0, "data_loader_state_dict": {}}
        return dict(self.saved or fresh)

    def broadcast_to_vllm(self) -> None:
        pass

    def train_step(self, rollout_samples: list[Any], global_step: int) -> tuple[dict[str, Any], int]:
        self.trained = [
            played.episode.seed
            for sample in rollout_samples
            for played in map(played_of, sample.labels)
            if played is not None
        ]
        return {}, global_step + 1

    def save_logs_and_checkpoints(self, global_step: int, status: Any, states: dict[str, Any]) -> None:
        steps = [*self.saved.get("steps", []), self.trained]
        self.saved.clear()
        self.saved.update(states, steps=steps)


def run_until_it_ends(args: Any, lives: list[int]) -> tuple[list[list[int | None]], list[int]]:
    """Return the seeds of each checkpointed step, and the number of such steps when each run died.

    Args:
        args: OpenRLHF's flags.
        lives: Number of prompts that the engines of each run play before they die.
    """
    saved: dict[str, Any] = {}
    died: list[int] = []
    for number in [*lives, 99]:
        torch.manual_seed(number)  # each run shuffles in its own way, unless it continues another one
        trainer = Trainer(args, saved, number)
        with mock.patch.multiple(
            samples_generator.ray,
            wait=lambda refs, **_: (refs[:1], refs[1:]),
            get=trainer.samples_generator.play,
        ):
            try:
                trainer.fit()
            except RayActorError:
                died.append(len(saved.get("steps", ())))
    return saved["steps"], died


def flags(tmp_path: Path, *words: str) -> Any:
    """Return OpenRLHF's flags for `TASKS` tasks in `STEPS` steps."""
    args = parse(
        "--data.prompt_dataset", str(write_rows(tmp_path / "rows.jsonl", [GUESS], TASKS)),
        *AGENT, "--rollout.batch_size", str(TASKS // STEPS),
        "--rollout.n_samples_per_prompt", str(SAMPLES), *words,
    )  # fmt: skip
    args.rollout.vllm_generate_batch_size = args.rollout.batch_size  # the command sets these
    args.eval.steps = float("inf")
    return args


def seeds(tmp_path: Path) -> list[int]:
    """Return the seed of each task."""
    rows = (tmp_path / "rows.jsonl").read_text().splitlines()
    return [task_of(json.loads(row)["label"])["seed"] for row in rows]


@pytest.mark.parametrize("lives", [[], [5], [1, 7, 2], [9, 6, 3]])
def test_each_task_is_trained_on_once_although_runs_die(lives: list[int], tmp_path: Path) -> None:
    steps, died = run_until_it_ends(flags(tmp_path), lives)
    assert len(died) == len(lives)
    assert len(steps) == STEPS
    assert Counter(seed for step in steps for seed in step) == dict.fromkeys(seeds(tmp_path), SAMPLES)


@pytest.mark.parametrize("lives", [[], [12], [3, 12, 3]])
def test_the_dynamic_filter_drops_the_same_tasks_although_runs_die(lives: list[int], tmp_path: Path) -> None:
    """Tasks whose samples all failed or score alike are replaced; none of them comes again."""
    steps, died = run_until_it_ends(flags(tmp_path, "--algo.dynamic_filtering_enable"), lives)
    assert len(died) == len(lives)
    assert not lives or died[-1] == 1  # after the first of two steps
    kept = [seed for task, seed in enumerate(seeds(tmp_path)) if task % 5 and task % 3]
    assert Counter(seed for step in steps for seed in step) == dict.fromkeys(kept, SAMPLES)
