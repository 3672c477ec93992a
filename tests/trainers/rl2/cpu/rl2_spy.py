"""Records the inputs of RL2's update in the folder GEM_SPY without changing them, for tests."""

from __future__ import annotations

import functools
import itertools
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel

FOLDER = Path(os.environ["GEM_SPY"])
COLUMNS = ("states", "actions", "action_mask", "advantages", "logps", "llm_logps", "ref_logps", "old_logps",
           "rewards", "values", "old_values", "returns")  # fmt: skip
_counter = itertools.count()


def note_rows(minibatch: dict[str, torch.Tensor]) -> None:
    """Save the rows of a minibatch without padding, right before their loss is computed."""
    lengths = minibatch["position_ids"].argmax(1) + 1  # a row of a failed episode has no end in the eos_mask
    rows = {
        name: [row[:length].tolist() for row, length in zip(minibatch[name].detach(), lengths, strict=True)]
        for name in COLUMNS
        if name in minibatch
    }
    torch.save(rows, FOLDER / f"loss-{dist.get_rank()}-{next(_counter):04}.pt")


def note_update(model: FullyShardedDataParallel, *unused: Any) -> None:
    """Save weights and gradients by name, before each step of the optimizer."""
    weights, gradients = {}, {}
    names = {id(module): clean(name) for name, module in model.named_modules()}
    for handle in model._all_handles:
        flat = handle.flat_param
        places = [f"{names[id(info.module)]}.{info.param_name}".lstrip(".") for info in flat._param_infos]
        weights |= parts(handle, flat.detach(), places)
        gradients |= parts(handle, flat.grad, places)
    sharded = all(handle.uses_sharded_strategy for handle in model._all_handles)
    saved = {"weights": weights, "gradients": gradients, "sharded": sharded}
    torch.save(saved, FOLDER / f"update-{dist.get_rank()}-{next(_counter):04}.pt")


def parts(handle: Any, shard: torch.Tensor, names: list[str]) -> dict[str, torch.Tensor]:
    """Return the whole flat tensor of FSDP, cut into its parameters."""
    whole = shard
    if handle.uses_sharded_strategy:
        shards = [torch.empty_like(shard) for _ in range(handle.process_group.size())]
        dist.all_gather(shards, shard.contiguous(), group=handle.process_group)
        whole = torch.cat(shards)[: handle.flat_param._unpadded_unsharded_size.numel()]
    pieces = torch.split(whole, list(handle.flat_param._numels))
    shapes = handle.flat_param._shapes
    return {name: piece.view(shape).clone() for name, piece, shape in zip(names, pieces, shapes, strict=True)}


def clean(name: str) -> str:
    return ".".join(part for part in name.split(".") if part != "_fsdp_wrapped_module")


def install() -> None:
    """Record from the installed RL2, of either version."""
    try:
        import RL2.workers.fsdp.actor as actor
    except ModuleNotFoundError:
        watch_index_version()
        return
    loss = actor.actor_ppo_loss

    def noting_loss(config: Any, minibatch: dict[str, torch.Tensor]) -> Any:
        note_rows(minibatch)
        return loss(config, minibatch)

    actor.actor_ppo_loss = noting_loss
    watch_optimizer(actor.FSDPActor, "_prepare_model_optimizer")


def watch_index_version() -> None:
    """Record from 0.0.2, which computes its loss right after the forward pass with an entropy."""
    from RL2.workers import Actor

    forward = Actor.forward

    def noting_forward(self: Any, minibatch: Any, return_entropy: bool = False) -> Any:
        result = forward(self, minibatch, return_entropy)
        if return_entropy:
            note_rows({**minibatch, "logps": result[0]})
        return result

    Actor.forward = noting_forward
    watch_optimizer(Actor, "prepare_model_optimizer")


def watch_optimizer(kind: Any, name: str) -> None:
    prepare = getattr(kind, name)

    def prepare_and_watch(self: Any) -> None:
        prepare(self)
        if self.train:
            self.optimizer.register_step_pre_hook(functools.partial(note_update, self.model))

    setattr(kind, name, prepare_and_watch)
