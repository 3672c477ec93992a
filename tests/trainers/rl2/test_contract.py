"""RL2's source tree: its plugin on fakes made from the frozen contract, and whether a checkout keeps it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from tests.trainers import contract
from tests.trainers.rl2 import harness


@pytest.mark.tree
def test_the_checkout_keeps_the_frozen_contract() -> None:
    assert contract.drift("rl2", Path(harness.HOME)) == []


def test_the_plugin_of_rl2_estimates_through_the_tree(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RL2_HOME", str(tmp_path))
    fakes: dict[str, Any] = contract.fake_modules(contract.frozen("rl2"))
    algorithms = fakes["RL2.utils.algorithms"]

    def compute_advantages(config: Any, tensor_dict: Any, cu_seqs: Any, step: int) -> None:
        """Fake of RL2's function for one row per trajectory."""
        assert config.adv.estimator == "reinforce"
        on = tensor_dict["action_mask"]
        tensor_dict |= algorithms._compute_reinforce_adv(tensor_dict, 1, False, False)
        tensor_dict["advantages"] *= on

    algorithms.compute_advantages = compute_advantages
    tensors = {
        "action_mask": torch.tensor([[1, 1, 0, 1], [0, 1, 0, 0]]),
        "rewards": torch.tensor([[0.0, 0.5, 0.0, 1.0], [0.0, 0.25, 0.0, 0.0]]),
        "eos_mask": torch.tensor([[0, 0, 0, 1], [0, 0, 0, 1]]),
    }
    config = OmegaConf.create({"adv": {"estimator": "gem_reinforce", "gamma": 0.9}})
    with contract.import_fakes(fakes, "gem_rl2"):
        from gem_rl2 import _upstream
        from gem_rl2._activation import hook_rollout
        from gem_rl2._estimators import AdvantageHook

        installed = _upstream.find()
        assert not installed.is_index
        fakes["RL2.workers.rollout"].gather_and_log = fakes["RL2.utils.logging"].gather_and_log
        fakes["RL2.workers.rollout"].async_request = fakes["RL2.utils.communication"].async_request
        session: Any = SimpleNamespace()
        hook_rollout(session, installed)
        AdvantageHook(installed)(config, tensors, torch.tensor([0, 1, 2]), 1)
    torch.testing.assert_close(
        tensors["advantages"], torch.tensor([[1.4, 1.4, 0, 1.0], [0, 0.25, 0, 0]]), atol=1e-6, rtol=0
    )
    assert "gem_turn_ids" not in tensors
