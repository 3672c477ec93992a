"""OpenEnv's own client, validator, and server; they run in the nox session `openenv`."""

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import gem_core
from gem_bridges.openenv._package import write_package
from gem_core.errors import ConfigError, EnvError
from tests.bridges.openenv.serving import GUESS, serving
from tests.bridges.openenv.test_env import WORDLE, native_episode, played

pytest.importorskip("openenv")

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from openenv.core.generic_client import GenericEnvClient


class Guess(Action):
    message: str


class Told(Observation):
    text: str = ""


class Guessing(Environment):
    """Our environment, written for OpenEnv."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.env = gem_core.make(GUESS)
        self.steps = 0

    def reset(self, seed=None, episode_id=None, **kwargs) -> Told:
        self.steps = 0
        return Told(text=self.env.reset(seed=seed)[0])

    def step(self, action: Guess, timeout_s=None, **kwargs) -> Told:
        if action.message == "raise":
            raise ValueError("odd")
        if action.message == "nan":
            return Told(text="nan", reward=float("nan"))
        text, reward, terminated, truncated, _ = self.env.step(action.message)
        self.steps += 1
        return Told(text=text, reward=reward, done=terminated or truncated)

    @property
    def state(self):
        return State(step_count=self.steps)


@pytest.fixture(scope="module")
def theirs():
    """The URL of OpenEnv's own server."""
    import uvicorn

    app = create_app(Guessing, Guess, Told, env_name="guessing", max_concurrent_envs=16)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(30)


@pytest.mark.parametrize("id", [GUESS, WORDLE])
def test_its_client_plays_what_is_played_here(id):
    async def main(url):
        async with GenericEnvClient(base_url=url) as client:
            for seed in range(5):
                actions, steps = native_episode(id, seed)
                result = await client.reset(seed=seed, episode_id=f"episode {seed}")
                assert result.observation["text"] == steps[0]
                for index, (action, step) in enumerate(zip(actions, steps[1:], strict=True)):
                    text, reward, terminated, truncated, info = step
                    result = await client.step({"message": action})
                    assert (result.observation["text"], result.reward) == (text, reward)
                    assert result.done == (terminated or truncated)
                    assert result.observation.get("truncated", False) == truncated
                    assert result.observation.get("success") == info.get("success")
                    state = await client.state()
                    assert (state["episode_id"], state["step_count"]) == (f"episode {seed}", index + 1)
                with pytest.raises(RuntimeError, match="send a reset"):
                    await client.step({"message": "after the end"})

    with serving(id) as running:
        asyncio.run(main(running.url))


def test_its_sync_client_sends_the_token():
    with serving(GUESS, token="secret") as running:
        headers = {"Authorization": "Bearer secret"}
        with GenericEnvClient(base_url=running.url, headers=headers).sync() as client:
            assert "hidden number" in client.reset(seed=1).observation["text"]


def test_its_validator_accepts_the_server():
    with serving(GUESS) as running:
        report = validate("--url", running.url, "--json")
    assert report.returncode == 0, report.stdout + report.stderr
    criteria = json.loads(report.stdout)["criteria"]
    assert len(criteria) >= 6
    assert all(criterion["passed"] for criterion in criteria)


def test_its_validator_accepts_an_exported_package(tmp_path):
    files = write_package(GUESS, tmp_path / "guess", {"max_turns": 3})
    assert tmp_path / "guess" / "openenv.yaml" in files
    report = validate(str(tmp_path / "guess"), "--level", "static")
    assert report.returncode == 0, report.stdout + report.stderr


def validate(*arguments):
    command = Path(sys.executable).parent / "openenv"
    return subprocess.run([command, "validate", *arguments], capture_output=True, text=True, check=False)


def without_extras(steps):
    """Return steps of ours without what OpenEnv does not carry: truncation, reasons, and metrics."""
    kept = [steps[0]]
    for text, reward, terminated, truncated, info in steps[1:]:
        kept.append((text, reward, terminated or truncated, info.get("success")))
    return kept


@pytest.mark.parametrize("source", ["json:dumps", f"{__name__}:GUESS"])
def test_an_import_path_of_something_else_is_reported_in_one_line(source):
    with pytest.raises(ConfigError, match=r"has no step\(\): expected 'module:Class'"):
        gem_core.make(f"openenv:{source}")


@pytest.mark.parametrize("where", ["server", "process"])
def test_its_environments_play_here_with_equal_rewards_and_ends(theirs, where):
    source = theirs if where == "server" else f"{__name__}:Guessing"
    with gem_core.make(f"openenv:{source}") as env:
        for seed in range(5):
            actions, _ = native_episode(GUESS, seed)
            native = gem_core.make(GUESS)
            expected = [native.reset(seed=seed)[0], *[native.step(action)[:3] for action in actions]]
            steps = played(env, seed, actions)
            assert steps[0] == expected[0]
            for (text, reward, terminated, truncated, info), (text_, reward_, _) in zip(
                steps[1:], expected[1:], strict=True
            ):
                assert (text, reward, truncated) == (text_, reward_, False)
                assert info.get("success") == (reward == 1.0 if terminated else None)
            assert steps[-1][2]


@pytest.mark.parametrize("where", ["server", "process"])
@pytest.mark.parametrize(("action", "problem"), [("raise", "odd"), ("nan", "nan")])
def test_its_failures_fail_the_episode(theirs, where, action, problem):
    source = theirs if where == "server" else f"{__name__}:Guessing"
    with gem_core.make(f"openenv:{source}") as env:
        env.reset(seed=0)
        if where == "server" and action == "nan":  # its server sends null, which is not a reward
            assert env.step(action)[1] == 0.0
            return
        with pytest.raises(EnvError, match=problem):
            env.step(action)
