"""TRL trains on environments of other ecosystems; its loss gets the advantages of the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.bridges.openenv.serving import serving
from tests.trainers.evidence import assert_update_is_right, played
from tests.trainers.trl import harness


def assert_three_steps_are_right(folder: Path, spy: Path, tokenizer: Any, model: Any, env: str) -> None:
    trainer = harness.train(folder, env)
    episodes = played(spy, tokenizer)
    assert len(trainer.updates) == 3
    for update in trainer.updates:
        assert len(assert_update_is_right(update, episodes, tokenizer, model)) == 8
    assert max(len(episode.rewards) for episode in episodes.values()) > 1


def test_three_steps_on_an_openenv_server(tmp_path: Path, spy: Path, tokenizer: Any, model: Any) -> None:
    with serving(harness.GAME) as running:
        assert_three_steps_are_right(tmp_path, spy, tokenizer, model, f"openenv:{running.url}")
        assert running.server.state.metrics.events["reset"] == 24


def test_three_steps_on_a_game_of_textarena(tmp_path: Path, spy: Path, tokenizer: Any, model: Any) -> None:
    pytest.importorskip("textarena")
    assert_three_steps_are_right(tmp_path, spy, tokenizer, model, "textarena:GuessTheNumber-v0")
