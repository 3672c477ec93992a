"""A command in a container of its image: a relay leads to the gateway, and nothing else is reached or left.

The engine is a stand-in that runs the guest in namespaces, and Podman where it is installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")
pytest.importorskip("jinja2", reason="needs jinja2, of the extra 'train'")

from gem_agents import AgentTask, Command
from gem_agents._gateway import Gateway
from gem_agents._processes import HarnessFailed
from gem_agents._session import SessionLimits
from gem_chat import AppendContext
from gem_core.errors import ConfigError, MissingDependency, SandboxError
from gem_core.rollout._dialogue import TokenLimits
from gem_envs.sandbox._box import box_obstacle
from gem_envs.sandbox._shell import File
from tests.agents import stand_in_engine, test_folders, test_harness
from tests.agents.stage import Script, stage, tokenizer
from tests.agents.test_harness import told
from tests.sandbox import test_container
from tests.sandbox.support import settles

sandbox = test_container.sandbox
ENGINES = [
    pytest.param(
        "stand-in", marks=pytest.mark.skipif(bool(box_obstacle()), reason=box_obstacle() or "works")
    ),
    pytest.param("podman", marks=[*test_container.pytestmark, pytest.mark.long]),
]
LOOP = """
import json, os, urllib.error, urllib.request

def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        return json.load(urllib.request.urlopen(request))
    except urllib.error.HTTPError as error:
        return error.code

assert "TRAINER_SECRET" not in os.environ and os.getcwd() == os.environ["HOME"] == os.environ["PWD"]
assert os.environ.get("TZ") != "trainer"
assert not [name for name in os.environ if name.lower().endswith("_proxy")]
messages = [{"role": "user", "content": open("prompt.txt").read()}]
while True:
    body = {"model": "m", "messages": messages}
    answer = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
    if answer == 400:
        break
    said = answer["choices"][0]["message"]["content"]
    step = post(os.environ["GEM_STEP_URL"], {"action": said})
    if step == 400 or step["done"]:
        break
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": step["observation"]}]
"""


@pytest.fixture(params=ENGINES)
def command(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """A command at level container, of which nothing is left at the end."""
    if request.param == "podman":
        request.getfixturevalue("sandbox")
        image, engine, state = test_container.IMAGE, test_container.ENGINE, None
    else:
        state = tmp_path / "engine"
        state.mkdir()
        image = stand_in_engine.IMAGE
        engine = f"{sys.executable} {stand_in_engine.__file__} {state} {sys.executable}"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield Command(["python3", "-c", "pass"], level="container", image=image, engine=engine)
    if state is None:
        assert test_container.containers() == []
    else:
        assert [*state.iterdir()] == [state / "log"]
        assert settles(lambda: not processes(state))
    assert not [*tmp_path.glob("gem-*")]


def processes(state: Path) -> list[str]:
    """Return the processes of a stand-in and of what it started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [str(entry)] if os.fsencode(state) in entry.read_bytes() else []
    return found


def python(command: Command, code: str, **changes: Any) -> Command:
    return replace(command, command=["python3", "-c", code], **changes)


def test_an_episode_is_that_of_the_own_loop(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINER_SECRET", "x")
    monkeypatch.setenv("TZ", "trainer")
    monkeypatch.setenv("http_proxy", "http://secret@proxy")
    harness = python(command, LOOP, files={"prompt.txt": "{prompt}"})
    for seed in (0, 1):
        mine, native = (test_harness.play(one, seed) for one in (harness, None))
        assert mine.metadata.get("harness_error") is None
        assert told(mine) == told(native)
        assert len(native.turns) > 1


@pytest.fixture(scope="module")
def solution() -> str:
    with test_folders.make_env() as env:
        env.reset(seed=3)
        return str(env.unwrapped.task.solution)


def test_what_it_leaves_in_its_folder_is_graded(command: Command, solution: str) -> None:
    harness = replace(python(command, test_folders.SHELL), stdin="{prompt}")
    right, wrong = (test_folders.play([text, "done"], harness) for text in (solution, "ls"))
    assert [turn.reward for turn in right.turns] == [0.0, 1.0]
    assert [turn.reward for turn in wrong.turns] == [0.0, 0.0]
    assert wrong.trainable
    flooded = test_folders.play(["for i in {1..17000}; do : > /app/$i; done", "done"], harness)
    assert (flooded.error, sum(turn.reward for turn in flooded.turns)) == (None, 0)


def test_an_agent_that_hangs_is_graded_with_what_it_did(
    command: Command, solution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gem_agents._harness.GRACE", 1.0)
    seconds = 4.0 if command.image == stand_in_engine.IMAGE else 15.0
    hang = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"
    harness = replace(python(command, f"{test_folders.SHELL}\n{hang}"), stdin="{prompt}")
    limits = replace(test_folders.LIMITS, harness_timeout=seconds)
    episode = test_folders.play([solution, "done"], harness, limits=limits)
    assert [turn.reward for turn in episode.turns] == [0.0, 1.0]
    assert f"{seconds:g} s" in episode.metadata["harness_error"]


def test_a_cancel_asks_it_to_end_and_hands_in_what_it_left(command: Command) -> None:
    code = (
        "import os, signal, socket, sys, time, urllib.parse\n"
        "def end(*_): open('/app/bye', 'w').write('bye'); sys.exit(4)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "open('/app/a/unreadable', 'w').write('x'); os.chmod('/app/a/unreadable', 0); os.chmod('/app/a', 0)\n"
        "os.mkfifo('/app/pipe')\n"
        "gateway = urllib.parse.urlsplit(os.environ['OPENAI_BASE_URL'])\n"
        "connection = socket.create_connection((gateway.hostname, gateway.port))\n"
        "time.sleep(600)\n"
    )

    async def main() -> dict[str, File] | None:
        left: list[dict[str, File] | None] = []
        async with stage() as at:
            given = {"a/b": File(b"given", 0o600), "l": File(target="a/b")}
            task = AgentTask("", at.base, files=given, hand_in=left.append, gateway=at.gateway)
            running = asyncio.ensure_future(python(command, code)(task))
            while not at.gateway._server.guard.connections and not running.done():  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.wait({running})
            assert running.cancelled()
        return left[0]

    files = asyncio.run(main()) or {}
    assert {name: file.data for name, file in files.items() if not file.folder} == {
        "a/b": b"given", "a/unreadable": b"x", "bye": b"bye", "l": b"", "pipe": b"",
    }  # fmt: skip
    assert (files["a/b"].mode, files["l"].target, files["pipe"].other) == (0o600, "a/b", True)


@pytest.mark.parametrize("prompt", ["nul \0 --help", "\u00e9" * 200_000], ids=["nul", "long"])
def test_standard_input_takes_every_prompt(prompt: str, command: Command) -> None:
    harness = python(command, test_harness.ECHO, stdin="{prompt}", files={"prompt.txt": "{prompt}"})
    asyncio.run(harness(AgentTask(prompt, "http://localhost")))
    with pytest.raises(HarnessFailed, match="AssertionError"):
        asyncio.run(replace(harness, stdin="{prompt}.")(AgentTask(prompt, "http://localhost")))
    argument = replace(harness, command=[*harness.command, "{prompt}"])
    with pytest.raises(HarnessFailed, match=r"null byte|longer than the system allows"):
        asyncio.run(argument(AgentTask(prompt, "http://localhost")))


def test_what_is_missing_is_an_early_error(command: Command) -> None:
    with pytest.raises(MissingDependency, match=r"image .* has no program 'no-such-agent'"):
        test_harness.play(replace(command, command=["no-such-agent"]), 0)
    with pytest.raises(SandboxError, match="build or pull it"):
        replace(command, image="localhost/no-such-image:1").require_program("x")
    with pytest.raises(SandboxError, match="/no/such/engine"):
        replace(command, engine="/no/such/engine").require_program("x")
    command.require_program("x")


def test_one_episode_does_not_reach_another(command: Command) -> None:
    code = f"{LOOP.partition('assert')[0]}\nprint('opened', post(os.environ['OTHER'] + '/step', {{}}))\n"
    code += "body = {'messages': [{'role': 'user', 'content': 'x'}]}\n"
    code += "post(os.environ['OPENAI_BASE_URL'] + '/chat/completions', body)\nraise SystemExit(3)"

    async def main() -> list[Any]:
        words, gateway = tokenizer(), Gateway()
        limits, context = SessionLimits(10, TokenLimits(100)), AppendContext(words)
        policies = [Script(["a"], words), Script(["b"], words)]
        sessions = [await gateway.open(policy, context, limits, "x") for policy in policies]
        urls = [*map(gateway.address, sessions)]
        keys = [url.rpartition(".")[2] for url in urls]
        runs = []
        for mine, other in ((0, 1), (1, 0)):
            variables = {"OTHER": urls[other].replace(keys[other], keys[mine])}
            harness = python(command, code, variables=variables)
            runs.append(harness(AgentTask("", urls[mine], gateway=gateway)))
        try:
            return [*await asyncio.gather(*runs, return_exceptions=True), *(len(p.sampled) for p in policies)]
        finally:
            await gateway.stop()

    *errors, mine, other = asyncio.run(main())
    assert [str(error).partition(": ")[2] for error in errors] == ["opened 401", "opened 401"]
    assert (mine, other) == (1, 1)


ATTACKS = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGKILL):
    os.kill(1, number)
for path in ["/proc/1/mem", "/proc/1/environ", *(f"/proc/1/fd/{number}" for number in range(9))]:
    try:
        os.write(os.open(path, os.O_RDWR), b"{}" + bytes([10]))
        print("REACHED", path)
    except OSError:
        pass
for path in ("/usr/planted", "/etc/passwd", "/gem-gateway"):
    try:
        open(path, "w")
        print("REACHED", path)
    except OSError:
        pass
print(os.getuid(), open("/proc/self/status").read().partition("CapEff:")[2].split()[0])
sys.exit(3)
"""


@pytest.mark.parametrize("command", ENGINES[1:], indirect=True)
def test_it_has_no_rights_and_cannot_answer_for_the_guest(command: Command) -> None:
    async def main() -> None:
        async with stage() as at:
            await python(command, ATTACKS)(AgentTask("", at.base, gateway=at.gateway))

    with pytest.raises(HarnessFailed, match=r"exit code 3: 65534 0000000000000000$"):
        asyncio.run(main())


STREAMS = """
import asyncio
from openai import AsyncOpenAI

async def ask(client, number):
    messages = [{"role": "user", "content": str(number)}]
    stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
    return "".join([event.choices[0].delta.content or "" async for event in stream if event.choices])

async def main():
    async with AsyncOpenAI(max_retries=0) as client:
        texts = await asyncio.gather(*(ask(client, number) for number in range(20)))
    assert sorted(texts) == sorted(f"{number} " + "x" * 500 for number in range(20)), texts

asyncio.run(main())
"""


@pytest.mark.parametrize("command", ENGINES[:1], indirect=True)
def test_streams_pass_the_relay_in_parallel(command: Command) -> None:
    pytest.importorskip("openai", reason="needs the package openai")

    async def main() -> int:
        texts = lambda number: f"{number} " + "x" * 500  # noqa: E731
        async with stage(texts, tokens=TokenLimits(9000), seconds=1.0) as at:
            harness = replace(command, command=[sys.executable, "-c", STREAMS])
            await harness(AgentTask("", at.base, gateway=at.gateway))
            return len(at.episode().turns)

    assert asyncio.run(main()) == 20


def test_only_a_container_has_an_image() -> None:
    for wrong in ({"image": "x"}, {"engine": "podman"}, {"image": "x", "level": "namespace"}):
        with pytest.raises(ConfigError, match="level='container'"):
            Command(["x"], **wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="reads has no effect"):
        Command(["x"], level="container", image="x", reads=["/x"])
    with pytest.raises(ConfigError, match="'container'"):
        Command(["x"], level="vm")


def test_a_level_that_does_not_work_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a command without a name, which would otherwise run on the machine itself."""
    monkeypatch.setattr("gem_agents._harness.box_obstacle", lambda: "no namespaces")
    with pytest.raises(SandboxError, match="no namespaces"):
        test_harness.play(Command([sys.executable, "-c", "pass"], level="namespace"), 0)
    monkeypatch.delenv("GEM_CORE_SANDBOX_IMAGE", raising=False)
    with pytest.raises(SandboxError, match="set GEM_CORE_SANDBOX_IMAGE"):
        test_harness.play(Command(["x"], level="container", engine="podman"), 0)


@pytest.mark.parametrize("command", ENGINES[:1], indirect=True)
def test_the_engine_is_asked_for_a_container_without_rights(command: Command, tmp_path: Path) -> None:
    asyncio.run(command(AgentTask("", "http://localhost")))
    asked = (tmp_path / "engine" / "log").read_text().splitlines()[-1]
    for words in (
        "--rm", "--network none", "--read-only", "--cap-drop ALL", "--security-opt no-new-privileges",
        "--user 65534:65534", "--pull never", "--tmpfs /app:rw,exec,size=1073741824",
        "--tmpfs /gem-home:rw,exec,size=1073741824", "--ulimit nproc=520:520", "--entrypoint  --init=false",
    ):  # fmt: skip
        assert words in asked
    assert "--volume" not in asked  # nothing is served
