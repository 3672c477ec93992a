"""Records the inputs of verl's update without changing them; for tests.

Loaded through VERL_USE_EXTERNAL_MODULES; writes into the folder GEM_SPY.
"""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import torch

from gem_core.trainers import after_import

FOLDER = Path(os.environ["GEM_SPY"])
_counter = itertools.count()


def _rows(values: Any) -> list[list[float]]:
    return [row.tolist() for row in values.unbind()]


def _save(values: Any, kind: str) -> None:
    """Write a file that is complete even if this process is killed."""
    path = FOLDER / f"{kind}-{os.getpid()}-{next(_counter):04}.pt"
    torch.save(values, path.with_suffix(".part"))
    path.with_suffix(".part").rename(path)


def note_loss(module: Any) -> None:
    """Save the input tensors of verl's loss before each call, one file per micro-batch."""
    original = module.ppo_loss
    names = (
        "prompts", "responses", "response_mask", "advantages", "old_log_probs", "rollout_log_probs",
        "ref_log_prob",
    )  # fmt: skip

    def noting(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        rows = {name: _rows(data[name]) for name in names if name in data}
        _save(rows, "loss")
        return original(config, model_output, data, dp_group)

    module.ppo_loss = noting


def note_carried(module: Any) -> None:
    """Save the rows of a batch as the trainer receives them, and the outlines of all its episodes."""
    original = module.GemTrainer._compute_advantage

    def noting(self: Any, batch: Any, metrics: Any) -> Any:
        fields = ["extra_fields", "prompts", "responses"]
        data = module.tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
        prompts, responses = _rows(data["prompts"]), _rows(data["responses"])
        with open(FOLDER / "carried.jsonl", "a", encoding="utf-8") as file:
            rows = zip(data["extra_fields"], prompts, responses, batch.tags, strict=True)
            for extra, prompt, response, tag in rows:
                row = module._plain(extra).get("gem")
                if row and "episode" in row and not tag.get("is_padding"):
                    file.write(json.dumps({"token_ids": prompt + response, "episode": row["episode"]}) + "\n")
        done = original(self, batch, metrics)
        with open(FOLDER / "carried.jsonl", "a", encoding="utf-8") as file:
            for episode in self._episodes:
                if not episode.trainable:
                    file.write(json.dumps({"token_ids": [], "episode": episode.to_dict()}) + "\n")
        if self.use_critic:
            names = ["response_mask", "rm_scores", "values", "advantages", "returns"]
            data = module.tq.kv_batch_get(
                keys=batch.keys, partition_id=batch.partition_id, select_fields=names
            )
            with open(FOLDER / "critic.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps({name: _rows(data[name]) for name in names}) + "\n")
        return done

    module.GemTrainer._compute_advantage = noting


after_import("verl.workers.utils.losses", note_loss)  # most processes of a run do not import it
after_import("gem_verl._trainer", note_carried)


class SpyAdamW(torch.optim.AdamW):
    """AdamW that saves weights and gradients before each step."""

    def step(self, closure: Any = None) -> Any:
        parameters = [p for group in self.param_groups for p in group["params"]]
        saved = {
            "weights": [_whole(p.detach()) for p in parameters],
            "gradients": [_whole(p.grad) if p.grad is not None else None for p in parameters],
        }
        _save(saved, "update")
        return super().step(closure)


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).clone()
