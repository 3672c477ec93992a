"""Serve one of our games with OpenEnv's own server and with the WebSocket library `websockets`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import gem_core
from gem_bridges.openenv._sessions import OpenEnvSession
from gem_envs.serving._run import run_loop

GAME = "game:GuessTheNumber-v0-easy"
MOST = 16_384


def openenv_app(asynchronous: bool) -> Any:
    """Return OpenEnv's application; its environments have async methods if `asynchronous`."""
    from openenv.core.env_server.http_server import create_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State

    class Guess(Action):
        message: str

    class GuessObservation(Observation):
        text: str

    class Guessing(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self.env = gem_core.make(GAME)
            self.steps = State()

        def reset(self, seed: Any = None, episode_id: Any = None, **kwargs: Any) -> GuessObservation:
            self.steps = State(episode_id=episode_id, step_count=0)
            return GuessObservation(text=str(self.env.reset(seed)[0]))

        def step(self, action: Guess, timeout_s: Any = None, **kwargs: Any) -> GuessObservation:
            text, reward, terminated, truncated, _ = self.env.step(action.message)
            self.steps.step_count += 1
            return GuessObservation(text=str(text), reward=reward, done=terminated or truncated)

        @property
        def state(self) -> State:
            return self.steps

    class GuessingAsync(Guessing):
        async def reset_async(
            self, seed: Any = None, episode_id: Any = None, **kwargs: Any
        ) -> GuessObservation:
            return self.reset(seed, episode_id)

        async def step_async(self, action: Guess, timeout_s: Any = None, **kwargs: Any) -> GuessObservation:
            return self.step(action)

    kind = GuessingAsync if asynchronous else Guessing
    return create_app(kind, Guess, GuessObservation, env_name="guessing", max_concurrent_envs=MOST)


async def serve_websockets(port: int) -> None:
    """Serve our sessions with the library `websockets`."""
    from websockets.asyncio.server import serve

    async def play(socket: Any) -> None:
        session = OpenEnvSession(lambda: gem_core.make(GAME), GAME)
        async for message in socket:
            await socket.send(session.answer(message.encode()).data.decode())

    async with serve(play, "127.0.0.1", port, compression=None, ping_interval=None, backlog=4096):
        await asyncio.Event().wait()


async def serve_picows(port: int) -> None:
    """Serve our sessions with the library `picows`, which is written in Cython."""
    from picows import WSListener, WSMsgType, ws_create_server

    class Listener(WSListener):
        def on_ws_connected(self, transport: Any) -> None:
            self.session = OpenEnvSession(lambda: gem_core.make(GAME), GAME)

        def on_ws_frame(self, transport: Any, frame: Any) -> None:
            if frame.msg_type == WSMsgType.CLOSE:
                transport.disconnect()
            else:
                reply = self.session.answer(frame.get_payload_as_bytes())
                transport.send(WSMsgType.TEXT, reply.data)

    server = await ws_create_server(lambda request: Listener(), "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


def main() -> None:
    """Serve: ``openenv_servers.py NAME PORT``."""
    name, port = sys.argv[1], int(sys.argv[2])
    if name.startswith("openenv"):
        import uvicorn

        app = openenv_app(name == "openenv-async")
        uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", backlog=4096)
    else:
        run_loop({"websockets": serve_websockets, "picows": serve_picows}[name](port))


if __name__ == "__main__":
    main()
