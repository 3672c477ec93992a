"""The episode loop: plays an environment with a policy and a context, and returns an `Episode`.

    episode = await run_episode(env, policy, context, EpisodeLimits(max_turns=8), seed=0)

Every trainer and the evaluation play episodes through this function; they differ only in the `Policy` that
they pass.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, TypedDict

from gem_core._core import Env, Observation, ResetOptions, require_one_agent
from gem_core._thoughts import without_thoughts
from gem_core._util.checks import check_int
from gem_core.errors import ConfigError, DataError, EnvError
from gem_core.rollout._calls import ClosedOnError, EnvCalls, jsonable
from gem_core.rollout._dialogue import Context, ContextFull, Dialogue, RequestRejected, TokenLimits
from gem_core.rollout._limits import MAX_TURNS, EpisodeLimits
from gem_core.rollout._messages import ChatPolicy
from gem_core.rollout._policy import EnvPolicy, Policy
from gem_core.rollout._telemetry import Stepping, start_spans
from gem_core.rollout._trajectory import ContextMode, Episode, StopReason
from gem_core.rollout._turn import Thread, Turn

logger = logging.getLogger(__name__)

_TURNS_PER_YIELD = 64
"""Turns after which an episode lets the event loop run, as its environment and its policy may never wait."""

DEFAULT_LIMITS = EpisodeLimits()


class EpisodeArguments(TypedDict, total=False):
    """Arguments of `run_episode` that `EnvPool` and `run_agents` pass on."""

    max_total_tokens: int | None
    max_response_tokens: int | None
    request_id: str | None
    executor: Executor | None
    metadata: Mapping[str, Any] | None
    on_turn: Callable[[Turn], None] | None
    log_errors: bool


async def run_episode(
    env: Env,
    policy: Policy | ChatPolicy | EnvPolicy,
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
    """Play one episode.

    The caller that created `env` closes it, and may reuse it for the next episode. This function closes it
    only if it must not be used again: when the environment failed (`Episode.stop_reason` is then
    "env_error"), and when this function raises or is canceled. It closes the environment in a thread and
    waits at most `EpisodeLimits.step_timeout` seconds.

    Args:
        env: The environment; this function resets it. A blocking environment runs in a thread, unless it has
            its own `areset` and `astep`. A slow environment that runs on the event loop causes a warning,
            once per environment id (`gem_core.rollout._calls.InlineCalls`).
        policy: Policy that samples the responses: a `ChatPolicy` or an `EnvPolicy` for a context in messages,
            a `Policy` for every other context. Its errors propagate.
        context: Context that turns observations into token ids or messages.
        limits: Limits of the episode. With ``max_tokens_per_turn=None``, `max_total_tokens` or
            `max_response_tokens` must be set. `on_env_error` and `max_env_retries` affect `EnvPool` only.
        seed: Seed for `Env.reset`; None continues the environment's own stream.
        options: Options for `Env.reset`.
        max_total_tokens: Maximum number of tokens in prompt, responses, and observations together; usually
            the model's context length. None for no limit.
        max_response_tokens: Maximum number of tokens after the first prompt, observations included, for
            trainers that cut a row into a prompt and a response part; in template mode, after the first
            prompt of a row, and in rebuild mode, in one response. None for no limit.
        request_id: Id that is the same for all turns, by which an engine routes requests and an
            `EnvPolicy` names its random stream; None generates one.
        executor: Executor for the calls of a blocking environment; None uses the threads that all episodes
            of the process share (`gem_core._util.threads`).
        metadata: Entries to copy into `Episode.metadata`.
        on_turn: Function that is called with each turn as soon as it is recorded, for trainers that need
            rewards while the episode is running.
        log_errors: Whether to log `Episode.error` as a warning; False is for callers that report the errors
            of many episodes together.

    Returns:
        The episode. A failure of the environment, a limit, or an empty generation ends it early;
        `Episode.stop_reason` and `Episode.error` give the reason.

    Raises:
        ConfigError: An argument is out of range, or environment, policy, and context are incompatible.
        PolicyError: The policy returned an invalid generation, such as more than the requested tokens.
    """
    async with ClosedOnError(env) as closing:
        require_one_agent(env, "run_episode")
        closing.timeout = limits.step_timeout
        token_limits = TokenLimits(limits.max_tokens_per_turn, max_total_tokens, max_response_tokens)
        episode = start_episode(env, limits, token_limits, context.mode, seed, metadata)
        check_int("max_response_tokens", max_response_tokens, 1, optional=True)
        if context.mode == "messages" and (max_total_tokens is not None or max_response_tokens is not None):
            raise ConfigError(
                "max_total_tokens and max_response_tokens count tokens, which an episode in messages does "
                "not have; omit them, because the endpoint has its own limit"
            )
        context.require_images(env, policy)
        named = request_id is not None
        request_id = request_id or uuid.uuid4().hex
        bound: Any = policy.bind(env, request_id, named=named) if hasattr(policy, "bind") else policy
        calls = EnvCalls(env, executor, limits.step_timeout)
        spans = start_spans(episode, request_id)
        failure: BaseException | None = None
        try:
            dialogue = context.dialogue(env, bound, token_limits, request_id)
            observation = await calls.reset(seed, options)
            steps, dialogue = spans.around(calls, dialogue) if spans else (calls, dialogue)
            grows = context.mode == "append" and not (
                max_total_tokens is None and max_response_tokens is None
            )
            most_turns = limits.max_turns or (None if grows else MAX_TURNS)
            await _play(episode, observation, steps, dialogue, limits, most_turns, on_turn)
        except (EnvError, DataError) as error:  # DataError: an image that cannot be read
            end_episode(episode, "env_error", error=str(error))
            await closing.close()
        except BaseException as error:
            failure = error
            raise
        finally:
            forget = getattr(policy, "forget_request", None)
            if forget is not None:
                forget(request_id)
            episode.trainable = episode.error is None and bool(episode.turns)
            if spans is not None:
                spans.end(failure)
        if log_errors:
            log_failure(episode, env)
        return episode


def start_episode(
    env: Env, limits: EpisodeLimits, tokens: TokenLimits, mode: ContextMode, seed: int | None,
    metadata: Mapping[str, Any] | None,
) -> Episode:  # fmt: skip
    """Check the limits, and return an episode without turns; see `run_episode`."""
    limits.check_limits()
    if all(limit is None for limit in tokens):
        raise ConfigError(
            "max_tokens_per_turn=None requires max_total_tokens or max_response_tokens; set one of the three"
        )
    spec = env.spec
    return Episode(
        env_id=spec.id if spec else "",
        seed=seed,
        turns=[],
        terminated=False,
        truncated=False,
        stop_reason="truncated",
        context_mode=mode,
        env_kwargs=jsonable(spec.kwargs) if spec else {},
        metadata=jsonable(metadata or {}),
    )


def log_failure(episode: Episode, env: Env) -> None:
    """Log the error of an episode, if it has one."""
    if episode.error is not None:
        name = episode.env_id or type(env).__name__
        logger.warning("episode of %s, seed %s: %s", name, episode.seed, episode.error)


async def _play(
    episode: Episode,
    observation: Observation,
    calls: Stepping,
    dialogue: Dialogue,
    limits: EpisodeLimits,
    most_turns: int | None,
    on_turn: Callable[[Turn], None] | None,
) -> None:
    """Play from the first observation on and fill `episode`; turns before an `EnvError` are kept."""
    error = dialogue.begin(observation)
    if error is not None:
        end_episode(episode, "token_budget", error=error)
        return
    while True:
        try:
            answer = await dialogue.answer()
        except ContextFull as full:
            end_episode(episode, "token_budget", error=None if episode.turns else str(full))
            if episode.turns:
                episode.turns[-1].info["final_obs"] = jsonable(observation)
            return
        except RequestRejected as error:
            end_episode(episode, "policy_error", error=str(error))
            return
        if answer is None:
            end_episode(episode, "empty_response")
            return
        cut = answer.finish_reason == "length" and limits.on_length_cut == "invalid"
        said = answer.text if limits.thoughts == "keep" else without_thoughts(answer.text)
        action = "" if cut else said
        result = await calls.step(action)
        info = result.info
        if cut:
            info["invalid"] = "length"
        if answer.forged_tokens:
            info["forged_tokens"] = answer.forged_tokens
        if answer.notes or (cut and not answer.response_ids):  # without tokens the text would be lost
            info["reply"] = jsonable(answer.notes) | ({"text": answer.text} if cut else {})
        episode.turns.append(
            Turn(
                context_ids=answer.context_ids,
                response_ids=answer.response_ids,
                logprobs=answer.logprobs,
                reward=result.reward,
                observation=jsonable(observation),
                action=action,
                finish_reason=answer.finish_reason,
                info=info,
                parent=answer.parent,
            )
        )
        _set_thread(episode)
        if on_turn is not None:
            on_turn(episode.turns[-1])
        observation = result.observation
        if result.terminated:
            end_episode(episode, "terminated")
        elif result.truncated:
            end_episode(episode, "truncated")
        elif len(episode.turns) == most_turns:
            end_episode(episode, "max_turns")
            if limits.max_turns is None:
                name = episode.env_id or "an environment without an id"
                logger.warning("%s did not end within %d turns; set max_turns", name, most_turns)
        elif dialogue.observe(observation):
            if len(episode.turns) % _TURNS_PER_YIELD == 0:
                await asyncio.sleep(0)
            continue
        else:
            end_episode(episode, "token_budget")
        info["final_obs"] = jsonable(observation)
        return


def _set_thread(episode: Episode) -> None:
    """Put the newest turn in a thread of its own if the environment calls it a side turn.

    The thread belongs to the main turn before it, and the next main turn depends on its result.
    """
    *before, newest = episode.turns
    index, threads = len(before), episode.threads
    if newest.info.get("side_turn"):
        newest.thread = len(threads) + 1
        main = (i for i in reversed(range(index)) if before[i].thread == 0)
        threads[newest.thread] = Thread(next(main, None), None)
        return
    for turn in reversed(before):
        if turn.thread == 0:
            break
        threads[turn.thread] = threads[turn.thread]._replace(returns_to=index)


def end_episode(episode: Episode, reason: StopReason, error: str | None = None) -> None:
    """Set why an episode ended, and what that says about its task."""
    episode.stop_reason = reason
    episode.error = error
    episode.terminated = reason == "terminated"
    episode.truncated = not episode.terminated
