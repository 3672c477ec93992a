"""Plays episodes in verl's own worker, without a model and without Ray.

`ScriptedServer` replaces verl's inference servers and `MemoryQueue` replaces its TransferQueue, each behind
the original interface.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transfer_queue
from gem_verl._manager import GemAgentLoopWorker
from gem_verl._options import read_options
from gem_verl._rows import AGENT_NAME, verl_row
from gem_verl._trainer import GemTrainer
from gem_verl.dataset import GemDataset
from transfer_queue import KVBatchMeta
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.workers.rollout.replica import TokenOutput

from gem_core import Env, register
from gem_core.rollout._sources import SourceLedger
from gem_core.tasks import TaskRow
from tests.rollout.tokenizers import bpe_tokenizer
from tests.trainers.verl.configs import verl_config

TOKENIZER = bpe_tokenizer("chatml")


class Picky(Env):
    """The reward is the number in the action; "break" raises, and "more" continues."""

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.begin_episode(seed)
        self.seed = seed
        return f"task {seed}.", {}

    def step(self, action: str) -> Any:
        if "break" in action:
            raise RuntimeError("told to break")
        reward, terminated = float(re.findall(r"\d+(?:\.\d+)?", action)[0]), "more" not in action
        return f"Thanks for task {self.seed}.", reward, terminated, False, {"success": True}


register("test:VerlPicky", Picky)


class ScriptedServer:
    """Answers each prompt of a task with the task's next text."""

    def __init__(self, texts: dict[int, list[str]]) -> None:
        self.texts = {seed: iter(answers) for seed, answers in texts.items()}

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: Any, **more: Any
    ) -> TokenOutput:
        seed = re.findall(r"task (\d+)\.", TOKENIZER.decode(prompt_ids))[0]
        ids = TOKENIZER.encode(next(self.texts[int(seed)]) + "<|im_end|>", add_special_tokens=False)
        version = {"min_global_steps": 0, "max_global_steps": 0}  # of the weights
        return TokenOutput(
            token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason="completed", extra_fields=version
        )


class MemoryQueue:
    """Stores rows and tags by partition and key."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.tags: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)

    def kv_batch_put(self, keys: Any, partition_id: str, fields: Any = None, tags: Any = None) -> KVBatchMeta:
        for index, key in enumerate(keys):
            row = self.rows[partition_id].setdefault(key, {})
            self.tags[partition_id].setdefault(key, {}).update(tags[index] if tags else {})
            for name in fields.keys() if fields is not None else ():
                values = fields.get(name)
                tensors = isinstance(values, torch.Tensor)
                row[name] = (values.unbind() if tensors else values.tolist())[index]
        names = sorted(set.intersection(*(set(self.rows[partition_id][key]) for key in keys)))
        return KVBatchMeta(list(keys), [self.tags[partition_id][key] for key in keys], partition_id, names)

    def kv_batch_get(self, keys: Any, partition_id: str, select_fields: Any = None) -> Any:
        rows = [self.rows[partition_id][key] for key in keys]
        names = set.intersection(*map(set, rows)) & set(select_fields or rows[0])
        table = list_of_dict_to_tensordict([{name: row[name] for name in names} for row in rows])
        for name in names:
            if all(isinstance(row[name], torch.Tensor) for row in rows):
                table[name] = torch.nested.as_nested_tensor([row[name] for row in rows], layout=torch.jagged)
        return table

    def kv_list(self, partition_id: str | None = None) -> Any:
        return {name: dict(tags) for name, tags in self.tags.items() if partition_id in (None, name) and tags}

    def kv_clear(self, keys: Any, partition_id: str) -> None:
        for key in keys:
            del self.rows[partition_id][key], self.tags[partition_id][key]

    async def async_kv_put(self, key: str, partition_id: str, fields: Any = None, tag: Any = None) -> None:
        self.kv_batch_put([key], partition_id, tags=[tag])

    async def async_kv_batch_put(self, **given: Any) -> None:
        self.kv_batch_put(**given)


def use_memory_queue(monkeypatch: pytest.MonkeyPatch) -> MemoryQueue:
    made = MemoryQueue()
    for name in (
        "kv_batch_put", "kv_batch_get", "kv_list", "kv_clear", "async_kv_put", "async_kv_batch_put",
    ):  # fmt: skip
        monkeypatch.setattr(transfer_queue, name, getattr(made, name))
    return made


def make_trainer(*overrides: str, mode: str = "gem_sync") -> GemTrainer:
    kind = get_trainer_cls(mode)
    trainer = kind.__new__(kind)
    words = (f"trainer.v1.trainer_mode={mode}", "actor_rollout_ref.rollout.name=vllm", "algorithm.gamma=1.0")
    trainer.config = verl_config(*words, *overrides)
    trainer._ledgers = {"train": SourceLedger(), "eval": SourceLedger()}
    trainer._reset_step()
    trainer.gem_options = read_options(trainer.config)
    trainer.replay_buffer = trainer._build_replay_buffer()
    trainer.global_steps = 1
    return trainer


def play(
    trainer: GemTrainer, texts: dict[int, list[str]], validate: bool = False, samples: int | None = None
) -> None:
    """Play each task `samples` times, by default once for each of its texts; the uid of task 3 is "u3"."""
    tasks = {
        f"u{seed}": TaskRow(env_id="test:VerlPicky", env_kwargs={}, seed=seed, index=0) for seed in texts
    }
    numbers = {f"u{seed}": samples or len(answers) for seed, answers in texts.items()}
    play_tasks(trainer, tasks, ScriptedServer(texts), samples=numbers, validate=validate)


def play_tasks(
    trainer: GemTrainer,
    tasks: Mapping[str, TaskRow],
    server: Any,
    *,
    samples: Mapping[str, int],
    validate: bool = False,
    tokenizer: Any = TOKENIZER,
    model_type: str = "qwen2",
    agent_name: str = AGENT_NAME,
) -> None:
    """Do the same as `play_rows` with the rows of tasks, by uid, for an agent loop."""
    rows = {uid: verl_row(task) | {"agent_name": agent_name} for uid, task in tasks.items()}
    for row in rows.values():
        row["raw_prompt"] = row.pop("prompt")
    options = {"tokenizer": tokenizer, "model_type": model_type}
    play_rows(trainer, rows, server, samples=samples, validate=validate, **options)


def play_rows(
    trainer: GemTrainer,
    rows: Mapping[str, dict[str, Any]],
    server: Any,
    *,
    samples: Mapping[str, int],
    validate: bool = False,
    tokenizer: Any = TOKENIZER,
    model_type: str = "qwen2",
) -> None:
    """Play rows in verl's worker, and store what its agent loops return as verl does.

    Args:
        trainer: Trainer whose config applies.
        rows: Rows of a dataset by uid.
        server: Stand-in for verl's inference servers.
        samples: Number of episodes of each task, by uid.
        validate: Whether the episodes belong to a validation.
        tokenizer: Tokenizer of the server.
        model_type: Type of its model, by which verl chooses how to continue a conversation.
    """
    worker = GemAgentLoopWorker.__new__(GemAgentLoopWorker)
    worker.config, worker._played = trainer.config, Counter()
    worker.rollout_config = omega_conf_to_dataclass(trainer.config.actor_rollout_ref.rollout)
    worker.llm_client, worker.tokenizer, worker.processor = server, tokenizer, None
    worker.hf_model_type, worker.dataset_cls, worker.tools = model_type, GemDataset, []
    worker.model_config = SimpleNamespace(hf_config=SimpleNamespace(max_position_embeddings=600))
    worker.reward_loop_worker_handles, worker.distillation_enabled = [_rewarding(trainer.config)], False
    worker.mm_processor_kwargs = {}
    partition = "val" if validate else "train"

    async def run() -> None:
        prompts = []
        for uid, row in rows.items():
            tag = {"is_prompt": True, "status": "pending", "global_steps": 1}
            transfer_queue.kv_batch_put([uid], partition, tags=[tag])
            prompts.append(row | {"uid": uid, "global_steps": 1, "__rollout_n__": samples[uid]})
        trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": validate}
        sampling = {"temperature": 1.0, "logprobs": True}
        runs = [asyncio.create_task(worker._run_prompt(row, sampling, trajectory)) for row in prompts]
        await asyncio.gather(*runs)

    asyncio.run(run())


def _rewarding(config: Any) -> Any:
    """Return verl's own reward manager in the place of a Ray actor."""

    async def compute_score(data: Any) -> Any:
        return await NaiveRewardManager(config, TOKENIZER, None).run_single(data)

    return SimpleNamespace(compute_score=SimpleNamespace(remote=compute_score))


def update(trainer: GemTrainer, queue: MemoryQueue, prompts: int) -> Any:
    """Sample a batch as verl does, and compute its advantages."""
    batch, _ = trainer.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=prompts)
    for key in batch.keys:  # verl computes them on its workers
        row = queue.rows["train"][key]
        row["old_log_probs"] = row["rollout_log_probs"]
    trainer._compute_advantage(batch, {})
    return batch
