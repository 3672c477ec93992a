"""ROLL's workers on a CPU, with a stub of vLLM's engine behind its interface, for tests.

The actor records the inputs of its loss, and the engine its requests and answers, in the folder GEM_SPY.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from pathlib import Path
from typing import Any

import roll_cpu  # noqa: F401
import torch
from gem_script import Answer, Script
from roll.distributed.executor.worker import Worker
from roll.distributed.scheduler.decorator import Dispatch, register
from roll.pipeline.agentic.agentic_actor_worker import ActorWorker
from roll.pipeline.agentic.environment_worker import EnvironmentWorker
from roll.pipeline.base_worker import InferWorker
from roll.utils.cuda_ipc_utils import MultiprocessingSerializer
from roll.utils.send_recv_utils import named_tensors_from_bucket
from transformers import AutoModelForCausalLM, AutoTokenizer

from gem_core.rollout import Generation
from gem_lab._engines.sampling import BatchingPolicy

FOLDER = Path(os.environ["GEM_SPY"])
GATHER = 0.005
"""Seconds during which requests are collected into a batch."""
_counter = itertools.count()


class CpuEnvWorker(EnvironmentWorker):  # type: ignore[misc]
    """ROLL's own worker."""


class CpuActor(ActorWorker):  # type: ignore[misc]
    """ROLL's own worker."""


class SpyActor(ActorWorker):  # type: ignore[misc]
    """ROLL's own worker, which saves the inputs of the loss, and weights and gradients at each step."""

    def loss_func(self, data: Any, output_tensor: torch.Tensor) -> Any:
        old = self.strategy.op_compute_log_probs(
            logits=output_tensor,
            input_ids=data.batch["input_ids"],
            attention_mask=data.batch["response_mask"],
        )
        names = ("input_ids", "attention_mask", "response_mask", "advantages", "infer_logprobs")
        saved = {name: data.batch[name].detach().clone() for name in names} | {"old": old.detach().clone()}
        saved["compared"] = self.get_old_log_probs_with_cache(data, old).detach().clone()
        torch.save(saved, FOLDER / f"loss-{next(_counter):04}.pt")
        if not getattr(self, "_watched", False):
            self._watched = True
            self.strategy.optimizer.register_step_pre_hook(self._note_update)
        return super().loss_func(data, output_tensor)

    def _note_update(self, *unused: Any) -> None:
        parameters = list(self.strategy.model.parameters())
        saved = {
            "weights": [whole(p.detach()) for p in parameters],
            "gradients": [None if p.grad is None else whole(p.grad) for p in parameters],
        }
        torch.save(saved, FOLDER / f"update-{next(_counter):04}.pt")


def whole(tensor: Any) -> torch.Tensor:
    found: torch.Tensor = (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).clone()
    return found


class Engine:
    """The engine part of a ROLL strategy, with answers in vLLM's format from a transformers model."""

    offload_nccl = False

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._samplers: dict[tuple[float, tuple[int, ...]], BatchingPolicy] = {}
        self._script = Script.from_environment()
        self._numbers = itertools.count()

    async def initialize(self) -> None:
        path = self._worker.worker_config.model_args.model_name_or_path
        self.tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()

    async def generate_request(self, payload: dict[str, Any]) -> dict[str, Any]:
        params, prompt = payload["sampling_params"], list(payload["input_ids"])
        if self._script:
            made: Answer | Generation = self._script.answer(prompt, params["max_tokens"])
        else:
            made = await self._sample(prompt, params)
        if "GEM_ENGINE_QUIET" not in os.environ:
            line = {
                "prompt": prompt,
                "response": made.token_ids,
                "logprobs": made.logprobs,
                "finish_reason": made.finish_reason,
            }
            with open(FOLDER / "engine.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return {
            "output_token_ids": [made.token_ids],
            "finish_reasons": [made.finish_reason],
            "output_logprobs": [made.logprobs],
        }

    async def _sample(self, prompt: list[int], params: dict[str, Any]) -> Generation:
        key = (float(params["temperature"]), tuple(params["stop_token_ids"]))
        if key not in self._samplers:
            self._samplers[key] = BatchingPolicy(
                self.model,
                eos_token_ids=key[1],
                pad_token_id=self.tokenizer.pad_token_id,
                temperature=key[0],
                seed=os.environ.get("GEM_ENGINE_SEED", "0"),
                reuse_prefix=False,
            )
        await asyncio.sleep(GATHER)
        return await self._samplers[key].generate(
            prompt, max_tokens=params["max_tokens"], request_id=str(next(self._numbers))
        )

    async def update_parameter_in_bucket(self, serialized: list[Any], is_lora: bool = False) -> None:
        bucket = MultiprocessingSerializer.deserialize(serialized[0])
        with torch.no_grad():
            for name, tensor in named_tensors_from_bucket(**bucket):
                self.model.get_parameter(name).copy_(tensor)

    async def abort_requests(self, request_ids: Any) -> None:
        """Do nothing: the requests end by themselves."""

    async def load_states(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: nothing is offloaded."""

    async def offload_states(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: nothing is offloaded."""

    async def process_weights_after_loading(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there is nothing to process."""

    def get_metrics(self, metric_names: Any = None) -> dict[str, float]:
        return {}


class CpuInferWorker(InferWorker):  # type: ignore[misc]
    """ROLL's own worker with `Engine`."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    async def initialize(self, pipeline_config: Any) -> None:
        Worker.initialize(self, pipeline_config)
        torch.set_num_threads(1)
        self.strategy = Engine(self)
        await self.strategy.initialize()
        self.tokenizer = self.strategy.tokenizer
