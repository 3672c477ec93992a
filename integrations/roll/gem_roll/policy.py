"""ROLL's LLM proxies as a `gem_core.rollout.Policy`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from roll.distributed.scheduler.protocol import DataProto
from roll.pipeline.agentic.llm_proxy.base_llm_proxy import BaseLLMProxy
from tensordict import TensorDict

from gem_core.errors import ConfigError, PolicyError
from gem_core.rollout import Generation, inferred_finish
from gem_core.trainers.player import EpisodePlayer
from gem_roll import upstream

upstream.check(BaseLLMProxy, "generate", "self", "messages", "lm_input", "generation_config")


class Stopped(Exception):
    """Raised when ROLL ends the rollout; the current episode is discarded."""


class ProxyPolicy:
    """Samples through the proxy of an env manager. The proxy blocks, and each manager has its own thread.

    Args:
        proxy: ROLL's `BaseLLMProxy`.
        generating_args: Arguments for every turn, as ROLL's dict.
        source: Number of the environment, by which ROLL routes its requests to one replica.
        stop_ids: Token ids that end a response.
        running: Returns False once ROLL has stopped the manager.
    """

    def __init__(
        self,
        proxy: Any,
        generating_args: Mapping[str, Any],
        source: int,
        stop_ids: set[int],
        running: Callable[[], bool],
    ) -> None:
        self._proxy = proxy
        self._generating_args = dict(generating_args)
        self._source = source
        self._stop_ids = stop_ids
        self._running = running
        self.wants_logprobs = self._generating_args.get("logprobs") is not None

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        """Sample one response, again if ROLL aborted the request to update the weights.

        Raises:
            Stopped: The manager was stopped.
            PolicyError: Log-probs were requested, but the engine returned none.
        """
        ids = torch.tensor([list(prompt_ids)], dtype=torch.long)
        mask = torch.ones_like(ids)
        batch = {"input_ids": ids, "attention_mask": mask, "position_ids": mask.cumsum(-1) - 1}
        while self._running():
            output = self._proxy.generate(
                messages=[],
                lm_input=DataProto(
                    batch=TensorDict(batch, batch_size=1), meta_info={"src_rank": self._source}
                ),
                generation_config={**self._generating_args, "max_new_tokens": max_tokens},
            )
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
        return Generation(ids, logprobs, inferred_finish(ids, max_tokens, self._stop_ids))


def stop_ids_of(player: EpisodePlayer, tokenizer: Any) -> set[int]:
    """Return the token ids at which ROLL's engines end a response.

    Raises:
        ConfigError: The chat template ends a turn with a token at which the engines do not stop.
    """
    extra = player.extra_stop_id
    if extra is not None and extra != tokenizer.pad_token_id:
        raise ConfigError(
            f"the chat template ends a turn with {tokenizer.decode([extra])!r}, but ROLL's engines stop "
            f"only at the tokenizer's eos_token ({tokenizer.eos_token!r}); make it the model's eos_token"
        )
    return player.stop_ids | {tokenizer.pad_token_id}
