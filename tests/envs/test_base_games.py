"""Properties of every registered game, played by its own random and oracle players."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gem_core
from gem_envs import TurnBasedEnv

IDS = gem_core.list_envs("game:*")
FAMILIES = sorted({id.removeprefix("game:").partition("-v0")[0] for id in IDS})


def sized(family, size):
    """Return the id of a size of a game, or its only id."""
    id = f"game:{family}-v0"
    return f"{id}-{size}" if f"{id}-{size}" in IDS else id


def play(env, seed, choose=None, turns=10_000):
    """Return (observation, reward, terminated, truncated, info) of each step of one episode."""
    steps = [(*env.reset(seed=seed),)]
    for _ in range(turns):
        action = env.sample_random_action() if choose is None else choose(env)
        steps.append((action, *env.step(action)))
        if steps[-1][3] or steps[-1][4]:
            break
    return steps


def test_a_game_of_several_sizes_has_all_variants():
    sizes = {family: [id for id in IDS if id.startswith(f"game:{family}-v0")] for family in FAMILIES}
    several = {family: ids for family, ids in sizes.items() if len(ids) > 1}
    assert len(several) >= 13
    for family, ids in several.items():
        for variant in ("", "-easy", "-hard", "-random"):
            assert f"game:{family}-v0{variant}" in ids, (
                f"register game:{family}-v0{variant} in gem_envs/_games/__init__.py: it has one id or "
                "one for each of the four sizes"
            )
    for id in IDS:
        assert gem_core.spec(id).description, f"{id} has no description: write it in the table of ids"


@pytest.mark.parametrize("id", IDS)
def test_random_play_is_legal_and_ends_within_the_limit(id):
    env = gem_core.make(id)
    for seed in range(30):
        steps = play(env, seed)
        assert len(steps) - 1 <= env.turn_limit
        for _, _, reward, terminated, truncated, info in steps[1:]:
            assert math.isfinite(reward)
            assert info["invalid"] is None
            assert not (terminated and truncated)
            assert ("success" in info) == (terminated or truncated) == ("metrics" in info)
        assert 0 <= info["metrics"]["progress"] <= 1
        assert sum(step[2] for step in steps[1:]) <= (env.max_return or 1.0) + 1e-9


@pytest.mark.parametrize("form", [r"\text{%s}", "$%s$", r"\textbf{%s}.", "**%s**"])
@pytest.mark.parametrize("family", FAMILIES)
def test_decoration_around_a_move_changes_nothing(family, form):
    env, twin = gem_core.make(sized(family, "easy")), gem_core.make(sized(family, "easy"))
    env.reset(seed=0)
    twin.reset(seed=0)
    for _ in range(3):
        action = env.sample_random_action()
        expected = env.step(action)
        assert twin.step(f"\\boxed{{{form % action[7:-1]}}}")[:4] == expected[:4]
        if expected[2] or expected[3]:
            break


@pytest.mark.parametrize("id", IDS)
def test_same_seed_same_episode_and_other_seeds_differ(id):
    env, twin = gem_core.make(id), gem_core.make(id)
    random.seed(1)
    first = play(env, 3)
    random.seed(2)
    random.random()
    before = random.getstate()
    play(twin, 99)
    assert play(twin, 3) == first
    assert random.getstate() == before  # the caller's generator is unchanged
    assert any(play(twin, seed) != first for seed in range(4, 9))


@pytest.mark.parametrize("id", IDS)
def test_resets_without_a_seed_continue_with_the_same_stream(id):
    env, twin = gem_core.make(id), gem_core.make(id)
    play(env, 3)
    play(twin, 3)
    assert [play(env, None) for _ in range(3)] == [play(twin, None) for _ in range(3)]


@pytest.mark.parametrize("id", IDS)
def test_state_survives_json_and_both_sides_play_on_alike(id):
    env = gem_core.make(id)
    for seed in range(3):
        turns = len(play(env, seed)) - 1
        play(env, seed, turns=turns // 2)
        if turns < 2:
            continue
        state = json.loads(json.dumps(env.get_state()))
        fork = gem_core.make(id)
        fork.set_state(state)
        assert fork.get_state() == state
        for choose in (type(env).sample_random_action, type(env).oracle_action):
            env.set_state(state)
            fork.set_state(state)
            assert choose(env) == choose(fork)
            for _ in range(100):
                action = choose(env) or env.sample_random_action()
                step = env.step(action)
                assert fork.step(action) == step
                if step[2] or step[3]:
                    break


@pytest.mark.parametrize("id", IDS)
def test_a_state_is_a_copy_and_spawn_shares_nothing(id):
    env = gem_core.make(id)
    play(env, 1, turns=1)
    if not env._running:
        env.reset(seed=1)
    state = env.get_state()
    frozen = json.dumps(state)
    sibling = env.spawn(same_state=True)
    while not any(sibling.step(sibling.sample_random_action())[2:4]):
        pass
    assert json.dumps(env.get_state()) == json.dumps(state) == frozen


@pytest.mark.parametrize("id", IDS)
def test_players_change_nothing(id):
    env, twin = gem_core.make(id), gem_core.make(id)
    env.reset(seed=4)
    twin.reset(seed=4)
    action = env.sample_random_action()
    for _ in range(3):
        env.oracle_action()
        env.sample_random_action()
    assert env.step(action) == twin.step(action)
    fields = [(e.get_state()["fields"], e.get_state()["random"]) for e in (env, twin)]
    assert fields[0] == fields[1]


@pytest.mark.parametrize("id", IDS)
def test_fields_hold_all_that_an_episode_changes(id):
    """Forks would differ if play changed attributes that get_state omits."""
    env = gem_core.make(id)
    made = set(vars(env))
    play(env, 0)
    assert set(vars(env)) - made <= set(env.state_fields)


def test_unknown_arguments_are_rejected():
    for family in FAMILIES:
        with pytest.raises(TypeError, match="max_turn"):
            gem_core.make(f"game:{family}-v0", max_turn=3)


WORDS = [
    *("reveal", "flag", "up", "LEFT", "down", "cat", "A", "C", "a", "e", "0", "1", "2", "3", "7", "99", "-1"),
    *(",", "{", "}", "\\", "\n", "\u0663", "<PREV_PAGE>"),
]
content = st.text(max_size=20) | st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)
responses = st.lists(content.map(lambda text: f"\\boxed{{{text}}}") | st.text(), min_size=1, max_size=12)


@pytest.mark.once
@pytest.mark.parametrize("id", [sized(family, "random") for family in FAMILIES])
@settings(max_examples=60)
@given(actions=responses, seed=st.integers(0, 1000))
def test_no_text_breaks_a_game(id, actions, seed):
    env = gem_core.make(id)
    env.reset(seed=seed)
    for action in actions:
        before = {name: json.dumps(getattr(env, name)) for name in env.state_fields if name != "turn"}
        observation, reward, terminated, truncated, info = env.step(action)
        assert isinstance(observation, str)
        json.dumps(info)
        assert not (terminated and truncated)
        if info["invalid"] == "format":
            assert (reward, terminated) == (env.format_error_reward, env.format_error_ends)
            assert info.get("success", False) is False
        if info["invalid"] == "illegal":
            assert (reward, terminated) == (0.0 if env.format_error_ends else env.format_error_reward, False)
        if info["invalid"] is not None:
            assert before == {name: json.dumps(getattr(env, name)) for name in before}
        if terminated or truncated:
            break
        assert env.turn <= env.turn_limit
        env.sample_random_action()


@pytest.mark.parametrize("id", IDS)
def test_junk_earns_no_more_than_the_format_error(id):
    env = gem_core.make(id)
    for junk in ("", "I do not know.", "\\boxed{}", "\\boxed{?}", "\x00", "\\boxed{" * 1000):
        env.reset(seed=0)
        assert env.step(junk)[1:4] == (env.format_error_reward, env.format_error_ends, False)


def test_every_game_is_a_game():
    assert all(isinstance(gem_core.make(id), TurnBasedEnv) for id in IDS)


PLANES = "".join(
    chr(plane * 0x10000 + offset) for plane in range(17) for offset in (0x41, 0x3B1, 0xD800, 0xFFFD)
)


@pytest.mark.parametrize("id", [sized(family, "random") for family in FAMILIES])
def test_huge_text_and_every_plane(id):
    env = gem_core.make(id)
    for content in ("a" * 2_000_000, "a " * 1_000_000, "\u0661" * 2_000_000, PLANES, *PLANES):
        env.reset(seed=0)
        observation, reward, _, _, info = env.step(f"\\boxed{{{content}}}")
        assert len(observation) < 1000
        assert info["invalid"] in ("format", "illegal") or len(content) == 1
        assert reward <= 0 or info["invalid"] is None
