"""Training on an `openenv:` server that is killed and started again in the middle of a step."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")
pytest.importorskip("aiohttp", reason="needs the extra 'serve'")

from gem_core import render_observation  # noqa: E402
from gem_core.rollout import read_traces  # noqa: E402
from gem_core.tasks import EnvChoice  # noqa: E402
from gem_lab.train import TrainConfig, train  # noqa: E402
from tests.train.helpers import EASY, options  # noqa: E402
from tests.train.test_trainer_chaos import GAMMA, rebn  # noqa: E402


class Supervisor:
    """Starts the server again, on the same port, whenever it ends."""

    def __init__(self, mark):
        self.mark, self.exit_codes, self.stopping = mark, [], False
        self.process, self.url = self.start("0")
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def start(self, port):
        command = [sys.executable, "-m", "tests.bridges.openenv.mortal", port, str(self.mark)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        return process, process.stdout.readline().split()[-1]

    def watch(self):
        while True:
            code = self.process.wait()
            self.process.stdout.close()
            if self.stopping:
                return
            self.exit_codes.append(code)
            self.process, _ = self.start(self.url.rpartition(":")[2])

    def stop(self):
        self.stopping = True
        self.process.kill()
        self.thread.join(60)


@pytest.fixture
def supervisor(tmp_path):
    supervisor = Supervisor(tmp_path / "mark")
    yield supervisor
    supervisor.stop()


def assert_equals_native_play(episode):
    """Play the responses of an episode in the environment itself: it shows and pays the same."""
    env = EnvChoice.parse(EASY).make()
    observation, info = env.reset(seed=episode.seed)
    for turn in episode.turns:
        assert turn.observation == render_observation(observation, info)
        if turn.finish_reason == "length":  # cut: the environment was not asked
            return
        observation, reward, terminated, truncated, info = env.step(turn.action)
        assert turn.reward == reward
    assert (episode.terminated, episode.truncated) == (terminated, truncated)


def test_three_steps_survive_a_server_that_is_killed(tiny_folder, tmp_path, supervisor):
    config = options(
        tiny_folder, tmp_path / "run", env=[f"openenv:{supervisor.url}"], steps=3, group_size=4,
        episodes_per_step=16, gamma=GAMMA, on_env_error="mask", trace_every=1, trace_episodes=16,
        eval_episodes=0,
    )  # fmt: skip
    history = train(TrainConfig(**config)).history
    assert supervisor.exit_codes == [-9]
    assert len(history) == 3
    traces = list(read_traces(tmp_path / "run" / "traces.jsonl"))
    for metrics in history:
        episodes = [episode for episode in traces if episode.metadata["step"] == metrics["step"]]
        assert len(episodes) == 16
        assert all(episode.trainable for episode in episodes)
        assert metrics["gem/error_rate"] == 0
        for episode, expected in zip(episodes, rebn(episodes), strict=True):
            assert [turn.advantage for turn in episode.turns] == pytest.approx(expected, abs=1e-6)
            assert_equals_native_play(episode)
