"""Sessions in the actors of a real Ray, which this module starts."""

import asyncio
import os
import socket
import subprocess
import sys
from multiprocessing.connection import Connection

import pytest

pytest.importorskip("aiohttp", reason="needs the extra 'serve'")

from gem_bridges.openenv._client import Address, ClientSession
from gem_bridges.openenv._server import serve_env
from gem_core._workers import start_worker
from gem_core._workers.ray_actors import SECRET_SIZE
from gem_core.errors import ConfigError, EnvError, MissingDependency
from tests.bridges.openenv import odd
from tests.bridges.openenv.serving import GUESS, check_a_dead_worker, play, serving, talk
from tests.local_ray import local_ray

ray = pytest.importorskip("ray", reason="needs the extra 'ray'")

IDS = ["test:Odd-v0", "test:OddWaits-v0", "test:OddAwaits-v0"]
"""Answered on the event loop of the actor, in its threads, and by their own async methods."""


@pytest.fixture(scope="module", autouse=True)
def odd_ids():
    odd.register()


@pytest.fixture(scope="module")
def cluster():
    with local_ray() as address:
        yield address


@pytest.fixture(scope="module")
def served(cluster):
    with serving(*(serve_env(id, call_timeout=1, workers=1, ray=True) for id in IDS)) as running:
        yield running


def test_ray_must_already_be_running(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ConfigError, match=r"ray\.init"):
        serve_env(GUESS, ray=True)


def test_missing_ray_is_named_with_the_pip_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency, match=r"pip install 'gem-core\[ray\]'"):
        serve_env(GUESS, ray=True)


@pytest.mark.parametrize("id", IDS)
def test_actors_answer_like_the_server_itself(served, id):
    first, said, raised, after, again, cut = talk(
        f"{served.url}/{id}",
        ("reset", {"seed": 7, "episode_id": "seventh"}),
        ("step", {"message": "hi"}),
        ("step", {"message": "raise this"}),
        ("step", {"message": "hi"}),
        ("reset", {"seed": 8}),
        ("step", {"message": "cut"}),
    )
    assert first["observation"] == {"text": "seed 7 \ufffd\nGo.", "info": {"state_key": "start"}}
    assert (said["reward"], said["done"]) == (0.25, False)
    assert "ValueError: odd this; the episode has ended (EXECUTION_ERROR)" in str(raised)
    assert "no episode is running" in str(after)
    assert again["observation"]["text"].startswith("seed 8")
    assert (cut["done"], cut["observation"]["truncated"]) == (True, True)


@pytest.mark.parametrize("id", IDS[1:])
def test_a_call_that_takes_too_long_costs_its_episode(served, id):
    _, slow, _, said = talk(
        f"{served.url}/{id}",
        ("reset", {}), ("step", {"message": "sleep 4"}), ("reset", {}), ("step", {"message": "hi"}),
    )  # fmt: skip
    assert "did not answer within 1 s" in str(slow)
    assert said["reward"] == 0.25


def test_a_slow_step_delays_no_other_session(served):
    async def main():
        address = Address.parse(f"{served.url}/{IDS[2]}")
        slow, quick = [await ClientSession.open(address, None, 30) for _ in range(2)]
        for session in (slow, quick):
            await session.ask("reset", {"seed": 1}, 60)
        waiting = asyncio.ensure_future(slow.ask("step", {"message": "sleep 0.8"}, 60))
        for _ in range(3):
            await quick.ask("step", {"message": "hi"}, 60)
        assert not waiting.done()
        slow.close()  # in the middle of a step
        await asyncio.gather(waiting, return_exceptions=True)
        assert (await quick.ask("step", {"message": "hi"}, 60))["reward"] == 0.25
        quick.close()

    play(main())


def test_a_dead_actor_costs_its_sessions_one_episode(served):
    check_a_dead_worker(served.url, IDS[0], r"Ray actor \d+ died")


def _echo(connection):
    connection.send(connection.recv())


def test_a_connection_without_the_secret_of_an_actor_is_closed(cluster):
    worker = start_worker("ray", "of the test", _echo, (), 1.0)
    host, port, secret = ray.get(worker._address)
    worker._run = worker._actor.run.remote(_echo, ())
    for sent in (bytes(SECRET_SIZE), b"short"):
        with socket.create_connection((host, port), 30) as stranger:
            stranger.sendall(sent)
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(1) == b""
    with socket.create_connection((host, port), 30) as parent:
        parent.sendall(secret)
        parent.settimeout(None)
        connection = Connection(parent.detach())
        connection.send("heard")
        assert connection.recv() == "heard"
        connection.close()
    assert worker.kill()


def test_an_environment_that_no_actor_can_build(cluster, monkeypatch, tmp_path):
    monkeypatch.setattr(odd.OddComputes, "__init__", lambda self, path: open(path).close(), raising=False)
    (tmp_path / "here").touch()
    with (
        pytest.raises(EnvError, match=r"Ray actor 1 failed to start: .*TypeError"),
        serving(serve_env("test:OddComputes-v0", {"path": str(tmp_path / "here")}, workers=1, ray=True)),
    ):
        pass


def test_the_command_joins_a_cluster(cluster):
    command = [sys.executable, "-m", "gem_lab", "serve", "openenv", GUESS, "--ray", "--workers", "1"]
    environment = {**os.environ, "RAY_ADDRESS": cluster}
    with subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            url = process.stdout.readline().split()[-1]
            assert talk(url, ("reset", {"seed": 0}))[0]["done"] is False
        finally:
            process.kill()
