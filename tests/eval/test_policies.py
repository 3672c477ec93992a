"""Every option of an evaluation that concerns the policy reaches it."""

from __future__ import annotations

from typing import Any

import pytest

from gem_lab.eval import EvalConfig, _policies
from tests.trainers.processes import ROOT

MODEL = f"hf:{ROOT / 'tests/trainers/tiny/game'}"
EASY = "game:GuessTheNumber-v0-easy"
SAMPLING = {"temperature": 0.3, "top_p": 0.8, "seed": 5}
"""None of them is the default."""


def test_the_options_of_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    class Endpoint:
        address = "there"

        def __init__(self, name: str, **options: Any) -> None:
            given.update(options, name=name)

    monkeypatch.setattr(_policies, "Endpoint", Endpoint)
    monkeypatch.setattr(_policies, "Patience", lambda seconds: seconds)
    own = {
        "base_url": "http://localhost:1/v1", "api_key": "k", "extra_body": {"min_p": 0.1}, "timeout": 7.0,
        "requests_per_minute": 30, "tokens_per_minute": 4000,
    }  # fmt: skip
    config = EvalConfig("a-model", [EASY], give_up_after=9.0, **SAMPLING, **own)
    setup = _policies.open_policy(config)
    assert isinstance(setup.policy, Endpoint)
    assert given == {"name": "a-model", "patience": 9.0, **SAMPLING, **own}


def test_the_options_of_a_model_folder() -> None:
    pytest.importorskip("torch", reason="needs the extra 'train'")
    config = EvalConfig(MODEL, [EASY], concurrency=3, max_total_tokens=100, **SAMPLING)
    setup = _policies.open_policy(config)
    policy: Any = setup.policy
    assert (policy.temperature, policy.top_p, policy.max_batch) == (0.3, 0.8, 3)
    assert policy.eos_token_ids
    assert setup.max_total_tokens == 100
    others = _policies.open_policy(EvalConfig(MODEL, [EASY], seed=6))
    assert others.policy.seed != policy.seed  # type: ignore[union-attr]
