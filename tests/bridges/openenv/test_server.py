import asyncio
import json
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("aiohttp", reason="needs the extra 'serve'")

import gem_core
from gem_bridges.openenv import OpenEnvServer, _wire
from gem_bridges.openenv._client import Address, ClientSession, SessionLost
from gem_bridges.openenv._server import serve_env
from gem_core import render_observation
from gem_core.errors import ConfigError
from tests.bridges.openenv import odd as odd_envs
from tests.bridges.openenv.serving import GUESS, check_a_dead_worker, fetch, play, serving, talk
from tests.serving import raw

ODD = ["test:Odd-v0", "test:OddWaits-v0", "test:OddComputes-v0", "test:OddAwaits-v0"]


@pytest.fixture(scope="module", autouse=True)
def odd_ids():
    odd_envs.register()


@pytest.fixture(scope="module")
def odd():
    """A server of the same environment on the event loop, awaited there, in threads, and in a process."""
    with serving(*(serve_env(id, call_timeout=5, workers=int(id == ODD[2])) for id in ODD)) as running:
        yield running


@pytest.mark.parametrize("id", [GUESS, "game:Wordle-v0-easy", "game:Sudoku-v0-easy"])
def test_episodes_equal_those_played_here(id):
    env = gem_core.make(id)
    with serving(id) as running:
        for seed in range(3):
            observation, info = env.reset(seed=seed)
            shown, actions, expected = render_observation(observation, info), [], []
            done = False
            while not done:
                actions.append(env.sample_random_action())
                observation, reward, terminated, truncated, info = env.step(actions[-1])
                done = terminated or truncated
                expected.append((render_observation(observation, info), reward, done, truncated, info))
            first, *answers = talk(
                running.url, ("reset", {"seed": seed}), *(("step", {"message": text}) for text in actions)
            )
            assert first["observation"]["text"] == shown
            for answer, (text, reward, done, truncated, info) in zip(answers, expected, strict=True):
                fields = answer["observation"]
                assert (fields["text"], answer["reward"], answer["done"]) == (text, reward, done)
                assert fields.get("truncated", False) == truncated
                assert fields.get("success") == info.get("success")
                assert fields.get("invalid") == info["invalid"]
                rest = {"prefix", "suffix", "success", "invalid"}
                assert fields.get("info", {}) == {k: v for k, v in info.items() if k not in rest}


@pytest.mark.parametrize("id", ODD)
def test_messages_are_answered_in_every_host(odd, id):
    first, said, cut, after, state, again, end = talk(
        f"{odd.url}/{id}",
        ("reset", {"seed": 7, "episode_id": "seventh"}),
        ("step", {"message": "hi"}),
        ("step", {"message": "cut", "metadata": {"any": 1}}),
        ("step", {"message": "hi"}),
        ("state", {"random_action": True}),  # this environment has none
        ("reset", {"seed": 8}),
        ("step", {"message": "end"}),
    )
    assert first["observation"] == {"text": "seed 7 \ufffd\nGo.", "info": {"state_key": "start"}}
    assert (said["reward"], said["done"]) == (0.25, False)
    assert said["observation"] == {"text": "you said hi", "info": {"metrics": {"n": 1.5}}}
    assert (cut["observation"]["truncated"], cut["observation"]["terminated"]) == (True, False)
    assert "no episode is running" in str(after)
    assert state == {"episode_id": "seventh", "step_count": 2, "env_id": id}
    assert again["observation"]["text"].startswith("seed 8")
    assert (end["done"], end["observation"]["success"]) == (True, True)


@pytest.mark.parametrize("id", ODD)
def test_a_failure_costs_one_episode_and_says_so(odd, id):
    _, raised, after, again, nan = talk(
        f"{odd.url}/{id}",
        ("reset", {"seed": 1}),
        ("step", {"message": "raise this"}),
        ("step", {"message": "hi"}),
        ("reset", {"seed": 2}),
        ("step", {"message": "nan"}),
    )
    assert "ValueError: odd this; the episode has ended (EXECUTION_ERROR)" in str(raised)
    assert "no episode is running" in str(after)
    assert again["observation"]["text"].startswith("seed 2")
    assert "Out of range float values are not JSON compliant" in str(nan)


@pytest.mark.parametrize("id", ODD[1:])
def test_a_call_that_takes_too_long_costs_its_episode(id):
    served = serve_env(id, call_timeout=1, workers=int(id == ODD[2]))
    with serving(served) as running:
        _, slow, _, said = talk(
            running.url,
            ("reset", {}), ("step", {"message": "sleep 2"}), ("reset", {}), ("step", {"message": "hi"}),
        )  # fmt: skip
    assert "did not answer within 1 s" in str(slow)
    assert said["reward"] == 0.25


def test_a_dead_worker_costs_its_sessions_one_episode(odd):
    check_a_dead_worker(odd.url, ODD[2], "died with exit code 3")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", _wire.INVALID_JSON),
        ("[]", _wire.VALIDATION_ERROR),
        ('"text"', _wire.VALIDATION_ERROR),
        ('{"type": "dance"}', _wire.UNKNOWN_TYPE),
        ('{"type": ["reset"]}', _wire.UNKNOWN_TYPE),
        ('{"type": "reset", "data": []}', _wire.VALIDATION_ERROR),
        ('{"type": "reset", "data": {"seed": -5}}', _wire.VALIDATION_ERROR),
        ('{"type": "reset", "data": {"seed": true}}', _wire.VALIDATION_ERROR),
        ('{"type": "reset", "data": {"sede": 5}}', _wire.VALIDATION_ERROR),
        ('{"type": "reset", "data": {"episode_id": 5}}', _wire.VALIDATION_ERROR),
        ('{"type": "reset", "data": {"index": 5}}', _wire.EXECUTION_ERROR),
        ('{"type": "step", "data": {}}', _wire.VALIDATION_ERROR),
        ('{"type": "step", "data": {"message": 3}}', _wire.VALIDATION_ERROR),
        ('{"type": "step", "data": {"message": "x", "foo": 1}}', _wire.VALIDATION_ERROR),
        ('{"type": "step", "data": {"message": "x"}}', _wire.EXECUTION_ERROR),
        ("[" * 100_000, _wire.INVALID_JSON),
        (b"\xff\xfe", _wire.INVALID_JSON),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_messages_get_an_error_and_leave_the_session_alive(odd, message, code):
    async def main():
        reader, writer = await raw.session(odd.server.port, f"/{ODD[0]}/ws")
        writer.write(raw.frame(message if isinstance(message, bytes) else message.encode()))
        answer = json.loads((await asyncio.wait_for(raw.read_frame(reader), 30))[1])
        assert (answer["type"], answer["data"]["code"]) == ("error", code)
        writer.write(raw.frame(b'{"type": "reset", "data": {"seed": 1}}'))
        assert b'"done":false' in (await asyncio.wait_for(raw.read_frame(reader), 30))[1]
        writer.close()

    play(main())


def test_sent_surrogates_reach_the_environment_and_come_back_as_text(odd):
    _, said = talk(f"{odd.url}/{ODD[0]}", ("reset", {}), ("step", {"message": "a\ud800b"}))
    assert said["observation"]["text"] == "you said a\ufffdb"


def test_pages_follow_openenv(odd):
    base = f"{odd.url}/{ODD[0]}"
    assert fetch(f"{odd.url}/health") == (200, {"status": "healthy"})
    assert fetch(odd.url)[1]["environments"] == {id: f"/{id}" for id in ODD}
    assert fetch(f"{base}/schema") == (200, _wire.SCHEMAS)
    assert fetch(f"{base}/metadata")[1]["name"] == ODD[0]
    assert {"/reset", "/step", "/state"} <= set(fetch(f"{base}/openapi.json")[1]["paths"])
    assert fetch(f"{base}/mcp", {"id": 5})[1]["error"]["code"] == -32603
    assert fetch(f"{base}/reset", {})[0] == 409
    assert fetch(f"{base}/nothing")[0] == fetch(f"{odd.url}/schema")[0] == 404


def test_metrics_count_answers_errors_and_episodes():
    with serving(GUESS) as running:
        talk(running.url, ("reset", {"seed": 0}), ("step", {"message": "no box"}), ("step", {"message": ""}))
        text = fetch(f"{running.url}/metrics")[1]
    lines = text.splitlines()
    assert "gem_core_sessions_opened_total 1" in lines
    assert 'gem_core_answers_total{type="reset"} 1' in lines
    assert 'gem_core_errors_total{code="EXECUTION_ERROR"} 1' in lines
    assert "gem_core_episodes_total 1" in lines
    assert "gem_core_answer_seconds_count 3" in lines
    assert 'gem_core_answer_seconds_bucket{le="+Inf"} 3' in lines


def test_a_full_server_says_so_and_has_room_again():
    async def main(url):
        address = Address.parse(url)
        first = await ClientSession.open(address, None, 30)
        await first.ask("reset", {}, 30)
        second = await ClientSession.open(address, None, 30)
        with pytest.raises(SessionLost):
            await second.ask("reset", {}, 30)
        first.close()
        deadline = time.monotonic() + 30
        while fetch(f"{url}/metrics")[1].count("gem_core_sessions 0") == 0:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        third = await ClientSession.open(address, None, 30)
        await third.ask("reset", {}, 30)
        third.close()

    with serving(GUESS, max_sessions=1) as running:
        play(main(running.url))


def test_a_message_that_is_too_long_ends_the_session():
    with serving(GUESS, max_message=2000) as running:
        _, lost = talk(running.url, ("reset", {}), ("step", {"message": "x" * 3000}))
        assert "1009" in str(lost)
        assert fetch(f"{running.url}/mcp", {"x": "x" * 3000})[0] == 413


def test_idle_sessions_end():
    async def main(url):
        session = await ClientSession.open(Address.parse(url), None, 30)
        await session.ask("reset", {}, 30)
        deadline = time.monotonic() + 30
        while session.alive:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)

    with serving(GUESS, idle_timeout=0.2) as running:
        play(main(running.url))
        assert 'gem_core_connections_ended_total{reason="idle"} 1' in fetch(f"{running.url}/metrics")[1]


def test_a_draining_server_lets_the_episode_end():
    async def main(running):
        address = Address.parse(running.url)
        playing, waiting = [await ClientSession.open(address, None, 30) for _ in range(2)]
        await playing.ask("reset", {}, 30)
        drained = asyncio.run_coroutine_threadsafe(running.server.drain(), running.loop)
        deadline = time.monotonic() + 30
        while fetch(f"{running.url}/health")[0] != 503:
            assert time.monotonic() < deadline
        with pytest.raises(SessionLost):  # no episode: ended at once
            await waiting.ask("reset", {}, 30)
        with pytest.raises(SessionLost, match="503"):
            await ClientSession.open(address, None, 30)
        assert not drained.done()
        assert (await playing.ask("step", {"message": "no box"}, 30))["done"]
        await asyncio.wait_for(asyncio.wrap_future(drained), 30)

    with serving(GUESS) as running:
        play(main(running))


def test_only_clients_with_the_token_get_in():
    with serving(GUESS, token="secret") as running:
        assert fetch(f"{running.url}/health")[0] == 200
        assert fetch(f"{running.url}/schema")[0] == fetch(f"{running.url}/metrics")[0] == 401
        assert fetch(f"{running.url}/schema", headers={"Authorization": "Bearer secret"})[0] == 200
        for token in (None, "secre", "sécret"):
            with pytest.raises(ConfigError, match="401"):
                talk(running.url, ("reset", {}), token=token)
        assert talk(running.url, ("reset", {}), token="secret")[0]["done"] is False


def test_pages_of_other_sites_are_rejected():
    with serving(GUESS) as running:
        assert fetch(f"{running.url}/schema", headers={"Origin": "http://evil.example"})[0] == 403
        assert fetch(f"{running.url}/schema", headers={"Origin": running.url})[0] == 200


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\r\n", b"400"),
        ("GET /else/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\r\n", b"404"),
        ("GET\r\n\r\n", b"400"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nnocolon\r\n\r\n", b"400"),
        ("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", b"400"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nX: " + "x" * 20_000 + "\r\n\r\n", b"431"),
    ],
    ids=["no key", "no environment", "no target", "no colon", "negative", "long"],
)
def test_bad_requests_get_a_status(request_text, status):
    async def main(port):
        return await raw.asked(port, request_text.encode())

    with serving(GUESS) as running:
        assert play(main(running.server.port)).split()[1] == status


def test_a_client_that_floods_or_does_not_read_is_slowed_down():
    """All messages are answered in order, and the server holds only a bounded number of them."""

    async def main(port):
        reader, writer = await raw.session(port)
        writer.write(raw.frame(b'{"type": "reset", "data": {"seed": 0}}'))
        await raw.read_frame(reader)
        text = "x" * 20_000
        step = raw.frame(json.dumps({"type": "step", "data": {"message": text}}).encode())
        writer.transport.pause_reading()
        writer.write(step * 200)
        await asyncio.sleep(0.3)
        writer.transport.resume_reading()
        answers = [await asyncio.wait_for(raw.read_frame(reader), 60) for _ in range(200)]
        writer.close()
        return answers

    with serving("test:Odd-v0") as running:
        answers = play(main(running.server.port))
    assert {json.loads(payload)["data"]["reward"] for _, payload in answers} == {0.25}


def test_settings_are_checked():
    with pytest.raises(ConfigError, match="at least one environment"):
        OpenEnvServer([])
    with pytest.raises(ConfigError, match="listed twice"):
        OpenEnvServer([serve_env(GUESS), serve_env(GUESS)])
    with pytest.raises(ConfigError, match="workers need wrappers by name"):
        serve_env(GUESS, wrappers=lambda env: env, workers=1)
    with pytest.raises(ConfigError, match="several agents"):
        serve_env("test:Several-v0")
    for name, value in (("max_sessions", 0), ("idle_timeout", -1), ("drain_timeout", -1), ("max_message", 1)):
        with pytest.raises(ConfigError, match=f"{name}={value}: expected"), serving(GUESS, **{name: value}):
            pass


def test_signals_end_the_command(tmp_path):
    (tmp_path / "token").write_text("secret\n")
    command = [sys.executable, "-m", "gem_lab", "serve", "openenv", GUESS, "--port", "0"]
    command += ["--token-file", str(tmp_path / "token")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().split()[-1]
            assert talk(url, ("reset", {}), token="secret")[0]["done"] is False
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
