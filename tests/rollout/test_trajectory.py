from __future__ import annotations

import json
import math
from dataclasses import asdict

import pytest

from gem_core.errors import ConfigError, NonFiniteReward, TraceError
from gem_core.images import image_part
from gem_core.rollout import Episode, Thread, Turn, trainable_reward_components, trainable_turn_rewards
from gem_core.rollout._estimator_inputs import EpisodeTurns
from gem_core.rollout._metrics import without_tokens


def episode(*rewards: float, trainable: bool = True, mode: str = "append") -> Episode:
    turns = [
        Turn([10 + index, 11], [20 + index] * (index + 1), [-0.5] * (index + 1), reward, "o", "a", "stop")
        for index, reward in enumerate(rewards)
    ]
    return Episode("env", 3, turns, True, False, "terminated", trainable=trainable, context_mode=mode)  # type: ignore[arg-type]


def test_an_episode_without_turns_has_no_rows() -> None:
    assert episode().rows() == episode().rows("turn") == episode().prompts() == []
    assert (episode().total_reward, episode().success) == (0.0, False)


def test_totals() -> None:
    many = episode(*[0.1] * 10)
    assert many.total_reward == 1.0, "summed without rounding error"
    assert many.num_response_tokens == 55
    many.turns[-1].info["success"] = True
    assert many.success


def test_dict_round_trip_through_json() -> None:
    before = episode(0.1, -0.0, 1e-300)
    assert Episode.from_dict(json.loads(json.dumps(before.to_dict()))) == before


def test_threads_survive_a_record_and_an_outline() -> None:
    played = episode(0.0, 0.5, 1.0)
    played.turns[1].thread, played.turns[1].parent, played.turns[2].parent = 1, None, -2
    played.threads = {1: Thread(called_by=0, returns_to=2, independent=True)}
    for one in (played, without_tokens(played)):
        again = Episode.from_dict(json.loads(json.dumps(one.to_dict())))
        assert again == one
        assert again.threads[1].returns_to == 2
    turns = EpisodeTurns.of(without_tokens(played), ())
    assert (turns.turn_threads, turns.threads) == ((0, 1, 0), played.threads)
    assert EpisodeTurns.of(episode(1.0), ()).turn_threads == ()
    for wrong in ({"1": [0]}, {"x": [0, 2, True]}, [1], {"1": 5}):
        with pytest.raises(TraceError, match="not an episode"):
            Episode.from_dict({**played.to_dict(), "threads": wrong})


@pytest.mark.parametrize("mode", ["append", "rebuild"])
@pytest.mark.parametrize("version", [1, 2])
def test_records_of_older_versions_are_read(version: int, mode: str) -> None:
    """They have no parents: the prompts of a rebuilt context are whole."""
    parts = [image_part(b"GIF89a")] if version == 2 else "o"
    before = episode(0.25, 1.0, mode=mode)
    for turn in before.turns:
        turn.observation = parts
        turn.parent = -1 if mode == "append" else None
    record = json.loads(json.dumps(before.to_dict()))
    record["schema_version"] = version
    for turn in record["turns"]:
        del turn["parent"]
    again = Episode.from_dict(record)
    assert again == before
    prompts = [[10, 11], [10, 11, 20, 11, 11] if mode == "append" else [11, 11]]
    assert again.prompts() == prompts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 4}, "schema version 4"),
        ({"schema_version": None}, "schema version None"),
        ({"unknown": 1}, "unknown"),
        ({"turns": [{}]}, "context_ids"),
        ({"turns": 3}, "not an episode"),
        ({"turns": [5]}, "not an episode"),
        ({"turns": [{**asdict(episode(1.0).turns[0]), "reward": "x"}]}, "reward cannot be 'x'"),
        ({"turns": [{**asdict(episode(1.0).turns[0]), "info": None}]}, "info cannot be None"),
        ({"metadata": None}, "metadata cannot be None"),
    ],
)
def test_other_dicts_are_rejected(change: dict[str, object], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        Episode.from_dict({**episode(1.0).to_dict(), **change})


def test_trainable_turn_rewards_leave_failed_episodes_out() -> None:
    assert trainable_turn_rewards([episode(1.0, 2.0), episode(9.0, trainable=False), episode(3.0)]) == [
        [1.0, 2.0],
        [3.0],
    ]


@pytest.mark.parametrize("trainable", [True, False])
def test_a_reward_that_is_not_finite_names_the_episode_and_the_turn(trainable: bool) -> None:
    with pytest.raises(NonFiniteReward, match=r"episode 1 \(env, seed 3\), turn 1: reward nan"):
        trainable_turn_rewards([episode(1.0), episode(0.0, math.nan, trainable=trainable)])


def test_both_views_give_the_same_policy_gradient() -> None:
    """Compare sums over tokens, with each turn's advantage on its tokens, for a small recurrent model."""
    torch = pytest.importorskip("torch", reason="needs the extra 'train'")

    torch.manual_seed(0)
    embed = torch.nn.Embedding(32, 8, dtype=torch.float64)
    cell = torch.nn.GRU(8, 16, batch_first=True, dtype=torch.float64)
    head = torch.nn.Linear(16, 32, dtype=torch.float64)
    parameters = [*embed.parameters(), *cell.parameters(), *head.parameters()]
    played, advantages = episode(0.5, 0.0, 1.0), [0.3, -1.2, 0.9]

    def gradient(rows: list[tuple[list[int], list[float]]]) -> list[torch.Tensor]:
        loss = torch.zeros((), dtype=torch.float64)
        for ids, weights in rows:
            tokens = torch.tensor([ids])
            logits = head(cell(embed(tokens[:, :-1]))[0])
            logprobs = logits.log_softmax(-1).gather(-1, tokens[:, 1:, None])[0, :, 0]
            loss = loss - (logprobs * torch.tensor(weights[1:], dtype=torch.float64)).sum()
        return list(torch.autograd.grad(loss, parameters))

    whole = played.rows()[0]
    one_row = [(whole.token_ids, [advantages[turn] if turn >= 0 else 0.0 for turn in whole.turn_ids])]
    turn_rows = [
        (
            row.prompt_ids + row.response_ids,
            [0.0] * len(row.prompt_ids) + [advantages[row.turns[0]]] * len(row.response_ids),
        )
        for row in played.rows("turn")
    ]
    for ours, theirs in zip(gradient(one_row), gradient(turn_rows), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
        assert ours.abs().sum() > 0


def reported(*turns: tuple[float, dict[str, float] | None], trainable: bool = True) -> Episode:
    made = episode(*(reward for reward, _ in turns), trainable=trainable)
    for turn, (_, components) in zip(made.turns, turns, strict=True):
        turn.info = {} if components is None else {"reward_components": components}
    return made


def test_reward_components_are_those_that_steps_reported() -> None:
    first = reported((-0.1, {"cost": -0.1}), (1.0, {"answer": 1.0, "cost": 0.0}))
    second = reported((0.5, {"answer": 0.5}))
    failed = reported((9.0, {"other": 9.0}), trainable=False)
    assert trainable_reward_components([first, failed, second]) == [[[0.0, -0.1], [1.0, 0.0]], [[0.5, 0.0]]]


def test_the_rest_of_a_reward_is_a_component() -> None:
    penalized = reported((0.75, {"answer": 1.0}), (-0.5, None))
    assert trainable_reward_components([penalized]) == [[[1.0, -0.25], [0.0, -0.5]]]


def test_episodes_without_reward_components_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"no step reported info\['reward_components'\]"):
        trainable_reward_components([episode(1.0)])
    assert trainable_reward_components([episode(1.0, trainable=False)]) == []
