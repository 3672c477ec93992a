"""State keys identify the turns that began in the same state."""

from __future__ import annotations

import hashlib

import pytest

from gem_core.rollout import Episode, Turn


def episode(*observations: str, reported: str | None = None) -> Episode:
    info = {} if reported is None else {"state_key": reported}
    turns = [Turn([1], [2], None, 0.0, text, "", "stop", info=dict(info)) for text in observations]
    return Episode("", 0, turns, terminated=True, truncated=False, stop_reason="terminated")


def test_turns_that_saw_the_same_observations_share_a_key() -> None:
    first, second, third = (episode(*text).state_keys() for text in ("aab", "aac", "ba"))
    assert first[:2] == second[:2]
    assert first[2] != second[2]
    assert len({*first, *third}) == 5
    assert first[0] == hashlib.sha256(b'"a"\n').hexdigest()  # the same in every process


def test_the_key_of_the_environment_replaces_the_hash() -> None:
    keys = episode("a", "b", "c", reported="room 1").state_keys()
    assert keys == [episode("a").state_keys()[0], "room 1", "room 1"]


def test_the_reference_trainer_supplies_them() -> None:
    pytest.importorskip("torch", reason="needs the extra 'train'")
    from gem_lab.train import TrainConfig

    TrainConfig(env=["game:GuessTheNumber-v0-easy"], estimator="gigpo", group_size=2, episodes_per_step=4)
