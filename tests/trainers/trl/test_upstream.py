"""An installed TRL with another interface is rejected in one line."""

from __future__ import annotations

import pytest
from gem_trl import _upstream
from trl import GRPOTrainer
from trl.trainer import utils

from gem_core.errors import UnsupportedTrainer


def test_the_installed_version_is_accepted() -> None:
    _upstream.check()


def test_a_loss_that_needs_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utils, "_ChunkedLogProbFunction", None)  # as in TRL 1.15 without triton
    with pytest.raises(UnsupportedTrainer, match="its loss needs triton, which is not installed"):
        _upstream.check()


def test_a_loss_for_one_advantage_per_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def _compute_loss(self, model, inputs):  # type: ignore[no-untyped-def]
        return inputs["advantages"].unsqueeze(1)

    monkeypatch.setattr(GRPOTrainer, "_compute_loss", _compute_loss)
    with pytest.raises(UnsupportedTrainer, match="its loss does not accept an advantage per token"):
        _upstream.check()


def test_a_missing_argument_or_method(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as change:
        change.setattr(_upstream, "ARGUMENTS", ("rollout_func", "no_such_argument"))
        with pytest.raises(UnsupportedTrainer, match=r"trl.GRPOTrainer has no argument no_such_argument"):
            _upstream.check()
    monkeypatch.delattr(GRPOTrainer, "_calculate_rewards")
    with pytest.raises(
        UnsupportedTrainer, match=r"GRPOTrainer._calculate_rewards is missing: expected \(self,"
    ):
        _upstream.check()
