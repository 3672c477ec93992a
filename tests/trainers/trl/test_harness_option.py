"""TRL's own trainer on episodes that a foreign agent plays: the same weights as with the own loop."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")

from tests.trainers.trl import harness


def weights(trainer: harness.Spied) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in trainer.model.parameters()]


def test_three_steps_with_a_foreign_agent_end_at_the_weights_of_the_own_loop(tmp_path: Path) -> None:
    native = harness.train(tmp_path / "native", options=harness.gem())
    options = harness.gem(harness="tests.trainers.talker:talk")
    foreign = harness.train(tmp_path / "foreign", options=options)
    start = native.updates[0].weights
    moved = [(end - begin).abs().max() for end, begin in zip(weights(native), start, strict=True)]
    assert max(moved) > 1e-4
    assert len(native.updates) == len(foreign.updates) == 3
    for mine, theirs in zip(weights(native), weights(foreign), strict=True):
        assert torch.equal(mine, theirs)
    (calls,) = {len(rollout) for rollout in foreign.rollouts}
    assert calls == 8
    for entry, other in zip(native.logged("gem/return"), foreign.logged("gem/return"), strict=True):
        shared = {name for name in entry if name.startswith("gem/")}
        assert {name: entry[name] for name in shared} == {name: other[name] for name in shared}
        assert "gem/recognized" not in entry
        assert (other["gem/recognized"], other["gem/foreign_answers"], other["gem/lost"]) == (1, 0, 0)
