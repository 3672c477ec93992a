from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gem_core
from gem_core import Env, wrap
from gem_core.errors import ConfigError
from tests.support import ScriptedEnv

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


class Telling(Env):
    """Returns the given observations and infos in order; the last one ends the episode."""

    state_fields = ("turn",)

    def __init__(self, told: list[tuple[Any, dict[str, Any]]]) -> None:
        self.told = told
        self.turn = 0

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.begin_episode(seed)
        self.turn = 0
        observation, info = self.told[0]
        return observation, dict(info)

    def step(self, action: str) -> Any:
        self.require_reset()
        self.turn += 1
        observation, info = self.told[self.turn]
        done = self.turn == len(self.told) - 1
        if done:
            self.end_episode()
        return observation, 0.0, done, False, dict(info)


def telling(*observations: Any, **info: Any) -> Telling:
    return Telling([(observation, info) for observation in observations])


def shown(env: Env, actions: Iterable[str]) -> list[Any]:
    """Return the observations of an episode with the actions a, b, ..."""
    return [env.reset()[0], *[env.step(action)[0] for action in actions]]


def test_concat_shows_all_observations() -> None:
    env = wrap(telling("rules", "one", "two"), "concat")
    assert shown(env, "ab") == ["rules", "rules\none", "rules\none\ntwo"]


def test_concat_with_action_interleaves() -> None:
    env = wrap(telling("rules", "one", "two"), "concat_with_action")
    assert shown(env, "ab") == ["rules", "rules\na\none", "rules\na\none\nb\ntwo"]


@pytest.mark.parametrize(
    ("wrapper", "last"),
    [
        ("concat(max_history=1)", "rules\nfour"),
        ("concat(max_history=2)", "rules\nthree\nfour"),
        ("concat(max_history=9)", "rules\none\ntwo\nthree\nfour"),
        ("concat_with_action(max_history=1)", "rules\nd\nfour"),
        ("concat_with_action(max_history=2)", "rules\nc\nthree\nd\nfour"),
    ],
)
def test_bounded_history_keeps_the_instructions_and_the_last_exchanges(wrapper: str, last: str) -> None:
    env = wrap(telling("rules", "one", "two", "three", "four"), wrapper)
    assert shown(env, "abcd")[-1] == last


@settings(max_examples=50)
@given(
    st.lists(st.text(max_size=5), min_size=1, max_size=12),
    st.none() | st.integers(1, 5),
    st.booleans(),
)
def test_history_equals_its_definition(texts: list[str], max_history: int | None, with_action: bool) -> None:
    name = "concat_with_action" if with_action else "concat"
    env = wrap(telling(*texts), f"{name}(max_history={max_history})")
    actions = [f"action {number}" for number in range(len(texts) - 1)]
    exchanges = [([a, o] if with_action else [o]) for a, o in zip(actions, texts[1:], strict=True)]
    observation, _ = env.reset()
    assert observation == texts[0]
    for turn, action in enumerate(actions, 1):
        observation, *_ = env.step(action)
        kept = exchanges[:turn] if max_history is None else exchanges[:turn][-max_history:]
        assert observation == "\n".join([texts[0], *[entry for exchange in kept for entry in exchange]])


@pytest.mark.parametrize("value", [0, -1, 1.5, "3"])
def test_bad_max_history_is_rejected(value: Any) -> None:
    with pytest.raises(ConfigError, match="expected a whole number of at least 1, or None"):
        wrap(ScriptedEnv(), f"concat(max_history={value!r})")


def test_prefix_and_suffix_are_rendered_once_and_removed_from_info() -> None:
    env = wrap(telling("rules", "one", prefix="BOARD", suffix="MOVE?", own=1), "concat")
    observation, info = env.reset()
    assert observation == "BOARD\nrules\nMOVE?"
    assert info == {"own": 1}
    observation, _, _, _, info = env.step("a")
    assert observation == "BOARD\nrules\nMOVE?\nBOARD\none\nMOVE?"
    assert info == {"own": 1}
    two = wrap(telling("rules", "one", prefix="BOARD"), "concat, concat")
    assert shown(two, "a") == ["BOARD\nrules", "BOARD\nrules\nBOARD\nrules\nBOARD\none"]


def test_content_parts_are_kept() -> None:
    env = wrap(
        telling("rules", [IMAGE, {"type": "text", "text": "look"}], "end", suffix="?"), "concat_with_action"
    )
    first, second, third = shown(env, "ab")
    assert first == "rules\n?"
    assert second == [
        {"type": "text", "text": "rules\n?"},
        {"type": "text", "text": "a"},
        IMAGE,
        {"type": "text", "text": "look"},
        {"type": "text", "text": "?"},
    ]
    assert third == [*second, {"type": "text", "text": "b"}, {"type": "text", "text": "end\n?"}]


def test_a_new_episode_starts_a_new_history() -> None:
    env = wrap(telling("rules", "one", "two"), "concat")
    shown(env, "a")
    assert env.reset()[0] == "rules"


def test_state_survives_json_and_forks_share_nothing() -> None:
    env = gem_core.make("game:GuessTheNumber-v0", wrappers="concat_with_action(max_history=3)")
    env.reset(seed=0)
    env.step(r"\boxed{7}")
    state = json.loads(json.dumps(env.get_state()))
    fork, other = env.spawn(same_state=True), env.spawn()
    other.set_state(state)
    results = [e.step(r"\boxed{8}") for e in (env, fork, other)]
    assert results[0] == results[1] == results[2]
    assert r"\boxed{7}" in results[0][0]
    fork.step(r"\boxed{9}")
    assert r"\boxed{9}" not in env.step(r"\boxed{5}")[0]


def test_reset_from_a_state_takes_up_the_history() -> None:
    env = gem_core.make("game:GuessTheNumber-v0", wrappers="concat_with_action, time_limit(max_turns=3)")
    env.reset(seed=3)
    env.step(r"\boxed{7}")
    state = env.get_state()
    expected = env.step(r"\boxed{8}")
    other = env.spawn()
    other.reset(options={"state": state})
    assert other.step(r"\boxed{8}") == expected
    with pytest.raises(ConfigError, match="not a state of"):
        other.reset(options={"state": env.unwrapped.get_state()})
