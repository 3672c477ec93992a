"""`EpisodeLimits`: the limits of an episode and the handling of failures in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias

from gem_core._util.options import Bounds, check_options

MAX_TURNS = 1000
"""Turn limit of an episode that neither `EpisodeLimits.max_turns` nor a limit on its tokens ends."""

LengthCut: TypeAlias = Literal["invalid", "pass"]
Thoughts: TypeAlias = Literal["drop", "keep"]
OnEnvError: TypeAlias = Literal["mask", "retry"]


@dataclass(frozen=True, kw_only=True)
class EpisodeLimits:
    """Limits of an episode. The configs of trainers and evaluations inherit these options.

    A response that was cut by the token limit may contain a valid move by accident, so the environment gets
    an empty text and the turn is marked with ``invalid="length"``, unless `on_length_cut` is "pass".

    The clock of `step_timeout` starts when a thread starts the call; waiting for a place of a bounded
    resource, such as the sandbox, does not count. Without it, a close may take 30 s. A thread cannot be
    stopped: the call continues in it, and the environment is closed when the call returns.

    `on_env_error` is for `EnvPool`. Masking alone favors tasks that seldom fail, which are often the short
    ones.
    """

    title: ClassVar = "limits of an episode"

    max_turns: Annotated[
        int | None,
        "maximum turns per episode; the environment and the token limits may end it earlier. If not set and "
        "no token limit applies, as in rebuilt contexts, 1,000",
        Bounds(1),
    ] = None
    max_tokens_per_turn: Annotated[
        int | None, "maximum tokens per response; if not set, as many as the other limits leave", Bounds(1)
    ] = 512
    on_length_cut: Annotated[
        LengthCut,
        "what the environment receives for a response cut by the token limit: an empty text (invalid), or "
        "the cut text (pass)",
    ] = "invalid"
    thoughts: Annotated[
        Thoughts,
        "whether the environment receives the thoughts in a response, <think>...</think>; if dropped, "
        "nothing in them counts, such as a call or a box",
    ] = "drop"
    step_timeout: Annotated[
        float | None,
        "maximum seconds for the constructor, a reset, a step, or a close of a blocking environment; "
        "unlimited if not set",
        Bounds(above=0),
    ] = None
    on_env_error: Annotated[
        OnEnvError,
        "if an environment fails: exclude the episode (mask), or first play it again with the same seed and "
        "a fresh environment (retry)",
    ] = "mask"
    max_env_retries: Annotated[
        int,
        "maximum further attempts per episode with retry; the last one counts even if it failed",
        Bounds(1),
    ] = 2
    harness: Annotated[
        str | None,
        "program that owns the loop of the agent: a registered name, `module:attribute`, or a command line; "
        "if not set, gem-core's own loop",
    ] = None
    harness_timeout: Annotated[
        float | None,
        "maximum seconds for the harness, without the time of its model calls; unlimited if not set",
        Bounds(above=0),
    ] = None

    def check_limits(self, prefix: str = "") -> None:
        """Check the values.

        Args:
            prefix: Text that a user writes before the name of an option, for messages.

        Raises:
            ConfigError: A value has the wrong type or is out of range.
        """
        check_options(self, prefix, EpisodeLimits)


@dataclass(frozen=True, kw_only=True)
class TokenLimit:
    """The limit of a whole episode, for programs whose engine has no option for it."""

    title: ClassVar = EpisodeLimits.title

    max_total_tokens: Annotated[
        int | None,
        "maximum tokens per episode, prompts and observations included (default: the model's context)",
        Bounds(1),
    ] = None
