"""Play environments with ROLL's own env manager; `gem` is the two-line module of docs/environments/gem.md.

test_shim.py runs this file in its own process, because `gem` is gem-llm in that of the tests. The arguments
are the folder of a tokenizer and the ids. `Oracle` replaces ROLL's engine behind the interface of its LLM
proxies.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import gem
import ray
import torch
from omegaconf import OmegaConf
from roll.distributed.scheduler.protocol import DataProto
from roll.pipeline.agentic.env_manager.traj_env_manager import TrajEnvManager
from roll.pipeline.agentic.llm_proxy import BaseLLMProxy, register_llm_proxy
from tensordict import TensorDict
from transformers import AutoTokenizer


@register_llm_proxy("oracle")
class Oracle(BaseLLMProxy):  # type: ignore[misc]
    """Answers with the best action of the environment."""

    def generate(self, messages: Any, lm_input: Any, generation_config: dict[str, Any]) -> Any:
        text = self.env.oracle_action() + self.tokenizer.eos_token
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return DataProto(batch=TensorDict({"responses": torch.tensor([ids])}, batch_size=1))


class Queue:
    """ROLL's queue of rollouts without Ray."""

    def __init__(self, episodes: int) -> None:
        self.left: list[int] = list(range(episodes))
        self.rollouts: list[Any] = []
        self.get_episode_id = SimpleNamespace(
            remote=lambda *_: self.left.pop(0) if self.left else self._stop()
        )
        self.put = SimpleNamespace(remote=lambda *values: self.rollouts.append(values[3]))
        self.manager: Any = None

    def _stop(self) -> None:
        self.manager.running = False


def play(env_id: str, tokenizer: Any) -> list[dict[str, Any]]:
    """Return score and metrics of two episodes."""
    env_config = {
        "env_type": env_id, "config": {"seed": 1}, "group_seed": 1, "group_id": 0, "env_id": 0, "tag": "T",
        "max_steps": 30, "max_tokens_per_step": 64,
    }  # fmt: skip
    templates = {"agent_system_template": "Play.", "agent_template": "{observation}\n{suffix}"}
    queue = Queue(2)
    queue.manager = manager = TrajEnvManager(
        worker_config=SimpleNamespace(
            llm_proxy=SimpleNamespace(proxy_type="oracle"),
            generating_args=SimpleNamespace(max_new_tokens=64, to_dict=dict),
        ),
        pipeline_config=SimpleNamespace(
            custom_envs={"T": templates}, sequence_length=4096, skip_mock_system_prompt=False
        ),
        env_config=OmegaConf.create(env_config),
        tokenizer=tokenizer,
        generate_scheduler=None,
        output_queue=queue,
        thread_lock=None,
    )
    manager.current_step = 0
    manager.trace_meta = None
    manager.run_rollout_loop(DataProto(meta_info={"seed": 1}))
    return [
        {"score": float(rollout.non_tensor_batch["episode_scores"][0]), **rollout.meta_info["metrics"]}
        for rollout in queue.rollouts
        if rollout is not None
    ]


if __name__ == "__main__":
    ray.get = lambda value: value
    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    results = {env_id: play(env_id, tokenizer) for env_id in sys.argv[2:]}
    sys.stdout.write(f"\n{json.dumps({'gem': gem.__file__, 'results': results})}\n")
