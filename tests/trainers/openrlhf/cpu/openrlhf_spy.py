"""Records the inputs of OpenRLHF's update in the folder GEM_SPY without changing them; for tests."""

from __future__ import annotations

import functools
import itertools
import json
import os
from pathlib import Path
from typing import Any

from gem_script import Script, scripted_vllm

from gem_core.trainers import after_import

_counter = itertools.count()
_rows: dict[str, Any] = {}
"""Tokens of the micro-batch in the loss, which are not passed to the loss itself."""


def save(kind: str, content: Any) -> None:
    import torch

    torch.save(content, Path(os.environ["GEM_SPY"]) / f"{kind}-{os.getpid()}-{next(_counter):04}.pt")


def actor(module: Any) -> None:
    original = module.ActorPPOTrainer.training_step

    @functools.wraps(original)
    def training_step(self: Any, experience: Any, *args: Any, **kwargs: Any) -> Any:
        _rows["sequences"] = [
            row[mask != 0].tolist()
            for row, mask in zip(experience.sequences, experience.attention_mask, strict=True)
        ]
        _rows["reference"] = _lists(experience.base_action_log_probs)
        _rows["values"] = _lists(experience.values)
        return original(self, experience, *args, **kwargs)

    module.ActorPPOTrainer.training_step = training_step


def _lists(tensor: Any) -> Any:
    return None if tensor is None else tensor.tolist()


def loss(module: Any) -> None:
    original = module.PolicyLoss.forward

    @functools.wraps(original)
    def forward(self: Any, log_probs: Any, old_log_probs: Any, advantages: Any, **kwargs: Any) -> Any:
        result = original(self, log_probs, old_log_probs, advantages, **kwargs)
        rows = {
            **_rows,
            "advantages": advantages.tolist(),
            "mask": kwargs["action_mask"].tolist(),
            "old": old_log_probs.tolist(),
            "rollout": _lists(kwargs["rollout_log_probs"]),
            "vllm_kl": None if result[3] is None else float(result[3]),
        }
        save("loss", rows)
        return result

    module.PolicyLoss.forward = forward


def strategy(module: Any) -> None:
    original = module.DeepspeedStrategy.optimizer_step

    @functools.wraps(original)
    def optimizer_step(self: Any, optimizer: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        engine = getattr(model, "model", model)
        if kwargs.get("name") == "actor" and engine.is_gradient_accumulation_boundary():
            from deepspeed.utils import safe_get_full_grad

            parameters = list(engine.module.parameters())
            weights = [parameter.detach().clone() for parameter in parameters]
            gradients = [safe_get_full_grad(parameter) for parameter in parameters]
            save("update", {"weights": weights, "gradients": gradients})
        return original(self, optimizer, model, *args, **kwargs)

    module.DeepspeedStrategy.optimizer_step = optimizer_step


def engine(module: Any) -> None:
    script = Script.from_environment()
    original = scripted_vllm(script) if script else module.AsyncLLM.generate
    path = Path(os.environ["GEM_SPY"]) / "engine.jsonl"

    async def generate(self: Any, prompt: Any, sampling_params: Any, *args: Any, **kwargs: Any) -> Any:
        if sampling_params.logprobs is None:
            sampling_params.logprobs = 1  # the agent returns them only if OpenRLHF asked for them
        last = None
        async for output in original(self, prompt, sampling_params, *args, **kwargs):
            last = output
            yield output
        if last is not None:
            sample = last.outputs[0]
            record = {
                "prompt": list(last.prompt_token_ids), "response": list(sample.token_ids),
                "logprobs": [
                    step[token].logprob for token, step in zip(sample.token_ids, sample.logprobs, strict=True)
                ],
                "finish_reason": sample.finish_reason, "text": sample.text,
            }  # fmt: skip
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    module.AsyncLLM.generate = generate


def experience_maker(module: Any) -> None:
    """Save the rows of a batch as the experience maker receives them, with the contents of their labels."""
    original = module.GemExperienceMaker.compute_advantages_and_returns

    def noting(self: Any, experiences: list[Any]) -> list[Any]:
        with open(Path(os.environ["GEM_SPY"]) / "carried.jsonl", "a", encoding="utf-8") as file:
            for experience in experiences:
                rows = zip(experience.sequences, experience.attention_mask, experience.labels, strict=True)
                for tokens, mask, label in rows:
                    if (played := module.played_of(label)) and played.episode is not None:
                        line = {"token_ids": tokens[mask != 0].tolist(), "episode": played.episode.to_dict()}
                        file.write(json.dumps(line) + "\n")
        return original(self, experiences)

    module.GemExperienceMaker.compute_advantages_and_returns = noting


def activate() -> None:
    after_import("gem_openrlhf._experience_maker", experience_maker)
    after_import("vllm.v1.engine.async_llm", engine)
    after_import("openrlhf.trainer.ray.ppo_actor", actor)
    after_import("openrlhf.models.loss", loss)
    after_import("openrlhf.utils.deepspeed.deepspeed", strategy)
