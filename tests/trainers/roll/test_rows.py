"""Rows of an episode from a real env manager whose proxy answers from a list."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import gem_roll
import pytest
import torch
from gem_roll import _managers
from gem_roll._failures import episodes_of
from roll.distributed.scheduler.protocol import DataProto
from roll.pipeline.agentic.llm_proxy import BaseLLMProxy, register_llm_proxy
from tensordict import TensorDict

from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, make_tasks
from tests.trainers.roll.configs import small_config
from tests.trainers.spies import gem_trouble


@register_llm_proxy("listed")
class Listed(BaseLLMProxy):  # type: ignore[misc]
    """Answers with the next text; None means a request aborted by ROLL."""

    answers: list[str | None]
    prompts: list[list[int]]

    def generate(self, messages: Any, lm_input: Any, generation_config: dict[str, Any]) -> Any:
        answer = self.answers.pop(0)
        if answer is None:
            return None
        self.prompts.append(lm_input.batch["input_ids"][0].tolist())
        ids = [*self.tokenizer.encode(answer, add_special_tokens=False), self.tokenizer.eos_token_id]
        ids = ids[: generation_config["max_new_tokens"]]
        logprobs = torch.arange(1, len(ids) + 1, dtype=torch.float32)[None] / -10
        return DataProto(
            batch=TensorDict({"responses": torch.tensor([ids]), "infer_logprobs": logprobs}, batch_size=1)
        )


class Queue:
    """The two methods of ROLL's queue that a manager uses."""

    def __init__(self, episodes: int) -> None:
        self.left = list(range(episodes))
        self.rollouts: list[Any] = []
        self.get_episode_id = SimpleNamespace(
            remote=lambda group, env: self.left.pop(0) if self.left else None
        )
        self.put = SimpleNamespace(remote=lambda *given: self.rollouts.append(given[3]))


def make_manager(kind: Any, config: Any, env_config: Any, tokenizer: Any, queue: Queue) -> Any:
    """Return an env manager that puts its rollouts into `queue`."""
    return kind(
        worker_config=config.train_env_manager,
        pipeline_config=config,
        env_config=env_config,
        tokenizer=tokenizer,
        generate_scheduler=None,
        output_queue=queue,
        thread_lock=Lock(),
    )


def rollouts(
    folder: Path,
    tokenizer: Any,
    answers: list[str | None],
    monkeypatch: pytest.MonkeyPatch,
    *,
    manager: str = "GemTrajEnvManager",
    env_type: str = "gem_core:test:Endless",
    max_steps: int = 3,
    steps: Sequence[int] = (0,),
    max_tokens: int = 24,
    **changed: Any,
) -> list[Any]:
    """Return the rollouts that a manager puts into ROLL's queue."""
    monkeypatch.setattr(_managers, "ray", SimpleNamespace(get=lambda value: value))
    section = {
        "env_type": env_type, "env_manager_cls": f"gem_roll.{manager}", "max_steps": max_steps,
        "max_tokens_per_step": max_tokens, "agent_system_template": None, "agent_template": "{observation}",
    }  # fmt: skip
    gem = changed.pop("gem", {})
    config = small_config(
        folder,
        {
            "train_env_manager": {
                "tags": ["T"], "num_groups_partition": [4], "llm_proxy": {"proxy_type": "listed"},
                **changed.pop("train_env_manager", {}),
            },
            "val_env_manager": {"tags": ["T"], "num_groups_partition": [4]},
            "custom_envs": {"gem": gem, "T": section},
            "actor_infer": {"generating_args": {"max_new_tokens": max_tokens}},
            **changed,
        },
    )  # fmt: skip
    Listed.answers, Listed.prompts = list(answers), []
    queue = Queue(1)
    env_config = next(iter(config.train_env_manager.env_configs[0].values()))
    made = make_manager(getattr(gem_roll, manager), config, env_config, tokenizer, queue)
    for step in steps:
        made.update_step(step)
    made.run_rollout_loop(DataProto(meta_info={"seed": 1}))
    assert queue.rollouts[-1] is None  # ROLL waits for it
    return queue.rollouts[:-1]


def test_a_run_that_continues_plays_the_next_tasks(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = list(make_tasks([EnvChoice("test:Endless")], 25, seed=42))
    section = {"max_traj_per_env": 2}
    for steps, row in (((0,), 0), ((0, 1), 0), ((3,), 3 * 2 * 4), ((3, 4), 3 * 2 * 4)):
        (rollout,) = rollouts(
            tmp_path, tokenizer, ["a", "b", "c"], monkeypatch, steps=steps, train_env_manager=section
        )
        (episode,) = episodes_of(rollout)
        assert episode.seed == tasks[row]["seed"]


@pytest.fixture(autouse=True)
def troubled() -> None:
    """Register the environments that misbehave."""
    gem_trouble.register()


def test_an_episode_is_one_row(tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (rollout,) = rollouts(tmp_path, tokenizer, ["a", None, "b c", "d"], monkeypatch)
    (ids,) = rollout.batch["input_ids"]
    mask, turns = rollout.batch["response_mask"][0], rollout.batch["gem_turn_ids"][0]
    length = int(rollout.batch["attention_mask"][0].sum())
    end = tokenizer.eos_token_id
    wanted = [[*tokenizer.encode(text, add_special_tokens=False), end] for text in ("a", "b c", "d")]
    assert [ids[turns == turn].tolist() for turn in range(3)] == wanted
    assert torch.equal(mask.bool(), turns >= 0)
    # Every prompt is a prefix of the row: nothing was decoded and encoded again.
    assert all(ids[: len(prompt)].tolist() == prompt for prompt in Listed.prompts)
    ended = tokenizer.decode([end])
    assert f"b c{ended}" in tokenizer.decode(ids[:length])
    assert ended + ended not in tokenizer.decode(ids[:length])
    last = [int((turns == turn).nonzero()[-1]) for turn in range(3)]
    scores = rollout.batch["scores"][0]
    assert scores[last].tolist() == [1.0, 2.0, 0.0]  # the rewards of test:Endless
    assert scores.sum() == 3.0 == rollout.non_tensor_batch["episode_scores"][0]
    assert rollout.non_tensor_batch["step_scores"][0] == [1.0, 2.0, 0.0]
    logprobs = rollout.batch["infer_logprobs"][0]
    assert logprobs[last[1] - 1] == pytest.approx(-len(wanted[1]) / 10)  # shifted by one, as in ROLL
    assert rollout.meta_info["metrics"]["env/T/truncation_rate"] == 1.0


def test_a_turn_is_a_row(tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {"manager": "GemStepEnvManager", "adv_estimator": "step_reinforce"}
    (rollout,) = rollouts(tmp_path, tokenizer, ["a", "b", "c"], monkeypatch, **changed)
    assert rollout.non_tensor_batch["step"].tolist() == [0, 1, 2]
    assert rollout.non_tensor_batch["step_scores"].tolist() == [1.0, 2.0, 0.0]
    prompts = [
        ids[mask].tolist()
        for ids, mask in zip(rollout.batch["input_ids"], rollout.batch["prompt_mask"], strict=True)
    ]
    assert prompts == Listed.prompts
    assert len(episodes_of(rollout)) == 1


@pytest.mark.parametrize("manager", ["GemTrajEnvManager", "GemStepEnvManager"])
@pytest.mark.parametrize(
    ("env_type", "changed", "answers"),
    [
        ("gem_core:test:Raises", {}, ["a", "b"]),
        ("gem_core:test:Endless", {"sequence_length": 8}, []),
    ],
    ids=["raises", "long-prompt"],
)
def test_an_episode_that_is_not_trainable_is_a_masked_row(
    tmp_path: Path,
    tokenizer: Any,
    monkeypatch: pytest.MonkeyPatch,
    manager: str,
    env_type: str,
    changed: dict[str, Any],
    answers: list[str | None],
) -> None:
    (rollout,) = rollouts(
        tmp_path, tokenizer, answers, monkeypatch, manager=manager, env_type=env_type, **changed
    )
    assert len(rollout) == 1
    assert not rollout.batch["response_mask"].any()
    assert not rollout.batch["scores"].any()
    assert rollout.non_tensor_batch["episode_scores"][0] == 0.0
    assert rollout.meta_info["metrics"]["gem/error_rate"] == 1.0
    (episode,) = episodes_of(rollout)
    assert not episode.trainable


def test_a_template_whose_end_the_engine_does_not_know_is_rejected(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import copy

    other = copy.deepcopy(tokenizer)
    other.eos_token = other.pad_token
    other.name_or_path = str(tmp_path)  # no generation config with more stop tokens
    with pytest.raises(ConfigError, match="the chat template ends a turn with"):
        rollouts(tmp_path, other, [], monkeypatch)
