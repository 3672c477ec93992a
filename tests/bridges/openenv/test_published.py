"""OpenEnv's own environments in this process, and its validator on a package that runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gem_core
from gem_bridges.openenv._package import write_package
from tests.bridges.openenv.serving import GUESS
from tests.bridges.openenv.test_env import played

pytest.importorskip("openenv")

from fastmcp import FastMCP
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.types import Action, Observation, State
from openenv.validation.runner import run_validation
from openenv.validation.types import ProviderCapability


def test_the_environment_that_openenv_init_writes_plays_in_this_process(tmp_path, monkeypatch):
    command = [Path(sys.executable).parent / "openenv", "init", "sample_env", "--output-dir", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    monkeypatch.syspath_prepend(tmp_path)
    path = "sample_env.server.sample_env_environment:SampleEnvironment"
    with gem_core.make(f"openenv:{path}", field="message", show="echoed_message", max_turns=2) as env:
        observation, _ = env.reset(seed=0)
        assert "ready" in observation
        text, reward, terminated, truncated, _ = env.step("four")
        assert (text, terminated, truncated) == ("four", False, False)
        assert reward == pytest.approx(0.4)  # a tenth per character, says its source
        assert env.step("x")[2:4] == (False, True)


class Echoing(MCPEnvironment):
    """An environment of tools, written like OpenEnv's echo environment."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        tools = FastMCP("echo")

        @tools.tool
        def echo(message: str) -> str:
            """Return the message."""
            return message

        super().__init__(tools)

    def reset(self, seed=None, episode_id=None, **kwargs) -> Observation:
        return Observation(done=False, reward=0.0, metadata={"message": "ready"})

    def _step_impl(self, action: Action, timeout_s=None, **kwargs) -> Observation:
        raise ValueError("only tools")

    @property
    def state(self):
        return State()


def test_tools_of_an_environment_in_this_process_are_called():
    with gem_core.make(f"openenv:{__name__}:Echoing", max_turns=3) as env:
        call = '\\boxed{{"tool_name": "echo", "arguments": {"message": "four"}}}'
        first, step, unknown = played(env, 0, [call, call.replace("echo", "shout")])
        assert "ready" in first
        assert "four" in step[0]
        assert unknown[4]["invalid"] == "illegal"


PUBLISHED = Path(os.environ.get("OPENENV_HOME", "")) / "envs"
"""The published environments are not on PyPI; a checkout of OpenEnv has them."""


@pytest.mark.skipif("OPENENV_HOME" not in os.environ, reason="needs OPENENV_HOME, a checkout of OpenEnv")
@pytest.mark.parametrize(
    "path",
    [
        "echo_env.server.echo_environment:EchoEnvironment",
        "connect4_env.server.connect4_environment:Connect4Environment",
        "grid_world_env.server.grid_world_environment:GridWorldEnvironment",
        "maze_env.server.maze_env_environment:MazeEnvironment",
    ],
)
def test_published_environments_play_in_this_process(path, monkeypatch):
    monkeypatch.syspath_prepend(PUBLISHED)
    with gem_core.make(f"openenv:{path}", max_turns=5) as env:
        env.reset(seed=0)
        for _ in range(5):
            _, _, terminated, truncated, info = env.step(env.sample_random_action())
            assert info["invalid"] is None
            if terminated or truncated:
                break


class ProcessProvider:
    """Runs a package for the validator as a process instead of a container."""

    name = "process"
    capabilities = frozenset({ProviderCapability.IMAGE_BUILD})
    supported_network_modes = frozenset({"no-network"})

    def build(self, root, execution):
        self.root = root
        return "sha256:" + "0" * 64

    def start(self, spec):
        code = (
            "import gem_lab._cli as cli; run = cli.main; "
            "cli.main = lambda words: run([*words, '--host', '127.0.0.1', '--port', '0']); "
            "from server.app import main; main()"
        )
        command = [sys.executable, "-c", code]
        self.process = subprocess.Popen(command, cwd=self.root, stdout=subprocess.PIPE, text=True)
        self.base_url = self.process.stdout.readline().split()[-1]
        return self

    def inspect(self):
        return {}

    def logs(self, max_bytes=65536):
        return ""

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def test_its_validator_accepts_an_exported_package_that_runs(tmp_path):
    write_package(GUESS, tmp_path / "guess")
    report = run_validation(tmp_path / "guess", provider=ProcessProvider())
    outcomes = {result.check_id: result.status.value for result in report.results}
    passed = {name for name, outcome in outcomes.items() if outcome == "pass"}
    assert passed >= {
        "static.manifest",
        "runtime.startup",
        "runtime.reward_well_formed",
        "runtime.observation_schema",
        "runtime.state_contract",
    }
    # Skipped are graders that this version lacks, and the checks that need Docker.
    assert set(outcomes.values()) == {"pass", "skip"}
