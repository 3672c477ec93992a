"""Runs TRL's own trainer in this process and records everything that its loss consumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from gem_trl import _playing
from gem_trl._config import GemConfig
from gem_trl._dataset import tasks
from gem_trl._trainer import GemGRPOTrainer
from transformers import TrainerCallback
from trl import GRPOConfig

from gem_core.rollout import Episode, Generation, Policy
from gem_core.rollout._sources import SourceLedger
from gem_lab._engines.sampling import BatchingPolicy
from tests.trainers.evidence import GAMMA, Row, Update
from tests.trainers.processes import ROOT, SPIES

MODEL = str(ROOT / "tests/trainers/tiny/game")
GAME, OTHER = "game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"

SMALL = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "num_generations": 2,
    "max_completion_length": 256,
    "max_steps": 3,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "constant",
    "max_grad_norm": 0.0,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "disable_tqdm": True,
    "seed": 0,
}
"""Settings for a machine with two cores and a tiny model."""


def config(folder: Path, **changes: Any) -> GRPOConfig:
    return GRPOConfig(str(folder / "out"), **{**SMALL, **changes})


def gem(**changes: Any) -> GemConfig:
    return GemConfig(**{"gamma": GAMMA, "max_tokens_per_turn": 24, **changes})


class Spied(GemGRPOTrainer):
    """Records the inputs of the loss and the optimizer, and the episodes of each rollout of training."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.losses: list[dict[str, torch.Tensor]] = []
        self.rollouts: list[list[Episode]] = []
        self.optimizer_steps: list[tuple[int, list[torch.Tensor], list[torch.Tensor | None]]] = []
        spy = StepSpy(self)
        super().__init__(*args, callbacks=[spy, *kwargs.pop("callbacks", [])], **kwargs)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        if self.model.training and self.gem_rollout is not None:
            self.rollouts.append(list(self.gem_rollout.episodes))
        return output

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self._last_logps = found[0].detach().clone()
        return found

    def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        kept = {name: value.detach().clone() for name, value in inputs.items() if torch.is_tensor(value)}
        loss: torch.Tensor = super()._compute_loss(model, inputs)
        if self.model.training:
            self.losses.append({**kept, "loss": loss.detach().clone(), "logps": self._last_logps})
        return loss

    @property
    def updates(self) -> list[Update]:
        """The optimizer's steps, with the rows of their micro-batches."""
        found, start = [], 0
        for end, weights, gradients in self.optimizer_steps:
            rows = [row for loss in self.losses[start:end] for row in rows_of_loss(loss)]
            found.append(Update(rows, weights, gradients))
            start = end
        return found

    def logged(self, name: str) -> list[dict[str, float]]:
        """Return the log entries with a metric."""
        return [entry for entry in self.state.log_history if name in entry]


class StepSpy(TrainerCallback):
    """Records weights and gradients before each step of the optimizer."""

    def __init__(self, trainer: Spied) -> None:
        self._trainer = trainer

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        parameters = list(kwargs["model"].parameters())
        weights = [p.detach().clone() for p in parameters]
        gradients = [None if p.grad is None else p.grad.detach().clone() for p in parameters]
        self._trainer.optimizer_steps.append((len(self._trainer.losses), weights, gradients))


def rows_of_loss(loss: dict[str, torch.Tensor]) -> list[Row]:
    """Return the rows of one call of the loss, without padding."""
    rows = []
    for n in range(len(loss["prompt_ids"])):
        width = int(loss["completion_mask"][n].sum())

        def column(name: str, n: int = n, width: int = width) -> list[Any]:
            return list(loss[name][n][:width].tolist())

        mask = (loss["completion_mask"][n] * loss["tool_mask"][n]).tolist()
        assert not any(mask[width:]), "padding is in the loss"
        assert not loss["advantages"][n][width:].any(), "padding has an advantage"
        prompt = loss["prompt_ids"][n][loss["prompt_mask"][n].bool()].tolist()
        rollout = column("sampling_per_token_logps")
        row = Row(
            prompt,
            column("completion_ids"),
            mask[:width],
            column("advantages"),
            column("logps"),
            rollout,
            None,
        )
        rows.append(row)
    return rows


def turns_of(row: Row) -> list[float]:
    """Return the advantage of each turn of a row whose turns do not touch."""
    starts = [n for n, on in enumerate(row.mask) if on and not (n and row.mask[n - 1])]
    return [row.advantages[n] for n in starts]


def played_before(trainer: GemGRPOTrainer, source: str) -> None:
    """Let a source lose all of its episodes in the first steps; a run that never played it would end."""
    trainer._ledger = SourceLedger()
    trainer._ledger.restore([{f"gem/played/{source}": 1.0}])


def record_requests(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Write each request of the policy and its answer to ``engine.jsonl``, and register the spies."""
    monkeypatch.syspath_prepend(str(SPIES))
    import gem_spy

    if "spied" not in _registered:
        gem_spy.register()
        _registered.add("spied")
    original = _playing.open_policy

    @contextmanager
    def recorded(*args: Any) -> Iterator[Policy]:
        with original(*args) as policy:
            yield Recorded(policy, folder / "engine.jsonl")

    monkeypatch.setattr(_playing, "open_policy", recorded)


def answer_by_row(
    monkeypatch: pytest.MonkeyPatch, answered: Callable[[list[int]], bool] | None = None
) -> None:
    """Let the sampler answer with tokens that depend on the row and the length of its prompt.

    Args:
        monkeypatch: Fixture of the test.
        answered: Whether a prompt is answered in this way, and not by the model; None answers all.
    """
    original = BatchingPolicy.generate

    async def generate(self: Any, prompt_ids: Any, *, max_tokens: int, request_id: str) -> Generation:
        if answered is not None and not answered(list(prompt_ids)):
            return await original(self, prompt_ids, max_tokens=max_tokens, request_id=request_id)
        row = int(request_id.split("/")[-1])
        ids = [5 + (7 * row + 3 * len(prompt_ids) + place) % 60 for place in range(3 + 2 * row)][:max_tokens]
        return Generation(ids, [-1.0] * len(ids), "stop")

    monkeypatch.setattr(BatchingPolicy, "generate", generate)


_registered: set[str] = set()


class Recorded:
    """A policy whose requests and answers are written to a file."""

    def __init__(self, policy: Policy, path: Path) -> None:
        self._policy, self._path = policy, path

    async def generate(self, prompt_ids: Any, *, max_tokens: int, request_id: str) -> Generation:
        made = await self._policy.generate(prompt_ids, max_tokens=max_tokens, request_id=request_id)
        line = {
            "request": request_id,
            "prompt": list(prompt_ids),
            "response": made.token_ids,
            "logprobs": made.logprobs,
            "finish_reason": made.finish_reason,
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        return made


def train(
    folder: Path,
    envs: Any = GAME,
    *,
    options: GemConfig | None = None,
    num: int = 64,
    task_seed: int = 0,
    peft_config: Any = None,
    **changes: Any,
) -> Spied:
    """Train, and return the trainer."""
    trainer = Spied(
        MODEL,
        args=config(folder, **changes),
        train_dataset=tasks(envs, num, seed=task_seed),
        gem=options or gem(wrappers="spy"),
        peft_config=peft_config,
    )
    trainer.train()
    return trainer
