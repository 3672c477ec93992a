"""`run_harness`: like `run_episode`, but a foreign program owns the loop.

episode = await run_harness(agent, env, policy, context, EpisodeLimits(max_turns=8), seed=0)
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any

from gem_agents._gateway import GATEWAY
from gem_agents._harness import AgentTask, Command, Harness, resolve_harness
from gem_agents._processes import GRACE
from gem_agents._session import Session, SessionLimits
from gem_agents._steps import Steps
from gem_agents._turns import turns_of
from gem_core import Env
from gem_core._core import ResetOptions, require_one_agent
from gem_core._observations import observation_text
from gem_core._util.messages import error_line
from gem_core._util.threads import in_thread
from gem_core.errors import ConfigError, EnvError, SandboxError
from gem_core.rollout import Context, Episode, EpisodeLimits, Policy, Turn
from gem_core.rollout._calls import ClosedOnError, EnvCalls, jsonable
from gem_core.rollout._dialogue import TokenLimits
from gem_core.rollout._limits import MAX_TURNS
from gem_core.rollout._runner import DEFAULT_LIMITS, end_episode, log_failure, start_episode
from gem_core.rollout._trajectory import StopReason
from gem_envs._background import BackgroundLoop
from gem_envs.sandbox._shell import File

logger = logging.getLogger(__name__)

AGENTS = BackgroundLoop("gem-agents")
"""The loop of the agents of this process, because engines may block the loop of the trainer."""

_TICK = 0.1
_LEAVE = 2.0
"""Number of seconds in which an agent may end by itself after its episode is over."""


async def run_harness(
    harness: str | Harness,
    env: Env,
    policy: Policy,
    context: Context,
    limits: EpisodeLimits = DEFAULT_LIMITS,
    *,
    seed: int | None = None,
    options: ResetOptions | None = None,
    max_total_tokens: int | None = None,
    max_response_tokens: int | None = None,
    request_id: str | None = None,
    executor: Executor | None = None,
    metadata: Mapping[str, Any] | None = None,
    on_turn: Callable[[Turn], None] | None = None,
    log_errors: bool = True,
) -> Episode:
    """Play one episode with a program that owns its loop.

    The program gets the first observation and an address; see `AgentTask`. Each response that it receives is
    a turn, in the order in which they were sampled. It acts through ``/step``; if it never does, its last
    response is the action. A `Command` plays tasks of files, as those of `Terminal`, in its folder, which is
    graded when the program ends; the reward is that of the last turn. Limits on tokens apply to each
    row of the episode.

    Args:
        harness: The program; see `resolve_harness`.
        env: As in `run_episode`.
        policy: As in `run_episode`; one that takes tokens.
        context: An `AppendContext`.
        limits: As in `run_episode`. `max_turns` limits the model calls, 1000 if it is None.
        seed: As in `run_episode`, like the other arguments. `on_turn` is called at the end of the episode.
        options: As in `run_episode`.
        max_total_tokens: As in `run_episode`, for each row.
        max_response_tokens: As in `run_episode`, for each row.
        request_id: As in `run_episode`.
        executor: As in `run_episode`.
        metadata: As in `run_episode`. An agent that failed adds "harness_error".
        on_turn: As in `run_episode`.
        log_errors: As in `run_episode`.

    Returns:
        The episode. Its context mode is "append" if each call extends the one before, else "rebuild".

    Raises:
        ConfigError: As in `run_episode`; or there is no such harness.
        PolicyError: As in `run_episode`. Errors of the policy propagate.
    """
    async with ClosedOnError(env) as closing:
        play = resolve_harness(harness)
        require_one_agent(env, "run_harness")
        closing.timeout = limits.step_timeout
        tokens = TokenLimits(limits.max_tokens_per_turn, max_total_tokens, max_response_tokens)
        episode = start_episode(env, limits, tokens, "append", seed, metadata)
        if limits.thoughts == "keep":
            raise ConfigError("thoughts=keep has no effect on a harness, which gets the answer only; omit it")
        if env.shows_images:
            raise ConfigError("a harness takes text only, but this environment shows images")
        request_id = request_id or uuid.uuid4().hex
        most = limits.max_turns or MAX_TURNS
        if isinstance(play, Command):
            await in_thread(play.require_level)
        folder = await _folder_calls(play, env, executor, limits.step_timeout)
        session = await GATEWAY.open(policy, context, SessionLimits(most, tokens), request_id)
        calls = EnvCalls(env, executor, limits.step_timeout)
        steps = session.steps = Steps(calls, asyncio.get_running_loop(), limits.on_length_cut)
        left: list[dict[str, File] | None] = []
        failed: str | None = None
        try:
            try:
                first = await calls.reset(seed, options)
                prompt, files = observation_text(first), None
                if folder is not None:
                    prompt, files = await folder.call("open_folder")
                    session.steps = None
            except EnvError as error:
                steps.failure = error
            else:
                task = AgentTask(
                    prompt, GATEWAY.address(session), files=files, hand_in=left.append, gateway=GATEWAY
                )
                failed = await AGENTS.on(play_agent(play(task), session, limits.harness_timeout))
                if failed is not None:
                    episode.metadata["harness_error"] = failed
                    logger.info("the agent of %s failed: %s", episode.env_id or type(env).__name__, failed)
        finally:
            await GATEWAY.close(session)
            forget = getattr(policy, "forget_request", None)
            if forget is not None:
                for call_id in session.call_ids():
                    forget(call_id)
        if session.failure is not None:
            raise session.failure
        if steps.failure is None and not steps.taken and session.delivered():
            last = session.delivered()[-1]
            if folder is None:
                await steps.take_last(last)
            elif left:
                await steps.hand_in(last, folder, left[-1])
            else:  # no fault of the agent, so there is no verdict
                steps.failure = EnvError(f"the folder of the agent is lost: {failed}")
        episode.turns, episode.context_mode = turns_of(session.delivered())
        if steps.failure is not None:
            end_episode(episode, "env_error", str(steps.failure))
            await closing.close()
        else:
            end_episode(episode, _reason(session, steps, most))
            if steps.observation is not None and episode.turns and session.empty is False:
                episode.turns[-1].info["final_obs"] = jsonable(steps.observation)
        episode.metadata["gateway"] = session.summary()
        episode.metadata["gateway_log"] = session.log.record(session.calls)
        episode.trainable = episode.error is None and bool(episode.turns)
        if on_turn is not None:
            for turn in episode.turns:
                on_turn(turn)
        if log_errors:
            log_failure(episode, env)
        return episode


async def _folder_calls(
    play: Harness, env: Env, executor: Executor | None, timeout: float | None
) -> EnvCalls | None:
    """Return the calls of an environment whose tasks a command plays in its folder; None for any other.

    Raises:
        SandboxError: The command cannot be isolated on this machine.
    """
    if not isinstance(play, Command) or not play.folder or not hasattr(env.unwrapped, "hand_in_folder"):
        return None
    if obstacle := await in_thread(play.obstacle):
        level = play.level if play.level == "container" else "namespace"
        raise SandboxError(
            f"a command plays tasks of files at level {level!r}, which does not work: {obstacle}"
        )
    return EnvCalls(env.unwrapped, executor, timeout)


def _reason(session: Session, steps: Steps, most: int) -> StopReason:
    if steps.ended is not None:
        return steps.ended
    if session.empty:
        return "empty_response"
    if session.full:
        return "token_budget"
    return "max_turns" if session.started >= most else "truncated"


async def play_agent(work: Any, session: Session, timeout: float | None) -> str | None:
    """Run an agent until it ends, its episode is over, or it takes too long; return its error, if any.

    Time in which the model samples does not count, so a slow engine ends no agent.
    """
    agent = asyncio.ensure_future(_as_coroutine(work))
    left, leave = timeout, _LEAVE
    while not (await asyncio.wait({agent}, timeout=_TICK))[0]:
        if session.over is not None:
            leave -= _TICK
        elif left is not None and not session.open_calls:
            left -= _TICK
        if leave <= 0 or (left is not None and left <= 0):
            break
    if not agent.done():
        agent.cancel()
        await asyncio.wait({agent}, timeout=2 * GRACE)
        if not agent.done():
            logger.warning("an agent ignores its cancel; it is abandoned")
        if session.over is None:
            return f"the agent did not end within {timeout:g} s, without the time of its model calls"
        return None
    if agent.cancelled():
        return "the agent was canceled"
    error = agent.exception()
    if error is None or session.over is not None:
        return None
    return error_line(error)


async def _as_coroutine(work: Any) -> None:
    await work
