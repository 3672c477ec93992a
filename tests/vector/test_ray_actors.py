"""The Ray backend in a real Ray started by this module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gem_core import Env, EnvSpec, make_vec
from gem_core.errors import ConfigError, MissingDependency
from gem_core.vector import AutoresetMode, VectorEnv
from gem_core.vector._slot import rebuilt_seed
from tests.local_ray import local_ray
from tests.vector.envs import OBEDIENT, Obedient
from tests.vector.test_backend import build, play

ray = pytest.importorskip("ray", reason="needs the extra 'ray'")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    root = str(Path(__file__).parents[2])
    with local_ray(runtime_env={"env_vars": {"PYTHONPATH": root}}):
        yield


def obedient(num_envs: int, **kwargs: Any) -> VectorEnv:
    return make_vec(OBEDIENT, num_envs, backend="ray", **kwargs)


def test_ray_must_already_be_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ConfigError, match=r"ray\.init"):
        obedient(1)


def test_missing_ray_is_named_with_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency, match=r"pip install 'gem-core\[ray\]'"):
        obedient(1)


@pytest.mark.usefixtures("cluster")
class TestCluster:
    def test_results_do_not_depend_on_the_backend(self) -> None:
        with build("inline") as envs:
            expected = play(envs)
        with build("ray", workers=2) as envs:
            assert envs.backend == "ray"
            assert play(envs) == expected

    def test_an_environment_that_only_this_process_knows(self) -> None:
        class Local(Env):
            def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
                self.begin_episode(seed)
                return f"local {seed}", {}

        with make_vec(EnvSpec("test:Local-v0", Local), 2, backend="ray", max_workers=1) as envs:
            assert envs.reset(seed=3)[0] == ["local 3", "local 4"]

    def test_dead_and_hung_actors_are_replaced(self) -> None:
        with obedient(2, max_workers=2, timeout=15.0) as envs:
            envs.reset(seed=0)
            step = envs.step(["die", "go"])
            assert step.truncated.tolist() == [True, False]
            assert "WorkerDied: Ray actor (environments 0 to 0)" in step.infos[0]["error"]
            assert step.observations[0] == Obedient().reset(rebuilt_seed(0, 1, 1))[0]
            envs.send({0: "hang", 1: "go"})
            assert list(envs.recv()) == [1]
            assert envs.recv()[0][4]["error"].startswith("TimeoutError: no result from environment 0")
            assert envs.step(["go", "go"]).observations == ["turn 1", "turn 3"]

    def test_bad_arguments_raise_at_once(self) -> None:
        with pytest.raises(TypeError, match="color"):
            obedient(1, color="red")

    def test_close_ends_the_actors(self) -> None:
        envs = obedient(2, max_workers=1, autoreset=AutoresetMode.DISABLED)
        envs.reset()
        pid = envs.step(["go", "go"]).infos[0]["pid"]
        envs.close()
        envs.close()
        with obedient(1) as other:
            other.reset()
            assert other.step(["go"]).infos[0]["pid"] != pid
