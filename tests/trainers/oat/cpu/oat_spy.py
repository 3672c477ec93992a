"""Records the requests to Oat's engine and the inputs of its update without changing them, for tests.

Loaded by ``--modules oat_spy``; writes into the folder GEM_SPY.
"""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import oat.algorithms.ppo as ppo
import oat.model
import torch
import vllm
from deepspeed.utils import safe_get_full_grad
from gem_script import Answer, Script
from oat.algorithms.ppo_multiturn import MultiTurnFeedbackCollector, PPOMultiTurnLearner
from oat.collectors import FeedbackCollector
from oat.utils.deepspeed import DeepspeedStrategy

FOLDER = Path(os.environ["GEM_SPY"])
_counter = itertools.count()
_noted: dict[str, Any] = {}
_forward: dict[str, Any] = {}
"""The latest forward pass."""


def _save(kind: str, content: dict[str, Any]) -> None:
    torch.save(content, FOLDER / f"{kind}-{os.getpid()}-{next(_counter):04}.pt")


def _note_engine() -> None:
    script = Script.from_environment()
    generate = scripted(script) if script else vllm.LLM.generate

    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = generate(self, *args, **kwargs)
        with open(FOLDER / "engine.jsonl", "a", encoding="utf-8") as file:
            for output in outputs:
                (sample,) = output.outputs
                ids = list(sample.token_ids)
                logprobs = [step[i].logprob for i, step in zip(ids, sample.logprobs, strict=True)]
                request = {
                    "prompt": list(output.prompt_token_ids), "response": ids, "logprobs": logprobs,
                    "finish_reason": sample.finish_reason,
                }  # fmt: skip
                file.write(json.dumps(request) + "\n")
        return outputs

    vllm.LLM.generate = noting


def scripted(script: Script) -> Any:
    """Return a replacement for ``LLM.generate`` that answers from a script."""

    def generate(
        self: Any, *args: Any, sampling_params: Any, prompt_token_ids: list[list[int]], **unused: Any
    ) -> list[Any]:
        return [
            vllm.RequestOutput(ids, [_completion(script.answer(ids, params.max_tokens))])
            for ids, params in zip(prompt_token_ids, sampling_params, strict=True)
        ]

    return generate


def _completion(answer: Answer) -> Any:
    logprobs = [
        {token: vllm.Logprob(logprob)}
        for token, logprob in zip(answer.token_ids, answer.logprobs, strict=True)
    ]
    return vllm.CompletionOutput("", tuple(answer.token_ids), logprobs, answer.finish_reason)


def _steps_played() -> int:
    """Return the number of steps of all environments so far."""
    path = FOLDER / "env.jsonl"
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def _note_collector(collector: Any) -> None:
    collect = collector.collect_feedback

    def noting(self: Any, *args: Any) -> Any:
        _noted.setdefault("begun", _steps_played())  # an update may take several rounds
        return collect(self, *args)

    collector.collect_feedback = noting


def _note_step(learner: Any) -> None:
    step = learner.learning_step

    def noting_step(self: Any, trajectory: Any) -> Any:
        """Record the step; all learners have collected, and none continues before this one's gradient."""
        sampled = {
            tuple(ids[: length + len(made)].tolist()): (length, list(made))
            for ids, length, made in zip(
                trajectory["input_ids"],
                trajectory["prompt_ids_lens"],
                trajectory["action_logprobs"],
                strict=True,
            )
        }
        _save("batch", {"begun": _noted.pop("begun"), "played": _steps_played(), "sampled": sampled})
        aggregate = self.masked_aggregator
        self.masked_aggregator = _noting(aggregate)
        try:
            return step(self, trajectory)
        finally:
            self.masked_aggregator = aggregate

    learner.learning_step = noting_step


def _note_logps() -> None:
    logps = ppo.PPOLearner.get_batch_logps

    def noting_logps(self: Any, model: Any, input_ids: Any, att_mask: Any, **options: Any) -> Any:
        found = logps(self, model=model, input_ids=input_ids, att_mask=att_mask, **options)
        _forward.update(input_ids=input_ids, att_mask=att_mask, logps=found[0].detach())
        return found

    ppo.PPOLearner.get_batch_logps = noting_logps


def _noting(aggregate: Any) -> Any:
    """Return Oat's sum or mean over the tokens of a row, which records the terms of the loss."""

    def noting(values: Any, mask: Any, **options: Any) -> Any:
        _save("loss", {**_forward, "loss": values.detach(), "mask": mask.clone()})
        return aggregate(values, mask, **options)

    return noting


def _note_critic() -> None:
    forward = oat.model.Critic.forward

    def noting(self: Any, **inputs: Any) -> Any:
        values = forward(self, **inputs)
        if not torch.is_grad_enabled():
            _save("value", {"state": inputs["input_ids"][0].tolist(), "values": values[0].tolist()})
        return values

    oat.model.Critic.forward = noting


def _note_optimizer() -> None:
    optimizer_step = DeepspeedStrategy.optimizer_step

    def noting(self: Any, optimizer: Any, model: Any, scheduler: Any, **options: Any) -> None:
        policy = isinstance(model, oat.model.LLM)
        engine = model.model if policy else model
        if engine.is_gradient_accumulation_boundary():
            parameters = list(engine.module.parameters())
            weights = [p.detach().clone() for p in parameters]
            gradients = [_copy(safe_get_full_grad(p)) for p in parameters]  # of all ranks, at any ZeRO stage
            _save("update" if policy else "critic", {"weights": weights, "gradients": gradients})
        optimizer_step(self, optimizer, model, scheduler, **options)

    DeepspeedStrategy.optimizer_step = noting


def _copy(gradient: torch.Tensor | None) -> torch.Tensor | None:
    return None if gradient is None else gradient.detach().clone()


def _note_carried() -> None:
    process = ppo.PPOLearner.process_feedback_data

    def noting(self: Any, rows: list[Any]) -> Any:
        with open(FOLDER / "carried.jsonl", "a", encoding="utf-8") as file:
            for episode in rows[0].collected.episodes:
                file.write(json.dumps({"token_ids": [], "episode": episode.to_dict()}) + "\n")
        return process(self, rows)

    ppo.PPOLearner.process_feedback_data = noting


_note_carried()
_note_engine()
_note_collector(FeedbackCollector)
_note_collector(MultiTurnFeedbackCollector)
_note_step(ppo.PPOLearner)
_note_step(PPOMultiTurnLearner)
_note_logps()
_note_critic()
_note_optimizer()
