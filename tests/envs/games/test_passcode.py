from __future__ import annotations

import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_envs._games.passcode import Passcode


def start(rooms: int = 3, codes: int = 9) -> Passcode:
    env = Passcode(rooms=rooms, codes=codes)
    env.reset(seed=0)
    env.code = 7
    env.signs = ["A sign shows the code: 7.", *["A sign shows the price: 2."] * (rooms - 1)]
    return env


def walk(env: Passcode, rooms: int) -> list[str]:
    return [env.step(r"\boxed{walk}")[0] for _ in range(rooms)]


def test_golden_game() -> None:
    env = start()
    assert walk(env, 3) == [
        "A sign shows the code: 7.",
        "A sign shows the price: 2.",
        "A sign shows the price: 2.\nYou are at the door.",
    ]
    observation, reward, terminated, truncated, info = env.step(r"\boxed{7}")
    assert (observation, reward, terminated, truncated) == ("The door opens.", 1.0, True, False)
    assert (info["success"], info["metrics"]) == (True, {"progress": 1.0})


def test_a_wrong_code_is_the_only_try() -> None:
    env = start()
    walk(env, 3)
    observation, reward, terminated, _, info = env.step(r"\boxed{6}")
    assert (observation, reward, terminated) == ("The door stays closed for good.", 0.0, True)
    assert info["success"] is False


@pytest.mark.parametrize(
    ("rooms", "move", "why"),
    [
        (1, "7", "The door is not here. Walk on."),
        (3, "Walk", "The door is closed. Give the code."),
        (3, "0", "Codes are from 1 to 9."),
        (3, "10", "Codes are from 1 to 9."),
        (3, "-7", "Codes are from 1 to 9."),
    ],
)
def test_illegal_moves(rooms: int, move: str, why: str) -> None:
    env = start()
    walk(env, rooms)
    *step, info = env.step(rf"\boxed{{{move}}}")
    assert step[:3] == [why, 0.0, False]
    assert info["invalid"] == "illegal"
    assert env.room == rooms


@pytest.mark.parametrize("move", ["run", "", "walk on", "7 8"])
def test_other_texts_are_no_moves(move: str) -> None:
    assert start().step(rf"\boxed{{{move}}}")[4]["invalid"] == "format"


@pytest.mark.parametrize("id", ["game:Passcode-v0", "game:Passcode-v0-easy", "game:Passcode-v0-hard"])
def test_one_sign_in_the_first_third_shows_the_code(id: str) -> None:
    env, codes = gem_core.make(id), set()
    for seed in range(50):
        env.reset(seed=seed)
        places = [room for room, sign in enumerate(env.signs) if "the code:" in sign]
        assert len(places) == 1
        assert places[0] <= len(env.signs) // 3
        assert env.signs[places[0]] == f"A sign shows the code: {env.code}."
        codes.add(env.code)
    assert len(codes) >= 4


def test_sizes_are_checked() -> None:
    for sizes in ({"rooms": 0}, {"codes": 1}, {"rooms": None}):
        with pytest.raises(ConfigError):
            Passcode(**sizes)
