"""Episodes counted by source."""

from __future__ import annotations

import pytest

from gem_core import make
from gem_core.errors import EnvError
from gem_core.rollout import Episode, Turn
from gem_core.rollout._sources import MANY, SourceLedger, split_by_source

LOST = [("game", "KeyError: 'score'"), ("game", "timeout")]


def test_each_source_is_counted() -> None:
    metrics = SourceLedger().close_step("step 1", ["gsm8k", "game", "gsm8k"], [("game", "boom")], filled=2)
    assert metrics == {
        "gem/filled": 2.0,
        "gem/played/game": 1.0,
        "gem/failed/game": 1.0,
        "gem/played/gsm8k": 2.0,
        "gem/failed/gsm8k": 0.0,
    }


@pytest.mark.parametrize("pairs", [4, 5, 50])
def test_a_source_that_was_never_played_ends_the_run_at_once(pairs: int) -> None:
    message = rf"step 1: all {2 * pairs} episodes of game are lost .*KeyError: 'score'"
    with pytest.raises(EnvError, match=message):
        SourceLedger().close_step("step 1", ["gsm8k"], LOST * pairs)


def test_one_episode_below_many_ends_no_run() -> None:
    lost = (LOST * 4)[: MANY - 1]
    assert SourceLedger().close_step("step 1", ["gsm8k"], lost)["gem/failed/game"] == MANY - 1 == 7


def test_a_few_lost_episodes_of_a_source_that_was_never_played_may_be_chance() -> None:
    ledger = SourceLedger()
    for step in (1, 2):
        assert ledger.close_step(f"step {step}", ["gsm8k"], LOST)["gem/failed/game"] == 2
    with pytest.raises(EnvError, match=r"step 3: all 2 episodes of game are lost .none was played before"):
        ledger.close_step("step 3", ["gsm8k"], LOST)


def test_a_source_that_was_played_before_may_fail_for_two_steps() -> None:
    ledger = SourceLedger()
    ledger.close_step("step 1", ["gsm8k", "game"], [])
    for step in (2, 3):
        assert ledger.close_step(f"step {step}", ["gsm8k"], LOST)["gem/failed/game"] == 2
    ledger.close_step("step 4", ["game"], LOST)  # one episode is enough to start the count again
    ledger.close_step("step 5", ["gsm8k"], [])  # a step without rows of the source does not count
    for step in (6, 7):
        ledger.close_step(f"step {step}", ["gsm8k"], LOST)
    ledger.close_step("step 8", ["gsm8k"], [])
    with pytest.raises(EnvError, match=r"step 9: all 2 episodes of game are lost .for 3 steps in a row"):
        ledger.close_step("step 9", ["gsm8k"], LOST)


def test_a_step_without_rows_of_a_lost_source_goes_on() -> None:
    ledger = SourceLedger()
    ledger.close_step("step 1", ["game"], [])
    for step in (2, 3):
        ledger.close_step(f"step {step}", [], LOST)
    assert ledger.close_step("step 4", ["gsm8k"], [])["gem/played/gsm8k"] == 1


def test_an_environment_that_failed_in_its_constructor_is_the_same_source() -> None:
    """Its episode has the arguments of the task; others have those of the id as well."""
    game = "game:GuessTheNumber-v0-easy"
    whole = make(game, max_turns=3).spec
    assert whole is not None
    assert whole.kwargs.keys() > {"max_turns"}
    turn = Turn([1], [2], None, 1.0, "", "", "stop")
    played = Episode(game, 0, [turn], True, False, "terminated", env_kwargs=whole.kwargs)
    failed = Episode(
        game, 3, [], False, False, "env_error", "boom", trainable=False, env_kwargs={"max_turns": 3}
    )
    unknown = Episode("no:Such", 4, [], False, False, "token_budget", trainable=False, env_kwargs={"a": 1})
    label = f"{game}(max_turns=3)"
    assert split_by_source([played, failed, unknown]) == (
        [label],
        [(label, "seed 3: boom"), ("no:Such(a=1)", "seed 4: it has no turn")],
    )
