import asyncio
import gc
import json
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("aiohttp", reason="needs the extra 'serve'")

import gem_core
from gem_bridges.openenv import _env as openenv_env
from gem_bridges.openenv import _wire
from gem_bridges.openenv._env import OpenEnvEnv, shown_text
from gem_bridges.openenv._server import serve_env
from gem_chat import MessagesContext
from gem_core import render_observation
from gem_core._util.places import Clock, on_clock
from gem_core.errors import CallOrderError, ConfigError, EnvError, ResetNeeded, ServiceError
from gem_core.rollout import ChatReply, EnvPool, EpisodeLimits
from gem_core.tasks import EnvChoice
from gem_envs.tools import _loop
from tests.bridges.openenv.serving import GUESS, Address, ClientSession, serving, web

WORDLE = "game:Wordle-v0-easy"


def native_episode(id, seed, most=100):
    """Return a random player's actions, and all observations and rewards that it receives."""
    env = gem_core.make(id)
    observation, info = env.reset(seed=seed)
    steps, actions = [render_observation(observation, info)], []
    done = False
    while not done and len(actions) < most:
        actions.append(env.sample_random_action())
        observation, reward, terminated, truncated, info = env.step(actions[-1])
        done = terminated or truncated
        steps.append((render_observation(observation, info), reward, terminated, truncated, visible(info)))
    return actions, steps


def visible(info):
    return {key: value for key, value in info.items() if key not in ("prefix", "suffix")}


def played(env, seed, actions):
    """Return the same of `env` with these actions."""
    observation, _ = env.reset(seed=seed)
    steps = [observation]
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        steps.append((observation, reward, terminated, truncated, info))
    return steps


@pytest.fixture(scope="module")
def games():
    with serving(GUESS, WORDLE) as running:
        yield running


@pytest.mark.parametrize("id", [GUESS, WORDLE])
def test_episodes_equal_those_played_without_a_server(games, id):
    with gem_core.make(f"openenv:{games.url}/{id}") as env:
        for seed in range(5):
            actions, steps = native_episode(id, seed)
            assert played(env, seed, actions) == steps


def test_thousands_of_episodes_wait_on_one_event_loop(games):
    actions, steps = native_episode(WORDLE, 4)
    count = 300
    envs = [gem_core.make(f"openenv:{games.url}/{WORDLE}") for _ in range(count)]

    async def play(env):
        return [(await env.areset(seed=4))[0], *[await env.astep(action) for action in actions]]

    async def main():
        return await asyncio.gather(*map(play, envs))

    assert all(results == steps for results in asyncio.run(main()))
    for env in envs:
        env.close()


def test_a_state_is_the_seed_and_the_actions(games):
    actions, steps = native_episode(WORDLE, 2)
    with gem_core.make(f"openenv:{games.url}/{WORDLE}") as env, env.spawn() as other:
        played(env, 2, actions[:2])
        other.set_state(json.loads(json.dumps(env.get_state())))
        assert other.step(actions[2]) == env.step(actions[2]) == steps[3]
        shown, _ = other.reset(options={"state": env.get_state()})
        assert shown == steps[3][0]


def test_random_actions_match_the_served_environment(games):
    native = gem_core.make(WORDLE)
    with gem_core.make(f"openenv:{games.url}/{WORDLE}") as env:
        for each in (env, native):
            each.reset(seed=6)
        for _ in range(3):
            action = env.sample_random_action()
            assert action == native.sample_random_action()
            assert env.step(action)[1:4] == native.step(action)[1:4]


def test_a_response_that_is_too_long_for_the_server_fails_the_episode_at_once():
    with serving(GUESS, max_message=2000) as running, gem_core.make(f"openenv:{running.url}") as env:
        env.reset(seed=0)
        began = time.monotonic()
        with pytest.raises(EnvError, match="1009 the message is too long"):
            env.step("x" * 3000)
        assert time.monotonic() - began < env.retry_for
        assert env.reset(seed=0)


def test_unseeded_resets_follow_the_seed_of_the_stream(games):
    with gem_core.make(f"openenv:{games.url}/{GUESS}") as env, env.spawn() as other:
        played(env, 1, [])
        played(other, 1, [])
        first, second = [e.get_state() for e in (env, other) if e.reset()]
        assert first["episode"]["seed"] == second["episode"]["seed"]


# -- servers that go away ---------------------------------------------------------------------


def test_a_restarted_server_continues_the_episode():
    actions, steps = native_episode(WORDLE, 3)
    with serving(WORDLE) as running:
        port, url = running.server.port, running.url
        env = gem_core.make(f"openenv:{url}", retry_for=60.0)
        assert played(env, 3, actions[:2]) == steps[:3]
    with serving(WORDLE, port=port):
        assert env.step(actions[2]) == steps[3]
        env.close()


def test_a_server_that_does_not_return_fails_the_episode():
    with serving(WORDLE) as running:
        env = gem_core.make(f"openenv:{running.url}", retry_for=0.2)
        env.reset(seed=0)
    with pytest.raises(ServiceError, match=r"for 0\.2 s"):
        env.step("crane")
    env.close()


class Forgetful(gem_core.Env):
    """Every episode of the process has the next number, whatever its seed."""

    blocking = "cpu"
    count = 0

    def reset(self, seed=None, *, options=None):
        self.begin_episode(seed)
        Forgetful.count += 1
        return f"episode {Forgetful.count}", {}

    def step(self, action):
        self.require_reset()
        if action == "die":
            import os

            os._exit(3)
        return f"still {Forgetful.count}", 0.0, False, False, {"invalid": None}


class Faithful(Forgetful):
    """Records the actions it received, and dies once for each path in them."""

    def reset(self, seed=None, *, options=None):
        self.begin_episode(seed)
        self.said = []
        return f"seed {seed}", {}

    def step(self, action):
        import os
        from pathlib import Path

        self.require_reset()
        if action.startswith("die once ") and not Path(action[9:]).exists():
            Path(action[9:]).touch()
            os._exit(3)
        self.said.append(action)
        return ", ".join(self.said), 1.0, False, False, {"invalid": None}


@pytest.fixture(scope="module", autouse=True)
def mortal_ids():
    for kind in (Forgetful, Faithful):
        gem_core.register(f"test:{kind.__name__}-v0", f"{__name__}:{kind.__name__}")


def test_an_episode_lost_with_its_worker_is_restored_only_if_that_gives_the_same_answers(tmp_path):
    ids = ["test:Forgetful-v0", "test:Faithful-v0"]
    with serving(*(serve_env(id, workers=1) for id in ids)) as running:
        env, faithful = [gem_core.make(f"openenv:{running.url}/{id}") for id in ids]
        env.reset(seed=1)
        env.reset(seed=1)
        env.step("hi")
        with pytest.raises(EnvError, match=r"not deterministic, turn 0 was .*episode 2.* is now .*episode 1"):
            env.step("die")
        faithful.reset(seed=7)
        faithful.step("one")
        message = f"die once {tmp_path / 'mark'}"
        observation, reward, *_ = faithful.step(message)
        assert (observation, reward) == (f"one, {message}", 1.0)
        for each in (env, faithful):
            each.close()


# -- servers of other makers ------------------------------------------------------------------


class Foreign:
    """A server that speaks the protocol as OpenEnv's do, with answers from a script; a stand-in."""

    def __init__(self, action, answers):
        self.action, self.answers, self.asked = action, list(answers), []

    async def serve(self, request):
        if "Upgrade" not in request.headers:
            return web.json_response({"action": self.action, "observation": {"title": "Obs"}, "state": {}})
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            self.asked.append(json.loads(message.data))
            await socket.send_json(self.answers.pop(0))
        return socket


def answer(done=False, reward=None, **fields):
    return {"type": "observation", "data": {"observation": fields, "reward": reward, "done": done}}


def play_foreign(action, answers, play, **options):
    """Run `play(env)` in a thread against a `Foreign` server; return its result and the server's messages."""
    foreign = Foreign(action, answers)

    async def main():
        handlers = web.Server(foreign.serve)
        server = await asyncio.get_running_loop().create_server(handlers, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        env = OpenEnvEnv(url, **{"retry_for": 0.1, "timeout": 20, **options})
        try:
            return await asyncio.to_thread(play, env)
        finally:
            env.close()
            server.close()
            await handlers.shutdown(5)

    return asyncio.run(main()), foreign.asked


TEXT = {
    "title": "EchoAction",
    "properties": {"message": {"type": "string"}, "metadata": {}},
    "required": ["message"],
}
MOVE = {
    "properties": {"move": {"$ref": "#/$defs/Move"}}, "required": ["move"],
    "$defs": {"Move": {"enum": ["up", "down"], "type": "string"}},
}  # fmt: skip
PAIR = {
    "properties": {"row": {"type": "integer", "minimum": 0, "maximum": 2}, "col": {"type": "integer"}},
    "required": ["row", "col"],
}


def test_text_actions_fill_the_only_field_and_the_return_decides_success():
    def play(env):
        return [env.reset(seed=5), env.step("one"), env.step("two")]

    answers = [
        answer(echo="hello"),
        answer(echo="said", reward=0.5),
        answer(done=True, echo="bye", reward=0.5),
    ]
    steps, asked = play_foreign(TEXT, answers, play)
    assert steps == [
        ("hello", {}),
        ("said", 0.5, False, False, {"invalid": None}),
        ("bye", 0.5, True, False, {"invalid": None, "success": True}),
    ]
    assert [message["data"] for message in asked] == [{"seed": 5}, {"message": "one"}, {"message": "two"}]


def test_other_actions_are_read_from_a_box_and_bad_ones_never_reach_the_server():
    def play(env):
        return [env.reset(seed=0), env.step("up"), env.step(r"\boxed{UP}"), env.step(r"\boxed{left}")]

    steps, asked = play_foreign(
        MOVE, [answer(x=1, y=2), answer(x=1, y=3)], play, format_error_reward=-0.5, max_turns=3
    )
    assert steps[0] == (
        '{"x": 1, "y": 2}',
        {"suffix": "Answer with \\boxed{action}, where the action is one of: up, down."},
    )
    assert steps[1][1:4] == (-0.5, False, False)
    assert steps[1][4] == {"invalid": "format"}
    assert steps[2][:2] == ('{"x": 1, "y": 3}', 0.0)
    assert steps[3][1:4] == (-0.5, False, True)  # the limit
    assert steps[3][4] == {"invalid": "format", "success": False}
    assert [message["data"] for message in asked] == [{"seed": 0}, {"move": "up"}]


def test_several_fields_are_a_json_object():
    def play(env):
        env.reset(seed=0)
        return env.step(r'\boxed{{"row": 1, "col": 2}}'), env.step(r'\boxed{{"row": 5, "col": 2}}')

    steps, asked = play_foreign(PAIR, [answer(b="."), answer(b="x")], play)
    assert asked[1]["data"] == {"row": 1, "col": 2}
    assert steps[1][4]["invalid"] == "illegal"


def test_mcp_tools_are_called():
    tools = [{"name": "add", "description": "Adds.", "input_schema": {"type": "object", "properties": {}}}]

    def play(env):
        return [
            env.reset(seed=0),
            env.step(r'\boxed{{"tool_name": "add", "arguments": {"a": 1}}}'),
            env.step(r'\boxed{{"tool_name": "mul", "arguments": {}}}'),
        ]

    answers = [answer(text="go"), answer(tools=tools), answer(result="1")]
    steps, asked = play_foreign({"title": "Action", "properties": {}}, answers, play)
    assert '"name": "add"' in steps[0][1]["suffix"]
    assert asked[2]["data"] == {"type": "call_tool", "tool_name": "add", "arguments": {"a": 1}}
    assert steps[2][4]["invalid"] == "illegal"


def test_what_the_server_rejects_is_an_invalid_action_and_other_errors_fail_the_episode():
    def play(env):
        env.reset(seed=0)
        rejected = env.step("a")
        with pytest.raises(EnvError, match="boom"):
            env.step("b")
        return rejected

    answers = [
        answer(t="x"),
        _wire.error_message("too short", _wire.VALIDATION_ERROR),
        _wire.error_message("boom", _wire.EXECUTION_ERROR),
    ]
    rejected, _ = play_foreign(TEXT, answers, play)
    assert rejected[4] == {"invalid": "format"}


@pytest.mark.parametrize(
    ("last", "problem"),
    [
        (answer(t="x", reward=float("nan")), "reward of step 1 was nan"),
        ({"type": "observation", "data": {"observation": "text"}}, "no observation"),
        ({"type": "observation"}, "unexpected message"),
        ([], "unexpected message"),
    ],
    ids=["nan", "text", "no data", "list"],
)
def test_bad_answers_fail_the_episode(last, problem):
    def play(env):
        env.reset(seed=0)
        with pytest.raises(EnvError, match=problem):
            env.step("a")

    play_foreign(TEXT, [answer(t="x"), last], play)


def test_a_slow_answer_fails_the_episode():
    class Late(gem_core.Env):
        blocking = True

        def reset(self, seed=None, *, options=None):
            self.begin_episode(seed)
            return "go", {}

        def step(self, action):
            time.sleep(1.0)
            return "late", 0.0, False, False, {"invalid": None}

    gem_core.register("test:Late-v0", Late)
    with serving("test:Late-v0") as running, gem_core.make(f"openenv:{running.url}") as env:
        env.reset(seed=0)
        env.timeout = 0.2
        with pytest.raises(EnvError, match=r"did not answer within 0\.2 s"):
            env.step("x")


def test_settings_and_addresses_are_checked(games):
    for source in ("ftp://127.0.0.1", "http://", "http://127.0.0.1:99999", "http://x?y=1"):
        with pytest.raises(ConfigError, match="expected an address"):
            OpenEnvEnv(source)
    with pytest.raises(ConfigError, match="action='words': expected auto, text, boxed, or tools"):
        OpenEnvEnv(games.url, action="words")
    with OpenEnvEnv(f"{games.url}/none") as env, pytest.raises(ConfigError, match="check the address"):
        env.reset(seed=0)
    with pytest.raises(ConfigError, match="cannot be imported"):
        OpenEnvEnv("no_such_module:Class")


def test_an_address_that_never_answered_is_abandoned_early(monkeypatch):
    monkeypatch.setattr(openenv_env, "_FIRST_CONTACT", 0.3)
    with (
        OpenEnvEnv("http://127.0.0.1:1") as env,
        pytest.raises(ServiceError, match=r"Connection refused.*, for 0\.3 s"),
    ):
        env.reset(seed=0)
    assert env.retry_for == 60.0  # for servers that have answered


def test_servers_must_answer_before_a_run(games, monkeypatch):
    monkeypatch.setattr(openenv_env, "_FIRST_CONTACT", 0.3)
    wrappers = "time_limit(max_turns=2)"
    assert EnvChoice(f"openenv:{games.url}/{GUESS}").check_buildable(wrappers) is False
    with pytest.raises(ConfigError, match="check the address"):
        EnvChoice(f"openenv:{games.url}/none").check_buildable(wrappers)
    silent = EnvChoice("openenv:http://127.0.0.1:1")
    with pytest.raises(ServiceError, match=r"Connection refused.*, for 0\.3 s"):
        silent.check_buildable(wrappers)
    assert silent.check_buildable(wrappers, services=False) is False
    with socket.create_server(("127.0.0.1", 0)) as mute:  # accepts connections, and never answers
        start = time.monotonic()
        with pytest.raises(ServiceError, match="timed out"):
            EnvChoice(f"openenv:http://127.0.0.1:{mute.getsockname()[1]}").check_buildable()
    assert time.monotonic() - start < 30


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (b"220 mail.example ESMTP\r\n", "does not answer .BadStatusLine: 220 mail.example"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "did not answer with JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "is not the page of an OpenEnv server"),
        (
            b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
            "status 403; check the address and the token",
        ),
    ],
    ids=["no HTTP", "no JSON", "other JSON", "forbidden"],
)
def test_a_server_of_something_else_is_reported_at_once(said, problem):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    async def main():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            with OpenEnvEnv(url) as env, pytest.raises(ConfigError, match=problem):
                await env.areset(seed=0)

    asyncio.run(asyncio.wait_for(main(), 4))  # which is less than the wait for a server that is starting


def test_observations_as_text():
    assert shown_text({"text": "hi", "metadata": {"a": 1}, "done": True}) == "hi"
    assert shown_text({"a": "hi", "b": 1}) == '{"a": "hi", "b": 1}'
    assert shown_text({"a": "hi", "b": 1}, "a") == "hi"
    assert shown_text({"a": "hi", "b": [1]}, "b") == "[1]"
    assert shown_text({"metadata": {"message": "hi"}}) == "hi"


def test_the_client_waits_for_a_killed_server_process(tmp_path):
    """The chaos run: the server is killed in the middle of an episode and started again on its port."""
    command = [sys.executable, "-m", "gem_lab", "serve", "openenv", WORDLE, "--port"]

    def start(port):
        process = subprocess.Popen([*command, port], stdout=subprocess.PIPE, text=True)
        return process, process.stdout.readline().split()[-1]

    actions, steps = native_episode(WORDLE, 9)
    process, url = start("0")
    try:
        with gem_core.make(f"openenv:{url}") as env:
            assert played(env, 9, actions[:2]) == steps[:3]
            process.kill()
            process.wait()
            process.stdout.close()
            process, _ = start(url.rpartition(":")[2])
            assert env.step(actions[2]) == steps[3]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(
    "call",
    [
        lambda env: env.reset(seed=2),
        lambda env: asyncio.run(env.areset(seed=2)),
        lambda env: env.step("1"),
        lambda env: asyncio.run(env.astep("1")),
    ],
    ids=["reset", "areset", "step", "astep"],
)
def test_a_closed_environment_stays_closed(games, call, begun):
    env = OpenEnvEnv(f"{games.url}/{GUESS}")
    if begun:
        env.reset(seed=1)
    env.close()
    env.close()
    opened = games.server.state.metrics.opened
    with pytest.raises((CallOrderError, ResetNeeded)):
        call(env)
    assert games.server.state.metrics.opened == opened


def test_a_session_that_is_being_opened_does_not_outlive_the_environment(games):
    """`close` meets every turn of the background loop in which the reset opens its session."""

    async def closed_after(turns):
        env = OpenEnvEnv(f"{games.url}/{GUESS}")
        link = env._link
        asked = asyncio.ensure_future(link.ask("reset", {"seed": 1}, 30.0))
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        link.close()
        return (await asyncio.gather(asked, return_exceptions=True))[0]

    outcomes = [_loop.run(closed_after(turns)) for turns in range(20)]
    assert any(isinstance(outcome, Exception) for outcome in outcomes)
    end = time.monotonic() + 30
    while games.server.state.sessions and time.monotonic() < end:
        time.sleep(0.01)
    assert not games.server.state.sessions


class _Broken:
    """A WebSocket whose connection ends while a message is sent."""

    def __init__(self):
        self.ended = asyncio.Event()

    async def receive(self):
        await self.ended.wait()
        return SimpleNamespace(type=web.WSMsgType.CLOSED)

    async def send_frame(self, *_):
        self.ended.set()
        await asyncio.sleep(0.01)
        raise ConnectionResetError

    async def close(self):
        pass


class _Full(_Broken):
    """One that a full server closes, without its message, before it reads ours."""

    async def receive(self):
        await self.ended.wait()
        await asyncio.sleep(0.02)
        return SimpleNamespace(type=web.WSMsgType.CLOSE, data=1013, extra="")


def test_a_full_server_is_recognized_by_its_close_code():
    from gem_bridges.openenv._address import ServerFull

    async def main():
        session = ClientSession(_Broken(), _Full())
        with pytest.raises(ServerFull, match="1013"):
            await session.ask("reset", {}, 30.0)
        with pytest.raises(ServerFull):
            await session.ask("reset", {}, 30.0)

    asyncio.run(main())


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_a_connection_that_ends_while_a_message_is_sent_is_reported_once(timeout):
    from gem_bridges.openenv._address import SessionLost
    from gem_bridges.openenv._client import ClientSession

    unheard = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
        socket = _Broken()
        session = ClientSession(socket, socket)
        with pytest.raises(SessionLost, match="the server closed the connection"):
            await session.ask("reset", {}, timeout)
        del session
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(main())
    assert unheard == []


@pytest.mark.parametrize("turns", [100, 1], ids=["to the end", "cut"])
def test_episodes_on_a_full_server_take_turns(turns):
    """Environments that a pool keeps would otherwise hold all places for good."""

    class Guesses:
        def __init__(self):
            self.guess = 0

        async def reply(self, messages, *, max_tokens, request_id):
            self.guess += 1
            return ChatReply(f"\\boxed{{{(self.guess - 1) % 10 + 1}}}")

    async def worker(pool, url, seed):
        row = {"env_id": f"openenv:{url}", "env_kwargs": {}, "seed": seed, "index": seed, "item": None}
        limits = EpisodeLimits(max_turns=turns, step_timeout=20)
        played = [await pool.play(row, Guesses(), MessagesContext(), limits) for _ in range(3)]
        return [episode.error for episode in played]

    async def main(url):
        pool = EnvPool()
        try:
            return await asyncio.gather(*(worker(pool, url, seed) for seed in range(8)))
        finally:
            await asyncio.to_thread(pool.close)

    with serving(GUESS, max_sessions=2) as running:
        assert asyncio.run(main(running.url)) == [[None] * 3] * 8


def test_a_wait_for_a_place_is_not_the_time_of_a_reset():
    async def main(url):
        session = await ClientSession.open(Address.parse(url), None, 30)
        await session.ask("reset", {}, 30)
        env, clock, began = gem_core.make(f"openenv:{url}"), Clock(None), time.monotonic()
        with on_clock(clock):
            resetting = asyncio.ensure_future(env.areset(0))
        while time.monotonic() - began - clock.seconds < 0.5:  # until the clock has stood for so long
            assert not resetting.done(), resetting
            await asyncio.sleep(0.05)
        session.close()
        await resetting
        env.close()

    with serving(GUESS, max_sessions=1) as running:
        asyncio.run(main(running.url))
