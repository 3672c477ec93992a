"""Rows of an episode, through a real env manager with a proxy that answers from a list, and their credit."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import gem_roll
import numpy as np
import pytest
import torch
from gem_roll import managers, pipeline
from gem_roll.credit import assign_credit, episodes_of
from gem_roll.rows import column
from roll.distributed.scheduler.protocol import DataProto
from roll.pipeline.agentic.llm_proxy import BaseLLMProxy, register_llm_proxy
from tensordict import TensorDict

from gem_core.errors import ConfigError
from tests.trainers.evidence import oracle
from tests.trainers.roll.configs import small_config


@register_llm_proxy("listed")
class Listed(BaseLLMProxy):  # type: ignore[misc]
    """Answers with the next text, None stands for a request that ROLL aborted."""

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
    """The two methods of ROLL's queue that a manager calls."""

    def __init__(self, episodes: int) -> None:
        self.left = list(range(episodes))
        self.rollouts: list[Any] = []
        self.get_episode_id = SimpleNamespace(
            remote=lambda group, env: self.left.pop(0) if self.left else None
        )
        self.put = SimpleNamespace(remote=lambda *given: self.rollouts.append(given[3]))


def rollouts(
    folder: Path,
    tokenizer: Any,
    answers: list[str | None],
    monkeypatch: pytest.MonkeyPatch,
    *,
    manager: str = "GemTrajEnvManager",
    env_type: str = "gem_core:test:Endless",
    max_steps: int = 3,
    **changed: Any,
) -> list[Any]:
    """What a manager puts into ROLL's queue."""
    monkeypatch.setattr(managers, "ray", SimpleNamespace(get=lambda value: value))
    section = {
        "env_type": env_type, "env_manager_cls": f"gem_roll.{manager}", "max_steps": max_steps,
        "max_tokens_per_step": 24, "agent_system_template": None, "agent_template": "{observation}",
    }  # fmt: skip
    gem = changed.pop("gem", {})
    config = small_config(
        folder,
        {
            "train_env_manager": {
                "tags": ["T"], "num_groups_partition": [4], "llm_proxy": {"proxy_type": "listed"},
            },
            "val_env_manager": {"tags": ["T"], "num_groups_partition": [4]},
            "custom_envs": {"gem": gem, "T": section},
            **changed,
        },
    )  # fmt: skip
    Listed.answers, Listed.prompts = list(answers), []
    queue = Queue(1)
    env_config = next(iter(config.train_env_manager.env_configs[0].values()))
    made = getattr(gem_roll, manager)(
        worker_config=config.train_env_manager,
        pipeline_config=config,
        env_config=env_config,
        tokenizer=tokenizer,
        generate_scheduler=None,
        output_queue=queue,
        thread_lock=Lock(),
    )
    made.current_step = 0
    made.run_rollout_loop(DataProto(meta_info={"seed": 1}))
    assert queue.rollouts[-1] is None  # ROLL waits for it
    return queue.rollouts[:-1]


@pytest.fixture(autouse=True)
def troubled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environments of the spies folder."""
    from tests.trainers.processes import SPIES

    monkeypatch.syspath_prepend(str(SPIES))
    import gem_trouble

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
    # Every prompt is the beginning of the row: nothing was decoded and encoded again.
    assert all(ids[: len(prompt)].tolist() == prompt for prompt in Listed.prompts)
    text = tokenizer.decode(ids[:length])
    assert text.count(tokenizer.decode([end])) == 3
    last = [int((turns == turn).nonzero()[-1]) for turn in range(3)]
    scores = rollout.batch["scores"][0]
    assert scores[last].tolist() == [1.0, 2.0, 0.0]  # what test:Endless pays
    assert scores.sum() == 3.0 == rollout.non_tensor_batch["episode_scores"][0]
    assert rollout.non_tensor_batch["step_scores"][0] == [1.0, 2.0, 0.0]
    logprobs = rollout.batch["infer_logprobs"][0]
    assert logprobs[last[1] - 1] == pytest.approx(-len(wanted[1]) / 10)  # shifted by one, as in ROLL
    assert rollout.meta_info["metrics"]["env/T/truncation_rate"] == 1.0


def test_a_turn_is_a_row(tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (rollout,) = rollouts(tmp_path, tokenizer, ["a", "b", "c"], monkeypatch, manager="GemStepEnvManager")
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


def test_a_template_whose_end_the_engine_does_not_know_is_refused(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import copy

    other = copy.deepcopy(tokenizer)
    other.eos_token = other.pad_token
    monkeypatch.setattr("gem_core.rollout.engine.engine_stop_ids", lambda tokenizer: {tokenizer.eos_token_id})
    with pytest.raises(ConfigError, match="the chat template ends a turn with"):
        rollouts(tmp_path, other, [], monkeypatch)


def batch(rewards: list[list[float]], *, by_step: bool, own: bool) -> Any:
    """Rows of two tokens a turn; `own` leaves out what only our env managers say."""
    rows: list[tuple[int, list[float], list[int]]] = []
    for number, of_turns in enumerate(rewards):
        if by_step:
            rows += [(number, [reward], [turn]) for turn, reward in enumerate(of_turns)]
        else:
            rows.append((number, of_turns, list(range(len(of_turns)))))
    length = 3 * max(len(of_turns) for _, of_turns, _ in rows) + 1
    mask = torch.zeros(len(rows), length, dtype=torch.bool)
    turn_ids = torch.full((len(rows), length), -1)
    scores = torch.zeros(len(rows), length)
    for row, (_, of_turns, _) in enumerate(rows):
        for turn, reward in enumerate(of_turns):
            mask[row, 3 * turn + 1 : 3 * turn + 3] = True
            turn_ids[row, 3 * turn + 1 : 3 * turn + 3] = turn
            scores[row, 3 * turn + 2] = reward
    if not own:  # ROLL puts the sum of all on the last token
        scores = torch.zeros_like(scores)
        scores[:, -1] = torch.tensor([sum(of_turns) for _, of_turns, _ in rows])
    tensors = {"response_mask": mask, "scores": scores} | ({"gem_turn_ids": turn_ids} if own else {})
    columns = {
        "traj_id": column([f"t{number}" for number, _, _ in rows]),
        "traj_group_id": column([f"g{number // 2}" for number, _, _ in rows]),
        "step_scores": column([r[0] if by_step else list(r) for _, r, _ in rows]),
    }
    if by_step:
        columns["step"] = column([turns[0] for _, _, turns in rows])
    return DataProto(batch=TensorDict(tensors, batch_size=len(rows)), non_tensor_batch=columns)


REWARDS = [[0.5, 0.0, 1.0], [0.25], [0.0, -1.0], [2.0, 0.125]]


@pytest.mark.parametrize("by_step", [False, True])
@pytest.mark.parametrize("own", [False, True], ids=["of-roll", "ours"])
def test_rebn_of_the_rows_of_either_layout(by_step: bool, own: bool) -> None:
    data = batch(REWARDS, by_step=by_step, own=own)
    credit = assign_credit(data, "rebn", 0.9, {})
    wanted = [a for episode in oracle(REWARDS, 0.9) for a in episode]
    mask = data.batch["response_mask"][:, 1:]
    assert credit.advantages[mask].reshape(-1, 2).tolist() == [
        pytest.approx([a, a], abs=1e-5) for a in wanted
    ]
    assert not credit.advantages[~mask].any()
    assert credit.stats.count == 8


@pytest.mark.parametrize("by_step", [False, True])
def test_the_groups_are_rolls(by_step: bool) -> None:
    credit = assign_credit(batch(REWARDS, by_step=by_step, own=True), "gem_rloo", 1.0, {})
    scores = [sum(episode) for episode in REWARDS]
    others = [scores[1], scores[0], scores[3], scores[2]]
    wanted = {round(score - other, 4) for score, other in zip(scores, others, strict=True)}
    assert {round(value, 4) for value in credit.advantages.flatten().tolist()} - {0.0} == wanted


def test_rows_that_say_nothing_about_turns_are_refused() -> None:
    data = batch(REWARDS, by_step=False, own=False)
    scores = data.non_tensor_batch["step_scores"]
    scores[2] = [0.0]
    with pytest.raises(ConfigError, match="row 2 has 2 runs of response tokens, but 1 step_scores"):
        assign_credit(data, "rebn", 0.9, {})
    del data["step_scores"]
    with pytest.raises(ConfigError, match="say nothing about turns"):
        assign_credit(data, "rebn", 0.9, {})


def test_copies_train_nothing() -> None:
    data = batch(REWARDS, by_step=False, own=True)
    data.non_tensor_batch["gem_row"] = column([0, 1, 0, 3])
    before = data.batch["response_mask"].clone()
    pipeline.mask_copies(data)
    assert not data.batch["response_mask"][2].any()
    assert torch.equal(data.batch["response_mask"][[0, 1, 3]], before[[0, 1, 3]])
    assert "gem_row" not in data.non_tensor_batch


def test_credit_takes_the_place_of_rolls_own_and_is_clipped() -> None:
    data = batch(REWARDS, by_step=False, own=True)
    mask = data.batch["response_mask"]
    mask[1] = False  # a filter of ROLL's
    data.batch["response_mask"] = mask
    shape = mask[:, 1:].shape
    data.batch["gem_advantages"], data.batch["gem_returns"] = torch.full(shape, 3.0), torch.ones(shape)
    data.batch["advantages"] = torch.full(shape, 7.0)
    pipeline.use_credit(data, 2.0)
    assert torch.equal(data.batch["advantages"], 2.0 * mask[:, 1:])
    assert torch.equal(data.batch["raw_advantages"], 3.0 * mask[:, 1:])
    assert not {"gem_advantages", "gem_returns"} & set(data.batch.keys())


def test_a_column_keeps_lists() -> None:
    kept = column([[1.0, 2.0], [3.0, 4.0]])
    assert (kept.shape, kept.dtype, kept[1]) == ((2,), np.dtype(object), [3.0, 4.0])
