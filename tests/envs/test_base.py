from __future__ import annotations

import json
from random import Random

import pytest

from gem_core._util.checks import check_int
from gem_core.errors import ConfigError, ResetNeeded
from gem_envs import MoveResult, TurnBasedEnv
from gem_envs._base import check_together


class Coin(TurnBasedEnv[str]):
    """Three turns to name the side of a coin; each legal turn earns 0.25 at the limit."""

    state_fields = (*TurnBasedEnv.state_fields, "coin")

    def new_game(self) -> None:
        self.turn_limit = 3
        self.coin = self.random.choice(["heads", "tails"])

    def rules(self) -> str:
        return "Name the side."

    def board(self) -> str:
        return f"coin {self.turn}"

    def parse(self, text: str) -> str | None:
        return text if text.isalpha() else None

    def play(self, move: str) -> MoveResult:
        if move == "quit":
            return "You gave up.", 0.0, "lost"
        if move not in ("heads", "tails"):
            return "No such side.", 0.0, "illegal"
        return ("Right.", 1.0, "solved") if move == self.coin else ("Wrong.", 0.0, "continue")

    def progress(self) -> float:
        return 0.5

    def limit_reward(self) -> float:
        return 0.25

    def random_move(self, random: Random) -> str:
        return random.choice(["heads", "tails"])


@pytest.fixture
def coin():
    env = Coin()
    observation, info = env.reset(seed=1)
    assert observation == "Name the side."
    assert info == {"suffix": "coin 0\nTurns left: 3."}
    env.coin = "heads"
    return env


WRONG, RIGHT, ILLEGAL = r"\boxed{tails}", r"\boxed{ heads }", r"\boxed{edge}"


def test_move(coin):
    observation, reward, terminated, truncated, info = coin.step(WRONG)
    assert (observation, reward, terminated, truncated) == ("Wrong.", 0.0, False, False)
    assert info == {"invalid": None, "parsed_action": "tails", "suffix": "coin 1\nTurns left: 2."}


def test_success(coin):
    observation, reward, terminated, truncated, info = coin.step(RIGHT)
    assert (observation, reward, terminated, truncated) == ("Right.", 1.0, True, False)
    assert info == {
        "invalid": None,
        "parsed_action": "heads",
        "success": True,
        "metrics": {"progress": 0.5},
        "suffix": "coin 1",
    }


def test_lost_by_the_rules(coin):
    _, reward, terminated, truncated, info = coin.step(r"\boxed{quit}")
    assert (reward, terminated, truncated, info["success"]) == (0.0, True, False, False)


def test_illegal_move_uses_the_turn(coin):
    observation, reward, terminated, truncated, info = coin.step(ILLEGAL)
    assert (observation, reward, terminated, truncated) == ("No such side.", 0.0, False, False)
    assert info == {"invalid": "illegal", "parsed_action": "edge", "suffix": "coin 1\nTurns left: 2."}


@pytest.mark.parametrize("text", ["", "heads", r"\boxed{}", r"\boxed{1}", r"\boxed{heads"])
def test_format_error_ends_the_episode(coin, text):
    _, reward, terminated, truncated, info = coin.step(text)
    assert (reward, terminated, truncated) == (-0.1, True, False)
    assert (info["invalid"], info["success"]) == ("format", False)
    assert "parsed_action" not in info
    with pytest.raises(ResetNeeded):
        coin.step(RIGHT)


@pytest.mark.parametrize("form", [r"\text{%s}", r" \textbf{ %s } ", "$%s$", "**%s**", "%s.", r"\mathrm{%s}~"])
def test_a_decorated_move_is_read(coin, form):
    _, reward, terminated, _, info = coin.step(rf"\boxed{{{form % 'heads'}}}")
    assert (reward, terminated, info["invalid"], info["parsed_action"]) == (1.0, True, None, "heads")


@pytest.mark.parametrize("text", [r"\boxed{\text{1}}", r"\boxed{\text{heads} \text{tails}}", r"\boxed{$$}"])
def test_decoration_around_no_move_is_a_format_error(coin, text):
    assert coin.step(text)[4]["invalid"] == "format"


def test_format_error_on_the_last_turn_is_not_a_truncation(coin):
    coin.step(WRONG)
    coin.step(WRONG)
    assert coin.step("")[1:4] == (-0.1, True, False)


@pytest.mark.parametrize(("last", "earned"), [(WRONG, 0.25), (ILLEGAL, 0.0)])
def test_turn_limit_truncates(coin, last, earned):
    coin.step(WRONG)
    coin.step(ILLEGAL)
    observation, reward, terminated, truncated, info = coin.step(last)
    assert observation.endswith(" No turns are left.")
    assert (reward, terminated, truncated, info["success"]) == (earned, False, True, False)
    with pytest.raises(ResetNeeded):
        coin.step(RIGHT)


def test_success_on_the_last_turn_is_not_a_truncation(coin):
    coin.step(WRONG)
    coin.step(WRONG)
    assert coin.step(RIGHT)[1:4] == (1.0, True, False)


def test_last_box_counts(coin):
    assert coin.step(f"{WRONG}? no, {RIGHT}")[1] == 1.0


@pytest.mark.parametrize("method", ["sample_random_action", "oracle_action"])
def test_players_need_a_running_episode(method):
    env = Coin()
    with pytest.raises(ResetNeeded, match=method):
        getattr(env, method)()


def test_without_a_best_move_there_is_no_oracle(coin):
    assert coin.oracle_action() is None


def test_an_action_that_is_not_text(coin):
    with pytest.raises(TypeError, match="str, not int"):
        coin.step(5)
    assert coin.turn == 0


def test_reset_to_a_state(coin):
    coin.step(WRONG)
    state = json.loads(json.dumps(coin.get_state()))
    coin.step(WRONG)
    env = Coin()
    _, info = env.reset(options={"state": state})
    assert info["suffix"] == "coin 1\nTurns left: 2."
    assert env.get_state() == state
    assert env.step(RIGHT)[1] == 1.0


def test_reset_to_a_state_with_a_seed_reseeds(coin):
    state = coin.get_state()
    env = Coin()
    env.reset(seed=5, options={"state": state})
    assert env.coin == "heads"
    assert env.random.random() == Random(5).random()


@pytest.mark.parametrize("options", [{"index": 3}, {"states": {}}, {"state": {}, "seed": 1}])
def test_unknown_option(coin, options):
    with pytest.raises(ConfigError, match="unknown reset options"):
        coin.reset(options=options)


@pytest.mark.parametrize("damage", [{"fields": {}}, {"random": [3, [1], None]}, {"random": None}])
def test_damaged_state(coin, damage):
    state = {**coin.get_state(), **damage}
    with pytest.raises(ConfigError, match="not a state of Coin"):
        coin.reset(options={"state": state})
    with pytest.raises(ResetNeeded):
        coin.step(RIGHT)


def test_a_state_that_is_not_a_mapping(coin):
    with pytest.raises(ConfigError, match="not a state of Coin"):
        coin.reset(options={"state": 5})


def test_state_of_an_ended_episode(coin):
    coin.step(RIGHT)
    with pytest.raises(ConfigError, match="has ended"):
        Coin().reset(options={"state": coin.get_state()})


def test_empty_options_start_a_new_episode(coin):
    coin.step(WRONG)
    coin.reset(options={})
    assert coin.turn == 0


@pytest.mark.parametrize("value", [0, 6, 2.0, True, "3", None])
def test_counts_outside_the_range_are_rejected(value):
    with pytest.raises(ConfigError, match=r"turns=.*: expected a whole number from 1 to 5"):
        check_int("turns", value, 1, 5)


def test_counts_in_the_range_are_returned():
    assert [check_int("turns", 1, 1, 5), check_int("turns", 5, 1, 5), check_int("turns", 10**9, 1)] == [
        1,
        5,
        10**9,
    ]


def test_check_together():
    check_together(a=1, b=2)
    check_together(a=None, b=None)
    with pytest.raises(ConfigError, match="a=1, b=None"):
        check_together(a=1, b=None)


@pytest.mark.parametrize(
    "after",
    [
        r"as asked in \boxed{}",
        r"the form was \boxed{1}",
        r"\boxed{ } \boxed{\text{}}",
        r"\boxed{heads",
        r"\boxed{{}}",
    ],
)
def test_the_last_readable_box_is_the_move(coin, after):
    _, reward, terminated, _, info = coin.step(f"{WRONG} {RIGHT} {after}")
    assert (reward, terminated, info["invalid"], info["parsed_action"]) == (1.0, True, None, "heads")


def test_only_one_box_is_played(coin):
    _, reward, terminated, _, info = coin.step(f"{RIGHT} {ILLEGAL} \\boxed{{}}")
    assert (reward, terminated, info["invalid"], info["parsed_action"]) == (0.0, False, "illegal", "edge")
    _, reward, terminated, *_ = coin.step(f"{RIGHT} {WRONG}")
    assert (reward, terminated, coin.turn) == (0.0, False, 2)
