"""The second solvers agree with the labels, and reject changed ones."""

import pytest

import gem_core
from gem_core.errors import ResetNeeded


@pytest.mark.parametrize("id", ["math:Arithmetic-v0", "math:Arithmetic-v0-easy", "math:Arithmetic-v0-hard"])
def test_arithmetic(id):
    env = gem_core.make(id).unwrapped
    for seed in range(100):
        env.reset(seed=seed)
        right = env.oracle_action()
        assert env.verify(right) is True
        assert env.verify(right.replace("}", "1}")) is False
        assert env.verify("no box") is None


@pytest.mark.parametrize("depth", range(6))
def test_proofs(depth):
    env = gem_core.make(f"logic:Proofs-v0-d{depth}").unwrapped
    for seed in range(50):
        env.reset(seed=seed)
        right = env.oracle_action()
        assert env.verify(right) is True
        assert env.verify("\\boxed{False}" if "True" in right else "\\boxed{True}") is False
        assert env.verify("\\boxed{maybe}") is None


def test_an_episode_is_needed():
    with pytest.raises(ResetNeeded):
        gem_core.make("math:Arithmetic-v0").verify("\\boxed{1}")
