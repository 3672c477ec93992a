"""The games, compared with known facts about them."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from functools import partial
from itertools import permutations, product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gem_core
from gem_core.errors import GemError
from gem_envs.multiagent import _bargaining as bargaining
from gem_envs.multiagent import _kuhn_poker, _tic_tac_toe
from gem_envs.multiagent._turn_game import PLAYERS
from gem_lab import check_env
from gem_lab._checker import RULES

IDS = gem_core.list_envs("multi:*")


def table(id, **kwargs):
    return gem_core.make(id, opponent="self", **kwargs)


def play(env, choose, seed=None):
    """Return the payoff of each player; `choose(env, agent)` returns the responses."""
    env.reset(seed)
    total = dict.fromkeys(env.possible_agents, 0.0)
    while env.agents:
        (agent,) = env.active_agents()
        for player, reward in env.step({agent: choose(env, agent)})[1].items():
            total[player] += reward
    return total


def best(env, agent, random):
    return env.best_action(agent, random)


def box(move):
    return f"So: \\boxed{{{move}}}."


@pytest.mark.once
@pytest.mark.parametrize("id", IDS)
def test_one_side_keeps_the_contract(id):
    elsewhere = ("processes_change_nothing", "long_text_is_taken")  # a second each, for `gem-core check`
    rules = [rule.name for rule in RULES if rule.name not in elsewhere]
    for kwargs in ({}, {"opponent": "oracle", "agent": "player_2"}):
        report = check_env(id, seeds=(0, 1), rules=rules, **kwargs)
        wanted = {"best_return", "labels_are_right"} | (
            {"floor_holds"} if kwargs else set()
        )  # they depend on the opponent
        assert set(report.skipped) == wanted


@pytest.mark.parametrize("id", IDS)
def test_the_rules_state_the_cost_of_a_forfeit(id):
    env = table(id)
    for text in env.reset(seed=0)[0].values():
        assert re.search(rf"forfeits the .*costs {-env.format_error_reward:g}\b", text), text
    if id.startswith("multi:KuhnPoker"):
        for told in (
            "A bet puts 1 more chip in",
            "a check can be answered by a bet",
            "a call puts",
            "a fold",
        ):
            assert told in text


@pytest.mark.parametrize("id", IDS)
def test_players_play_legally_and_fields_hold_everything(id):
    env = table(id)
    made = set(vars(env))
    random = Random(0)
    for seed in range(20):
        env.reset(seed=seed)
        while env.agents:
            (agent,) = env.active_agents()
            state = json.dumps(env.get_state())
            action = (env.best_action if random.random() < 0.5 else env.random_action)(agent, random)
            assert json.dumps(env.get_state()) == state  # choosing changes nothing
            infos = env.step({agent: action})[4]
            assert infos[agent]["invalid"] is None
    assert set(vars(env)) - made <= set(env.state_fields)


@pytest.mark.parametrize("id", IDS)
@settings(max_examples=40)
@given(action=st.text() | st.text(max_size=8).map(box), seed=st.integers(0, 99), moves=st.integers(0, 3))
def test_no_text_breaks_a_game(id, action, seed, moves):
    env = table(id)
    env.reset(seed=seed)
    for _ in range(moves):
        env.step({env.active_agents()[0]: env.sample_random_action()})
        if not env.agents:
            return
    (agent,) = env.active_agents()
    _, rewards, terminated, _, infos = env.step({agent: action})
    if infos[agent]["invalid"] is not None:
        assert rewards == {player: env.format_error_reward * (player == agent) for player in PLAYERS}
        assert all(terminated.values())
        assert infos[agent]["success"] is False


@pytest.mark.parametrize(
    ("id", "move", "kind"),
    [
        ("multi:TicTacToe-v0", "10", "illegal"),
        ("multi:TicTacToe-v0", "center", "format"),
        ("multi:KuhnPoker-v0", "fold", "illegal"),
        ("multi:KuhnPoker-v0", "raise", "format"),
        ("multi:Bargaining-v0", "accept", "illegal"),
        ("multi:Bargaining-v0", "9 0 0", "illegal"),
        ("multi:Bargaining-v0", "1 2", "format"),
    ],
)
def test_a_bad_move_forfeits(id, move, kind):
    env = table(id)
    env.reset(seed=0)
    observations, rewards, terminated, _, infos = env.step({"player_1": box(move)})
    assert infos["player_1"]["invalid"] == kind
    assert rewards == {"player_1": env.format_error_reward, "player_2": 0.0}
    assert terminated == {"player_1": True, "player_2": True}
    assert "forfeit" in observations["player_1"]
    assert "forfeited" in observations["player_2"]


# -- tic-tac-toe ------------------------------------------------------------------------------


def test_perfect_play_is_a_draw_and_the_value_of_the_game():
    assert _tic_tac_toe.value(_tic_tac_toe.EMPTY) == 0
    env = table("multi:TicTacToe-v0")
    for seed in range(5):
        choose = partial(best, random=Random(seed))
        assert play(env, choose) == dict.fromkeys(PLAYERS, 0.0)


@pytest.mark.parametrize("oracle", [0, 1])
def test_no_sequence_of_replies_beats_the_oracle(oracle):
    """Play every possible game of an opponent against every best move."""
    seen = set()

    def walk(cells):
        if cells in seen:
            return
        seen.add(cells)
        turn = cells.count("X") - cells.count("O")
        if _tic_tac_toe._won(cells):
            assert turn != oracle  # the player who moved last has won and must be the oracle
            return
        free = _tic_tac_toe._free(cells)
        for cell in (_tic_tac_toe.best_cells(cells) if turn == oracle else free) if free else ():
            walk(_tic_tac_toe._put(cells, cell))

    walk(_tic_tac_toe.EMPTY)
    assert len(seen) > 500


def test_a_game_of_tic_tac_toe():
    env = table("multi:TicTacToe-v0")
    env.reset(seed=0)
    for agent, move in zip(PLAYERS * 2, (1, 4, 2, 5), strict=True):
        env.step({agent: box(move)})
    assert env.observe("player_1").splitlines() == ["Your opponent took cell 5.", "X X 3", "O O 6", "7 8 9"]
    observations, rewards, terminated, _, infos = env.step({"player_1": box(3)})
    assert rewards == {"player_1": 1.0, "player_2": -1.0}
    assert infos["player_1"]["success"] is True
    assert infos["player_2"]["success"] is False
    assert all(terminated.values())
    assert "You get -1." in observations["player_2"]


# -- Kuhn poker -------------------------------------------------------------------------------

BOLD = {"bet", "call"}


def hand(cards, history, chances, boldest=None):
    """Return player_1's chips, given `chances[player][history][card]`; `boldest` is a maximizing player."""
    history = history.strip()
    if history not in _kuhn_poker.ACTIONS:
        env = table("multi:KuhnPoker-v0")
        env.reset(seed=0)
        env.cards, moves = dict(zip(PLAYERS, cards, strict=True)), history.split()
        for move in moves:
            rewards = env.step({env.active_agents()[0]: box(move)})[1]
        return Fraction(rewards["player_1"])
    player = len(history.split()) % 2
    cautious, bold = _kuhn_poker.ACTIONS[history]
    share = Fraction(chances[player][history][cards[player]]).limit_denominator(10)
    return share * hand(cards, f"{history} {bold}", chances) + (1 - share) * hand(
        cards, f"{history} {cautious}", chances
    )


def game_value(chances):
    deals = list(permutations(range(3), 2))
    return sum(hand(cards, "", chances) for cards in deals) / len(deals)


def test_the_equilibrium_has_the_known_value_and_nobody_gains_by_leaving_it():
    both = (_kuhn_poker.CHANCES, _kuhn_poker.CHANCES)
    assert game_value(both) == Fraction(-1, 18)
    assert Fraction(_kuhn_poker.VALUE).limit_denominator(100) == Fraction(-1, 18)
    # Some best response is a pure strategy: two decisions for each of three cards.
    for player, nodes in enumerate((("", "check bet"), ("check", "bet"))):
        values = []
        for choice in product((0, 1), repeat=6):
            pure = {nodes[0]: choice[:3], nodes[1]: choice[3:]}
            values.append(game_value((pure, both[1]) if player == 0 else (both[0], pure)))
        assert (max if player == 0 else min)(values) == Fraction(-1, 18)


def test_the_oracle_plays_the_equilibrium():
    env = table("multi:KuhnPoker-v0")
    random = Random(0)
    for history, chances in _kuhn_poker.CHANCES.items():
        env.reset(seed=0)
        env.history = history
        agent = PLAYERS[len(history.split()) % 2]
        for card, chance in enumerate(chances):
            env.cards = {agent: card}
            bold = sum(env.best_action(agent, random)[7:-1] in BOLD for _ in range(900))
            assert abs(bold / 900 - chance) < 0.06


def test_nobody_sees_the_other_card_before_the_showdown():
    env = table("multi:KuhnPoker-v0")
    views = set()
    for card in (0, 2):
        env.reset(seed=0)
        env.cards = {"player_1": 1, "player_2": card}
        views.add(env.step({"player_1": box("check")})[0]["player_1"])
    assert len(views) == 1
    assert "held the King" in env.step({"player_2": box("check")})[0]["player_1"]


# -- bargaining -------------------------------------------------------------------------------


def test_values_are_private_and_sum_to_ten():
    env = table("multi:Bargaining-v0")
    for seed in range(50):
        env.reset(seed=seed)
        assert 5 <= sum(env.counts) <= 7
        for player in PLAYERS:
            assert env.worth(player, env.counts) == 1.0
        view = env.observe("player_1")
        env.values["player_2"] = [0, 0, 0]
        assert env.observe("player_1") == view


def test_the_arbiter_wastes_nothing():
    """No division is better for one player and as good for the other; both get their promised share."""
    env = table("multi:Bargaining-v0")
    for seed in range(25):
        got = play(env, lambda env, agent: env.best_action(agent, Random(0)), seed)
        promised = {player: env.worth(player, env.fair_share(player)) for player in PLAYERS}
        assert got == pytest.approx(promised)
        for share in env._divisions():
            values = env.worth("player_1", share), env.worth("player_2", env._rest(share))
            gains = values[0] - got["player_1"], values[1] - got["player_2"]
            assert min(gains) < -1e-9 or max(gains) < 1e-9
            assert values[0] * values[1] <= got["player_1"] * got["player_2"] + 1e-9


def test_a_deal_and_no_deal():
    env = table("multi:Bargaining-v0", max_turns=3)
    env.reset(seed=4)
    everything = " ".join(map(str, env.counts))
    env.step({"player_1": box("0 0 0")})
    assert f"proposes: for you {bargaining._named(env.counts)}" in env.observe("player_2")
    _, rewards, *_ = env.step({"player_2": box("accept")})
    assert rewards == {"player_1": 0.0, "player_2": 1.0}

    env.reset(seed=4)
    for _ in range(3):
        _, rewards, terminated, truncated, infos = env.step({env.active_agents()[0]: box(everything)})
    assert rewards == {"player_1": 0.0, "player_2": 0.0}
    assert all(truncated.values())
    assert not any(terminated.values())
    assert infos["player_1"]["success"] is False
    with pytest.raises(GemError, match="max_turns=1: expected a whole number of at least 2"):
        gem_core.make("multi:Bargaining-v0", max_turns=1)
