"""ROLL's LLM proxies as a `gem_core.rollout.Policy`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from roll.distributed.scheduler.protocol import DataProto
from tensordict import TensorDict

from gem_core.errors import PolicyError
from gem_core.rollout import Generation, inferred_finish


class Stopped(Exception):
    """Raised when ROLL ends the rollout; the current episode is discarded."""


@dataclass(frozen=True)
class ProxyPolicy:
    """Samples through the proxy of an env manager. The proxy blocks, and each manager has its own thread.

    Attributes:
        proxy: ROLL's `BaseLLMProxy`.
        generating_args: Arguments for every turn, as ROLL's dict.
        source: Number of the environment, by which ROLL routes its requests to one replica.
        stop_ids: Token ids that end a response.
        running: Returns False once ROLL has stopped the manager.
    """

    proxy: Any
    generating_args: Mapping[str, Any]
    source: int
    stop_ids: set[int]
    running: Callable[[], bool]

    @property
    def wants_logprobs(self) -> bool:
        """Whether the engine has to report log-probs."""
        return self.generating_args.get("logprobs") is not None

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        """Sample one response, again if ROLL aborted the request to update the weights.

        Raises:
            Stopped: The manager was stopped.
            PolicyError: Log-probs were requested, but the engine returned none.
        """
        ids = torch.tensor([list(prompt_ids)], dtype=torch.long)
        mask = torch.ones_like(ids)
        batch = {"input_ids": ids, "attention_mask": mask, "position_ids": mask.cumsum(-1) - 1}
        config = {**self.generating_args, "max_new_tokens": max_tokens}
        while self.running():
            lm_input = DataProto(batch=TensorDict(batch, batch_size=1), meta_info={"src_rank": self.source})
            output = self.proxy.generate(messages=[], lm_input=lm_input, generation_config=config)
            if output is not None:
                return self._read(output, max_tokens)
        raise Stopped

    def _read(self, output: DataProto, max_tokens: int) -> Generation:
        ids = output.batch["responses"][0].tolist()
        logprobs = None
        if self.wants_logprobs:
            if "infer_logprobs" not in output.batch:
                raise PolicyError(
                    "the engine reported no log-probs; to go without, set generating_args.logprobs: null"
                )
            # 0.0 for a pad token at the end, which ROLL treats as padding.
            logprobs = output.batch["infer_logprobs"][0].tolist()[-len(ids) :] if ids else []
        # The proxy does not report why a response ended.
        return Generation(ids, logprobs, inferred_finish(ids, max_tokens, self.stop_ids))
