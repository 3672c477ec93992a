"""Sizes that are drawn at each reset are None together: no argument of a game is None, or given, alone."""

from __future__ import annotations

import pytest

import gem_core
from gem_core.errors import ConfigError

DRAWN = [
    (id, name)
    for id in gem_core.list_envs("game:*-random")
    for name, value in gem_core.spec(id).kwargs.items()
    if value is None
]


def test_every_game_draws_two_sizes_or_more() -> None:
    games = [id for id, _ in DRAWN]
    assert len(set(games)) >= 13
    assert all(games.count(game) >= 2 for game in games)


@pytest.mark.parametrize(("id", "name"), DRAWN)
def test_one_size_alone_is_not_drawn(id: str, name: str) -> None:
    fixed = id.removesuffix("-random")
    with pytest.raises(ConfigError, match=rf"{name}=None.*: expected values for all, or None for all"):
        gem_core.make(fixed, **{name: None})
    with pytest.raises(ConfigError, match="expected values for all, or None for all"):
        gem_core.make(id, **{name: gem_core.spec(fixed).kwargs[name]})
