"""`EpisodeLimits`: the limits of an episode and the handling of failures in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias, get_args

from gem_core._util.checks import check_choice, check_int, check_number

MAX_TURNS = 1000
"""Turn limit of an episode that neither `EpisodeLimits.max_turns` nor a limit on its tokens ends."""

LengthCut: TypeAlias = Literal["invalid", "pass"]
Thoughts: TypeAlias = Literal["drop", "keep"]
OnEnvError: TypeAlias = Literal["mask", "retry"]


@dataclass(frozen=True, kw_only=True)
class EpisodeLimits:
    """Limits of an episode. The configs of trainers and evaluations inherit these options.

    Attributes:
        max_turns: Maximum number of turns; the environment may end the episode sooner. None for no limit if a
            token limit ends the episode, else for `MAX_TURNS`: the prompts of a rebuilt context do not grow,
            and messages are not counted in tokens.
        max_tokens_per_turn: Maximum number of tokens in a response. None allows as many as the other limits
            leave.
        on_length_cut: What the environment receives for a response that was cut by the token limit.
            "invalid" sends an empty text and marks the turn with ``invalid="length"``, because a cut text may
            contain a valid move by accident; "pass" sends the text.
        thoughts: What the environment receives of the thoughts in a response, ``<think>...</think>``. "drop"
            sends the answer only, so nothing in a thought counts, such as a call or a box; "keep" sends the
            thoughts, too.
        step_timeout: Maximum number of seconds for the constructor, a reset, or a step of a blocking
            environment, counted from the moment a thread starts the call, and for closing any environment.
            The time in which a call waits for a place of a bounded resource, such as the sandbox, does not
            count. None means no limit (30 s for a close). A thread cannot be stopped: the call continues in
            it, and the environment is closed when the call returns.
        on_env_error: What `EnvPool` does with an episode whose environment failed. "mask" returns it, and it
            is excluded from statistics and loss; "retry" first plays it again, with the same seed and a
            fresh environment. Masking alone favors tasks that seldom fail, which are often the short ones.
        harness: Program that owns the loop of the agent: a registered name, ``module:attribute``, or a
            command line, see `gem_agents.harness`. None for the loop of `run_episode`.
        harness_timeout: Maximum number of seconds for the program, without the time in which the model
            samples. None means no limit.
        max_env_retries: Maximum number of further attempts with "retry"; the last attempt is returned even if
            it failed.
    """

    max_turns: Annotated[
        int | None, "maximum turns per episode; the environment's own limit still applies"
    ] = None
    max_tokens_per_turn: Annotated[int | None, "maximum tokens per response"] = 512
    on_length_cut: Annotated[
        LengthCut,
        "what the environment receives for a response cut by the token limit: empty text, or the cut text",
    ] = "invalid"
    thoughts: Annotated[
        Thoughts, "what the environment receives of <think>...</think>: nothing, or the thoughts, too"
    ] = "drop"
    step_timeout: Annotated[
        float | None, "maximum seconds per environment call, including the constructor; unlimited if not set"
    ] = None
    on_env_error: Annotated[
        OnEnvError, "if an environment fails: exclude the episode, or play it again first"
    ] = "mask"
    max_env_retries: Annotated[int, "maximum retries per episode with 'retry'"] = 2
    harness: Annotated[
        str | None, "program that owns the loop of the agent: a name, module:attribute, or a command"
    ] = None
    harness_timeout: Annotated[
        float | None, "maximum seconds for the harness, without the model's; unlimited if not set"
    ] = None

    def check_limits(self, prefix: str = "") -> None:
        """Check the values.

        Args:
            prefix: Text that a user writes before the name of an option, for messages.

        Raises:
            ConfigError: A value has the wrong type or is out of range.
        """
        check_int(f"{prefix}max_turns", self.max_turns, 1, optional=True)
        check_int(f"{prefix}max_tokens_per_turn", self.max_tokens_per_turn, 1, optional=True)
        check_choice(f"{prefix}on_length_cut", self.on_length_cut, get_args(LengthCut))
        check_choice(f"{prefix}thoughts", self.thoughts, get_args(Thoughts))
        check_number(f"{prefix}step_timeout", self.step_timeout, above=0, optional=True)
        check_choice(f"{prefix}on_env_error", self.on_env_error, get_args(OnEnvError))
        check_int(f"{prefix}max_env_retries", self.max_env_retries, 1)
        check_number(f"{prefix}harness_timeout", self.harness_timeout, above=0, optional=True)
