"""Every backend returns the same as the inline backend, for any number of workers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_core import EnvSpec, make_vec
from gem_core.vector import AutoresetMode, VectorEnv

SCRIPTED = EnvSpec("test:Scripted-v0", "tests.support:ScriptedEnv")
# episodes of 1, 2, and 3 steps, a truncated one, and one that fails in its second step
VARIETY: list[dict[str, Any]] = [
    {"rewards": [1.0]},
    {"rewards": [0.0, 0.5]},
    {"rewards": [0.1, 0.2, 0.3]},
    {"rewards": [0.0, 0.25], "truncate": True},
    {"rewards": [0.1, 0.2, 0.3], "fail_at": 1},
]
SAME_STEP, NEXT_STEP, DISABLED = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED
CONCURRENT = [
    *[("thread", workers, mode) for workers in (1, 3) for mode in AutoresetMode],
    *[("process", 2, mode) for mode in AutoresetMode],
    ("process", 1, SAME_STEP),
    ("process", 5, DISABLED),  # one worker per environment
]


def build(
    backend: str, workers: int | None = None, autoreset: AutoresetMode = AutoresetMode.SAME_STEP
) -> VectorEnv:
    return make_vec(SCRIPTED, vec_kwargs=VARIETY, backend=backend, max_workers=workers, autoreset=autoreset)  # type: ignore[arg-type]


def play(envs: VectorEnv) -> list[Any]:
    """Return everything that a caller sees in lockstep, then with send and recv if they are supported."""
    seen: list[Any] = [envs.reset(seed=3)]
    for turn in range(7):
        observations, rewards, terminated, truncated, infos = envs.step([f"turn {turn}"] * envs.num_envs)
        seen.append((observations, rewards.tolist(), terminated.tolist(), truncated.tolist(), infos))
        if envs.autoreset is AutoresetMode.DISABLED:
            seen.append(envs.reset(mask=terminated | truncated))
    seen.append(envs.reset(seed=4, mask=[True, True, False, False, True]))
    if envs.autoreset is not AutoresetMode.NEXT_STEP:
        envs.send(dict.fromkeys(range(envs.num_envs), "sent"))
        seen.append(sorted(envs.recv(min_ready=envs.num_envs).items()))
    return seen


@pytest.fixture(scope="module")
def expected() -> dict[AutoresetMode, list[Any]]:
    played = {}
    for mode in AutoresetMode:
        with build("inline", autoreset=mode) as envs:
            played[mode] = play(envs)
    return played


@pytest.mark.parametrize(("backend", "workers", "mode"), CONCURRENT)
def test_results_do_not_depend_on_the_backend(
    backend: str, workers: int, mode: AutoresetMode, expected: dict[AutoresetMode, list[Any]]
) -> None:
    with build(backend, workers, mode) as envs:
        assert envs.backend == backend
        assert play(envs) == expected[mode]


@given(
    st.lists(st.sets(st.integers(0, len(VARIETY) - 1), min_size=1), max_size=12), st.sampled_from([1, 2, 5])
)
@settings(max_examples=30)
def test_an_env_does_not_see_when_the_others_are_stepped(order: list[set[int]], workers: int) -> None:
    turns = Counter(index for indices in order for index in indices)
    with build("inline") as envs, build("thread", workers) as others:
        assert envs.reset(seed=0) == others.reset(seed=0)
        alone = {i: [envs.step({i: "go"}) for _ in range(count)] for i, count in turns.items()}
        seen: dict[int, list[Any]] = {i: [] for i in turns}
        for indices in order:
            others.send(dict.fromkeys(indices, "go"))
            left = len(indices)
            while left:
                got = others.recv()
                left -= len(got)
                for i, result in got.items():
                    seen[i].append(result)
    for i, steps in alone.items():
        assert [tuple(column[0] for column in step) for step in steps] == seen[i]
