"""Stub of vLLM on a CPU: the part of `vllm.LLM` that Oat uses, on top of transformers.

It really samples and has its own weights, which change only when Oat broadcasts them: the CPU shim passes
each tensor to `LLM.receive`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

__version__ = "0.8.4"


@dataclass
class SamplingParams:
    """The sampling parameters of vLLM that Oat and the plugin set."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    max_tokens: int = 16
    logprobs: int | None = None
    stop_token_ids: list[int] = field(default_factory=list)

    def clone(self) -> SamplingParams:
        return copy.deepcopy(self)


@dataclass
class Logprob:
    logprob: float


@dataclass
class CompletionOutput:
    text: str
    token_ids: tuple[int, ...]
    logprobs: list[dict[int, Logprob]]
    finish_reason: str


@dataclass
class RequestOutput:
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]


@dataclass
class _ModelConfig:
    max_model_len: int


class LLM:
    """One replica of the engine."""

    _waiting: ClassVar[list[torch.Tensor]] = []
    """Parameters that the next broadcast sets."""

    def __init__(self, model: str, dtype: str, max_model_len: int | None, seed: int, **unused: Any) -> None:
        assert dtype == "float32"
        loaded = AutoModelForCausalLM.from_pretrained(model, torch_dtype=torch.float32)
        self.model: Any = loaded.eval()
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.model_config = _ModelConfig(max_model_len or self.model.config.max_position_embeddings)
        self.llm_engine = self
        self._random = torch.Generator().manual_seed(seed)
        self._parameters = self.model.state_dict(keep_vars=True)  # with both names of tied weights
        self._stop = {self.tokenizer.eos_token_id}

    def get_tokenizer(self) -> Any:
        return self.tokenizer

    def reset_prefix_cache(self) -> None:
        pass

    def collective_rpc(self, name: str, args: tuple[Any, ...]) -> None:
        if name == "update_weight":
            parameter = self._parameters[args[0]]
            assert tuple(parameter.shape) == tuple(args[2])
            self._waiting.append(parameter)

    @classmethod
    @torch.no_grad()
    def receive(cls, tensor: torch.Tensor) -> None:
        """Set the announced parameters to a broadcast tensor."""
        assert cls._waiting, "a broadcast without an announcement"
        while cls._waiting:
            cls._waiting.pop().copy_(tensor)

    @torch.inference_mode()
    def generate(
        self,
        prompts: Any = None,
        sampling_params: Any = None,
        prompt_token_ids: list[list[int]] | None = None,
        lora_request: Any = None,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        assert prompt_token_ids, "the prompts are token ids, and there is at least one"
        params = sampling_params
        if isinstance(params, SamplingParams):
            params = [params] * len(prompt_token_ids)
        if any(one.n != 1 or one.top_p != 1 or one.top_k > 0 for one in params):
            raise NotImplementedError("this stub samples once, from the whole distribution")
        made: list[list[tuple[int, float]]] = [[] for _ in prompt_token_ids]
        reasons = ["length"] * len(made)
        width = max(map(len, prompt_token_ids))
        mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompt_token_ids])
        ids = torch.tensor([[0] * (width - len(ids)) + ids for ids in prompt_token_ids])
        cache = DynamicCache()
        running = set(range(len(made)))
        while running:
            positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
            output = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                logits_to_keep=1,
            )
            tokens, logprobs = self._draw(output.logits[:, -1].float(), params)
            for row in sorted(running):
                token = int(tokens[row])
                made[row].append((token, float(logprobs[row])))
                if token in self._stop or token in params[row].stop_token_ids:
                    reasons[row] = "stop"
                    running.discard(row)
                elif len(made[row]) == params[row].max_tokens:
                    running.discard(row)
            ids = tokens[:, None]
            mask = torch.cat([mask, torch.ones_like(ids)], dim=1)
        return [
            RequestOutput(prompt, [self._completion(sampled, reason)])
            for prompt, sampled, reason in zip(prompt_token_ids, made, reasons, strict=True)
        ]

    def _draw(self, logits: torch.Tensor, params: list[SamplingParams]) -> tuple[torch.Tensor, torch.Tensor]:
        temperature = params[0].temperature
        if temperature == 0:
            tokens = logits.argmax(-1)
            return tokens, torch.zeros(len(tokens))
        logprobs = (logits / temperature).log_softmax(-1)
        tokens = torch.multinomial(logprobs.exp(), 1, generator=self._random)
        return tokens[:, 0], logprobs.gather(1, tokens)[:, 0]

    def _completion(self, sampled: list[tuple[int, float]], reason: str) -> CompletionOutput:
        ids = tuple(token for token, _ in sampled)
        logprobs = [{token: Logprob(value)} for token, value in sampled]
        return CompletionOutput(self.tokenizer.decode(ids, skip_special_tokens=True), ids, logprobs, reason)
