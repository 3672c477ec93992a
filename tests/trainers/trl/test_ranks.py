"""Two processes compute what one process would: statistics, baselines, and the gradient of all episodes."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest
import torch

from gem_core.advantages import get_estimator
from gem_lab.consistency import Record, compare
from gem_lab.train._batches import policy_gradient
from tests.consistency import assemble
from tests.consistency.scenario import Scenario
from tests.trainers.evidence import GAMMA, Row, Update, oracle
from tests.trainers.processes import ROOT, run_to_the_end
from tests.trainers.trl.ranks import ESTIMATORS

pytestmark = pytest.mark.skipif(
    not os.environ.get("GEM_CORE_TRL"), reason="starts two processes: `nox -s trl` does"
)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory, shared_step: Scenario) -> list[dict[str, Any]]:
    """What each rank consumed."""
    folder = tmp_path_factory.mktemp("ranks")
    env = {
        **os.environ,
        "ACCELERATE_USE_CPU": "1",  # `accelerate launch --cpu --num_processes 2` starts one process
        "OMP_NUM_THREADS": "1",
        "GEM_CONSISTENCY": str(shared_step.folder),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command += ["-m", "tests.trainers.trl.ranks", str(folder)]
    run_to_the_end(command, folder=folder, env=env, timeout=280).check()
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=False) for rank in range(2)]


def test_the_shared_step_on_two_ranks(ranks: list[dict[str, Any]], shared_step: Scenario) -> None:
    from transformers import AutoModelForCausalLM

    parts = [rank["shared"] for rank in ranks]
    rows = [row for part in parts for row in part["update"].rows]
    episodes = assemble.from_rows(rows, [carried for part in parts for carried in part["carried"]])
    core = shared_step.core()
    model = AutoModelForCausalLM.from_pretrained(shared_step.model, attn_implementation="eager").float()
    first: Update = parts[0]["update"]
    for mine, other in zip(first.gradients, parts[1]["update"].gradients, strict=True):
        assert mine is not None
        torch.testing.assert_close(mine, other)
    gradient = assemble.gradient_difference(first, core, model)
    record = Record("trl", {}, "", core.model, episodes, gradient=gradient)
    comparison = compare(core, record)
    assert comparison.equal, comparison
    assert comparison.levels[3].equal


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_group_may_be_on_two_ranks(ranks: list[dict[str, Any]], estimator: str) -> None:
    parts = [rank[estimator] for rank in ranks]
    played = [part["episodes"] for part in parts]
    seeds = [{seed for seed, *_ in mine} for mine in played]
    assert seeds[0] & seeds[1]  # a group is on both ranks
    everything = [episode for mine in played for episode in mine]
    wanted = expected(estimator, everything)
    alone = [values for mine in played for values in expected(estimator, mine)]
    assert max(np.abs(a - b).max() for a, b in zip(wanted, alone, strict=True)) > 0.01
    start = 0
    for part, mine in zip(parts, played, strict=True):
        rank_rows = list(zip(mine, wanted[start : start + len(mine)], strict=True))
        start += len(mine)
        assert part["rows"]
        for row in part["rows"]:
            turns = turns_of(row)
            same = [values for (*_, tokens), values in rank_rows if tokens == row.prompt + row.response]
            assert any(turns == pytest.approx(list(values), abs=1e-5) for values in same)
    count = sum(len(rewards) for _, rewards, *_ in everything)
    mean = sum(sum(rewards) for _, rewards, *_ in everything) / len(everything)
    for part in parts:
        assert part["metrics"]["rebn/turns"] == count
        assert part["metrics"]["gem/return"] == pytest.approx(mean)


def test_own_rows_on_one_of_two_ranks(ranks: list[dict[str, Any]]) -> None:
    parts = [rank["mix"] for rank in ranks]
    rows = [row for part in parts for row in part["rows"]]
    played = [row for row in rows if not row.is_pad]
    lost = len(rows) - len(played)
    assert lost == 1
    for part in parts:
        counts = {
            name: value for name, value in part["metrics"].items() if "/played/" in name or "/fail" in name
        }
        own, game = "train_dataset[0]", "game:GuessTheNumber-v0-easy"
        assert counts == {
            f"gem/played/{own}": 4 - lost, f"gem/failed/{own}": lost,
            f"gem/played/{game}": 8, f"gem/failed/{game}": 0,
        }  # fmt: skip
    # The mean over the played rows of all ranks, at a ratio of 1: each row contributes minus its advantages.
    means = [np.mean([a for a, on in zip(row.advantages, row.mask, strict=True) if on]) for row in played]
    assert any(means)
    assert np.mean([part["loss"] for part in parts]) == pytest.approx(-np.mean(means), abs=1e-5)


def test_ranks_with_unequal_numbers_of_rows(ranks: list[dict[str, Any]], model: Any) -> None:
    parts = [rank["many rows"] for rank in ranks]
    played = [[episode for episode in part["episodes"] if episode.trainable] for part in parts]
    counts = [sum(len(episode.rows()) for episode in mine) for mine in played]
    assert [len(mine) for mine in played] == [6, 5]
    assert counts[0] > 6
    assert counts[1] == 5
    episodes = [episode for mine in played for episode in mine]
    advantages = oracle([episode.rewards for episode in episodes], GAMMA)
    tokens = sum(episode.num_response_tokens for episode in episodes)
    start = 0
    for part, mine in zip(parts, played, strict=True):
        trained = {(*row.prompt, *row.response): row for row in part["update"].rows if any(row.mask)}
        assert len(trained) == sum(len(episode.rows()) for episode in mine)
        for episode, turn_advantages in zip(mine, advantages[start : start + len(mine)], strict=True):
            for row in episode.rows():
                share = sum(row.response_mask) / episode.num_response_tokens
                factor = share * sum(counts) / len(episodes)
                wanted = [0.0 if t < 0 else turn_advantages[row.turns[t]] * factor for t in row.turn_ids]
                found = trained[tuple(row.token_ids)].advantages
                assert found == pytest.approx(wanted[row.prompt_length :], abs=1e-5)
            for turn, advantage in zip(episode.turns, turn_advantages, strict=True):
                turn.advantage = float(advantage) * tokens / (len(episodes) * episode.num_response_tokens)
        start += len(mine)
    reference = policy_gradient(model, episodes, rows="turn")
    names = [name for name, _ in model.named_parameters()]
    for part in parts:
        gradients = dict(zip(names, part["update"].gradients, strict=True))
        flat = [torch.cat([of[name].flatten() for name in reference]) for of in (gradients, reference)]
        assert float((flat[0] - flat[1]).norm() / flat[1].norm()) < 1e-5


def expected(estimator: str, episodes: list[Any]) -> list[Any]:
    """Return the advantages of one process with these episodes."""
    seeds, rewards, lengths, _ = zip(*episodes, strict=True)
    supplied = {"group_ids": seeds, "lengths": lengths}
    form = get_estimator(estimator)
    return list(form(rewards, gamma=GAMMA, **{name: supplied[name] for name in form.needs}))


def turns_of(row: Row) -> list[float]:
    """Return the advantage of each turn of a row."""
    ids = assemble.turn_ids_of(row.mask)
    return [row.advantages[ids.index(turn)] for turn in range(max(ids) + 1)]
