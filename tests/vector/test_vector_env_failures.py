"""A failure affects only one environment: its slot is cut and rebuilt, and the others continue."""

from __future__ import annotations

from typing import Any

import pytest

from gem_core import EnvSpec, make_vec
from gem_core.errors import ConfigError, EnvError, ResetNeeded
from gem_core.vector import AutoresetMode, VectorEnv
from gem_core.vector._slot import rebuilt_seed
from tests.vector.envs import OBEDIENT, RELEASE, RETURNS, Obedient, obedient

TIMEOUT = 1.0  # long enough for a normal step on a busy machine


def first_observation(seed: int) -> str:
    return str(Obedient().reset(seed)[0])


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("raise", "RuntimeError: told to raise"),
        ("nan", "EnvError: step() returned the reward nan: expected a finite number"),
        ("inf", "EnvError: step() returned the reward inf: expected a finite number"),
        ("text reward", "EnvError: step() returned the reward '1': expected a finite number"),
        (
            "both flags",
            "EnvError: step() returned both terminated and truncated as True",
        ),
        ("text flag", "EnvError: step() returned the flags 'no' and False: expected two bools"),
        ("no observation", "EnvError: step() returned an observation of type NoneType"),
        ("no info", "info of type NoneType"),
        ("four values", "ValueError: not enough values"),
        ("nothing", "TypeError: cannot unpack"),
    ],
)
def test_a_failed_step_truncates_its_own_episode(action: str, message: str) -> None:
    with obedient() as envs:
        envs.reset(seed=0)
        step = envs.step(["go", action, "go"])
        after = envs.step(["go"] * 3)
    assert step.rewards.tolist() == [0.5, 0.0, 0.5]
    assert step.truncated.tolist() == [False, True, False]
    assert not step.terminated.any()
    info = step.infos[1]
    assert message in info["error"]
    assert "\n" not in info["error"]
    assert (info["final_obs"], info["final_info"]) == ("", {"error": info["error"]})
    assert step.observations[1] == first_observation(rebuilt_seed(1, 0, 1))
    assert after.observations == ["turn 2", "turn 1", "turn 2"]
    assert "error" not in after.infos[1]


@pytest.mark.parametrize(("action", "reward"), [("numpy", 0.5), ("integer", 1.0), ("parts", 0.5)])
def test_numpy_scalars_and_content_parts_are_fine(action: str, reward: float) -> None:
    with obedient(1) as envs:
        envs.reset()
        step = envs.step([action])
        assert (step.observations, step.rewards.tolist()) == ([RETURNS[action][0]], [reward])
        envs.send({0: action})
        result = envs.recv()[0]
        assert [type(value) for value in result[1:4]] == [float, bool, bool]


def test_a_failure_in_next_step_mode_resets_in_the_next_step() -> None:
    with obedient(2, autoreset=AutoresetMode.NEXT_STEP) as envs:
        envs.reset(seed=0)
        step = envs.step(["go", "raise"])
        after = envs.step(["go", None])
    assert (step.observations[1], step.infos[1]) == ("", {"error": "RuntimeError: told to raise"})
    assert after.observations[1] == first_observation(rebuilt_seed(1, 0, 1))
    assert not after.truncated.any()


def test_a_failure_in_disabled_mode_waits_for_reset() -> None:
    with obedient(2, autoreset=AutoresetMode.DISABLED) as envs:
        envs.reset(seed=0)
        assert envs.step(["go", "raise"]).infos[1] == {"error": "RuntimeError: told to raise"}
        with pytest.raises(ResetNeeded):
            envs.step(["go", "go"])
        observations, _ = envs.reset(mask=[False, True])
        assert observations == ["turn 1", first_observation(rebuilt_seed(1, 0, 1))]


def test_a_failed_reset_has_an_error_and_the_next_step_is_cut() -> None:
    with obedient(2, fail_seed=6) as envs:
        observations, infos = envs.reset(seed=5)
        assert observations == [first_observation(5), ""]
        assert infos == [{}, {"error": "ValueError: cannot start with seed 6"}]
        step = envs.step(["go", "go"])
        assert step.truncated.tolist() == [False, True]
        assert step.infos[1]["error"] == "ValueError: cannot start with seed 6"
        assert step.observations[1] == first_observation(rebuilt_seed(6, 0, 1))
        assert envs.step(["go", "go"]).observations == ["turn 2", "turn 1"]


def test_a_failed_reset_in_disabled_mode_must_be_repeated() -> None:
    with obedient(1, fail_seed=6, autoreset=AutoresetMode.DISABLED) as envs:
        assert "error" in envs.reset(seed=6)[1][0]
        with pytest.raises(ResetNeeded):
            envs.step(["go"])
        assert envs.reset(seed=7, mask=[True]) == ([first_observation(7)], [{}])


def test_repairs_are_deterministic_and_forgotten_at_the_next_seeded_reset() -> None:
    def play(envs: VectorEnv) -> list[Any]:
        return [
            envs.reset(seed=0),
            *(envs.step([action]).observations for action in ("raise", "go", "raise")),
        ]

    with obedient(1) as envs:
        once = play(envs)
        assert once[1] != once[3]
        assert play(envs) == once


def test_an_env_that_never_restarts_keeps_reporting_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with obedient(2) as envs:
        envs.reset(seed=0)
        monkeypatch.setattr(Obedient, "reset", lambda self, seed=None, options=None: 1 / 0)
        assert envs.step(["go", "end"]).infos[1]["final_info"] == {"success": True}
        for _ in range(2):
            step = envs.step(["go", "go"])
            assert step.truncated.tolist() == [False, True]
            assert step.infos[1]["error"] == "ZeroDivisionError: division by zero"


def test_an_exit_inside_a_worker_is_a_failure_like_any_other() -> None:
    for backend in ("thread", "process"):
        with obedient(2, backend=backend, max_workers=1) as envs:
            envs.reset(seed=0)
            step = envs.step(["exit", "go"])
            assert step.infos[0]["error"] == "SystemExit: told to exit"
            assert step.observations[1] == "turn 1"


# -- hung and dead workers ----------------------------------------------------------------------


def test_a_hung_thread_is_abandoned_and_its_siblings_continue() -> None:
    with obedient(2, backend="thread", timeout=TIMEOUT, max_workers=1) as envs:
        envs.reset(seed=0)
        envs.send({0: "hang"})
        envs.send({1: "go"})  # queued after the hung one in a pool of one thread
        got = envs.recv(min_ready=2)
        assert got[1][0] == "turn 1"
        observation, reward, terminated, truncated, info = got[0]
        assert (reward, terminated, truncated) == (0.0, False, True)
        assert info["error"] == "TimeoutError: no result within 1 s"
        assert observation == first_observation(rebuilt_seed(0, 1, 1))
        assert envs.step(["go", "go"]).observations == ["turn 1", "turn 2"]


def test_a_hung_worker_process_is_killed_and_all_its_envs_are_cut() -> None:
    with obedient(4, backend="process", timeout=TIMEOUT, max_workers=2) as envs:
        envs.reset(seed=0)
        before = [info["pid"] for info in envs.step(["go"] * 4).infos]
        assert before[0] == before[1] != before[2] == before[3]
        envs.send({0: "hang", 2: "go"})
        got = envs.recv(min_ready=2)
        assert got[2][0] == "turn 2"
        assert got[0][4]["error"].startswith("TimeoutError: no result from environment 0 within 1 s")
        assert got[0][0] == first_observation(rebuilt_seed(0, 1, 1))
        step = envs.step(["go"] * 4)  # environment 1 shared the worker: a reported loss
        assert step.truncated.tolist() == [False, True, False, False]
        assert step.infos[1]["error"] == got[0][4]["error"]
        assert step.observations[1] == first_observation(rebuilt_seed(1, 1, 1))
        after = envs.step(["go"] * 4)
        assert after.observations == ["turn 2", "turn 1", "turn 4", "turn 3"]
        assert after.infos[0]["pid"] not in before


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_a_dead_worker_process_is_replaced(mode: AutoresetMode) -> None:
    with obedient(2, backend="process", max_workers=2, autoreset=mode) as envs:
        envs.reset(seed=0)
        step = envs.step(["die", "go"])
        assert step.truncated.tolist() == [True, False]
        assert "WorkerDied: worker process" in step.infos[0]["error"]
        assert "exit code 7" in step.infos[0]["error"]
        if mode is AutoresetMode.DISABLED:
            assert envs.reset(mask=[True, False])[0][0] == first_observation(rebuilt_seed(0, 1, 1))
        else:
            assert step.observations[0] == first_observation(rebuilt_seed(0, 1, 1))
        assert envs.step(["go", "go"]).observations == ["turn 1", "turn 2"]
        assert envs.reset(seed=0)[0] == [first_observation(0), first_observation(1)]


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_a_reset_that_hangs_is_answered(backend: str) -> None:
    kwargs = [{"hang_reset": True}, {}]
    with make_vec(OBEDIENT, vec_kwargs=kwargs, backend=backend, timeout=TIMEOUT, max_workers=2) as envs:  # type: ignore[arg-type]
        observations, infos = envs.reset(seed=0)
        assert observations == ["", first_observation(1)]
        assert infos[0]["error"].startswith("TimeoutError")
        step = envs.step(["go", "go"])  # the repair hangs, too
        assert step.observations == ["", "turn 1"]
        assert step.truncated.tolist() == [True, False]
        assert step.infos[0]["final_info"] == {"error": step.infos[0]["error"]}
        RELEASE.set()


def test_a_result_that_cannot_be_sent_back_is_a_failure_of_that_env() -> None:
    with obedient(2, backend="process", max_workers=1) as envs:
        envs.reset(seed=0)
        step = envs.step(["unsendable", "go"])
        assert "cannot be sent to another process" in step.infos[0]["error"]
        assert step.observations == [first_observation(rebuilt_seed(0, 0, 1)), "turn 1"]


# -- failures of make_vec -------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["inline", "thread", "process", "auto"])
def test_bad_arguments_raise_at_once(backend: str) -> None:
    with pytest.raises(TypeError, match="color"):
        obedient(2, backend=backend, color="red")


def test_an_error_that_cannot_be_sent_keeps_its_text() -> None:
    spec = EnvSpec("test:Unbuildable-v0", "tests.vector.envs:Unbuildable")
    with pytest.raises(EnvError, match="Local: no such board"):
        make_vec(spec, 2, backend="process")


def test_a_spec_that_cannot_be_sent_is_rejected_with_advice() -> None:
    with pytest.raises(ConfigError, match="module:attribute"):
        make_vec(EnvSpec("test:Lambda-v0", lambda: Obedient()), 2, backend="process")
