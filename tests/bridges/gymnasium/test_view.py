"""Our environments in Gymnasium, judged by its own checker."""

from __future__ import annotations

import pytest

import gem_core
from gem_core.errors import ConfigError

gymnasium = pytest.importorskip("gymnasium")
from gymnasium.utils.env_checker import check_env  # noqa: E402

from gem_bridges.gymnasium import GemEnv, register_envs  # noqa: E402

IDS = ["game:GuessTheNumber-v0-easy", "game:Mastermind-v0", "math:Arithmetic-v0", "multi:KuhnPoker-v0"]


@pytest.mark.filterwarnings("error")
@pytest.mark.filterwarnings("ignore:.*For Box action spaces")
@pytest.mark.parametrize("id", IDS)
def test_the_checker_of_gymnasium_passes(id):
    check_env(GemEnv(id), skip_render_check=True)


@pytest.mark.parametrize("id", IDS)
def test_episodes_equal_ours(id):
    (name,) = register_envs(id)
    assert register_envs(id) == [name] == [f"gem/{id.replace(':', '.')}"]
    theirs, ours = gymnasium.make(name, render_mode="ansi"), gem_core.make(id)
    for seed in range(5):
        text, _ = theirs.reset(seed=seed)
        ours.reset(seed=seed)
        assert theirs.render() == text
        ended = False
        while not ended:
            action = theirs.action_space.sample()
            assert action == ours.sample_random_action()
            _, *result = theirs.step(action)
            assert tuple(result) == ours.step(action)[1:]
            ended = result[1] or result[2]


def test_a_vector_environment_of_gymnasium_plays_it():
    (name,) = register_envs("game:GuessTheNumber-v0-easy")
    envs = gymnasium.make_vec(name, 3, vectorization_mode="sync")
    texts, _ = envs.reset(seed=1)
    assert len(set(texts)) == 1
    rewards = envs.step(("\\boxed{5}", "none", "\\boxed{6}"))[1]
    assert rewards[1] < 0
    envs.close()


def test_spaces_without_a_text_form_are_rejected():
    with pytest.raises(ConfigError, match="has several agents, but Gymnasium plays one"):
        GemEnv("multi:KuhnPoker-v0", opponent="self")
    (id,) = gem_core.list_envs("vision:*")[:1] or ["none"]
    with pytest.raises(ConfigError, match="shows images, which a text space cannot hold"):
        GemEnv(id)
