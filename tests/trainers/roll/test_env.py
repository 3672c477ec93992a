"""The environments named in a YAML, and the objects that gem-llm creates for them; runs without ROLL."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import gem
import pytest
from gem_roll._env import PREFIX, read_env_type, register_placeholder
from gem_roll._options import check_tag
from omegaconf import DictConfig

import gem_core
from gem_core import Env
from gem_core.errors import ConfigError, UnknownEnv
from gem_core.tasks import EnvChoice
from tests.support import ImageEnv

GUESS = "game:GuessTheNumber-v0-easy"


def checked(env_id: str = GUESS, **arguments: Any) -> tuple[EnvChoice, str]:
    """Return the environment of a tag and its wrappers, from a config like ROLL's."""
    section = {
        "env_type": PREFIX + env_id,
        "env_manager_cls": "gem_roll.GemTrajEnvManager",
        "env_config": arguments,
    }
    return check_tag(SimpleNamespace(custom_envs=DictConfig({"Tag": section})), "Tag")


def test_gem_llm_makes_the_placeholder_in_every_thread() -> None:
    """ROLL creates the env managers of a worker in threads."""
    with ThreadPoolExecutor(4) as threads:
        names = set(threads.map(lambda _: register_placeholder(), range(4)))
    (name,) = names
    assert gem.make(env_id=name).env_id == name
    assert type(gem.make(GUESS)).__module__.startswith("gem.envs")  # it keeps its own names


def test_an_unknown_id_has_neighbors() -> None:
    with pytest.raises(UnknownEnv, match=r"Did you mean game:GuessTheNumber"):
        checked("game:GuesTheNumber-v0-easy")


def test_an_unknown_argument_is_rejected() -> None:
    with pytest.raises(ConfigError, match="accepted keyword arguments"):
        checked(high=4)


@pytest.mark.parametrize("text", [GUESS, "sokoban", "None"])
def test_a_third_party_environment_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match=f"write {PREFIX}<id>"):
        read_env_type(text, "custom_envs.Guess.env_type")


class Keeping(Env):
    """Stores an argument."""

    def __init__(self, nested: Any = None) -> None:
        self.nested = nested


def test_the_arguments_come_from_a_yaml() -> None:
    """OmegaConf has its own dicts and lists."""
    gem_core.register("test:Keeping", Keeping)
    source, wrappers = checked("test:Keeping", nested={"a": {"b": [1, 2]}}, wrappers="concat_with_action")
    nested = source.env_kwargs["nested"]
    assert (type(nested), type(nested["a"]["b"]), nested) == (dict, list, {"a": {"b": [1, 2]}})
    assert wrappers == "concat_with_action"


@pytest.mark.skipif(not os.environ.get("ROLL_HOME"), reason="ROLL_HOME names no checkout of ROLL")
def test_roll_imports_the_same_gem() -> None:
    import roll.pipeline.agentic.env

    assert roll.pipeline.agentic.env.gem is gem


def test_images_are_rejected_when_the_env_is_built() -> None:
    gem_core.register("test:RollImages", ImageEnv)
    with pytest.raises(
        ConfigError, match="test:RollImages shows images, but ROLL's env managers support text"
    ):
        checked("test:RollImages")
