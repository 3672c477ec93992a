"""What a rollout leaves behind: `Turn`, `Episode` and the two views that trainers consume.

An episode holds sampled token ids; they are never decoded and encoded again. `Episode.sequence`
gives one row per episode, `Episode.transitions` one row per turn. Both carry the same response tokens,
log-probs and rewards.
"""

from __future__ import annotations

import copy
import math
import reprlib
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field
from numbers import Real
from typing import Any, Literal, NamedTuple, TypeAlias

from gem_core.core import Observation
from gem_core.errors import ConfigError, NonFiniteReward, TraceError
from gem_core.images import image_urls
from gem_core.rollout.images import put_back, take_out

SCHEMA_VERSION = 1
"""Of a record without images."""
IMAGES_VERSION = 2
"""Of a record whose images stand apart; see `gem_core.rollout.images`."""

FinishReason: TypeAlias = Literal["stop", "length"]
StopReason: TypeAlias = Literal[
    "terminated", "truncated", "max_turns", "token_budget", "empty_response", "env_error"
]
ContextMode: TypeAlias = Literal["append", "rebuild", "messages"]


@dataclass
class Turn:
    """One response of the policy and what the environment made of it.

    Attributes:
        context_ids: In append mode the tokens added since the previous response (turn 0: the whole
            prompt); in rebuild mode the whole prompt of this turn; in messages mode empty.
        response_ids: Sampled token ids, at least one; in messages mode none.
        logprobs: Log-probability of each response token under the sampling policy, same length as
            `response_ids`; None when the engine did not report them.
        reward: What `Env.step` paid for this turn.
        observation: What the model was shown before it answered.
        action: The text that went to the environment (empty for a response cut by the length limit,
            unless the runner was told to pass it on).
        finish_reason: Why generation stopped.
        info: The info dict of this step, reduced to JSON-able values.
        advantage: Credit of this turn; None until assigned, which is not a credit of zero.
    """

    context_ids: list[int]
    response_ids: list[int]
    logprobs: list[float] | None
    reward: float
    observation: Observation
    action: str
    finish_reason: FinishReason
    info: dict[str, Any] = field(default_factory=dict)
    advantage: float | None = None


class Sequence(NamedTuple):
    """One episode as one row; all lists have one entry per token."""

    token_ids: list[int]
    response_mask: list[int]
    """1 on response tokens, 0 elsewhere; a run of 1s is a turn."""
    turn_ids: list[int]
    """Turn number on response tokens, -1 elsewhere."""
    logprobs: list[float] | None
    """Of response tokens, 0.0 elsewhere; None when the engine did not report them."""
    rewards: list[float]
    """A turn's reward on its last response token, 0.0 elsewhere."""
    prompt_length: int
    """Number of tokens before the first response."""


class Transition(NamedTuple):
    """One turn as one row: a prompt and its response."""

    turn: int
    prompt_ids: list[int]
    response_ids: list[int]
    logprobs: list[float] | None
    reward: float


@dataclass
class Episode:
    """One episode of one environment.

    Attributes:
        env_id: Registered id; empty for an environment built by hand.
        seed: Seed of the reset; None when the environment's own stream went on.
        turns: In order.
        terminated: The task ended by its rules.
        truncated: A limit cut it; never together with `terminated`.
        stop_reason: Why it ended.
        error: What failed in the environment; None when nothing did.
        trainable: False for a failed environment or an episode without turns: kept out of the
            statistics and the loss.
        context_mode: How `Turn.context_ids` is to be read.
        env_kwargs: Keyword arguments of the environment, from its spec.
        metadata: Free JSON-able data (group, training step, policy version).
        env_retries: How many attempts at this episode failed before this one (`EnvPool.play`).
    """

    env_id: str
    seed: int | None
    turns: list[Turn]
    terminated: bool
    truncated: bool
    stop_reason: StopReason
    error: str | None = None
    trainable: bool = True
    context_mode: ContextMode = "append"
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    env_retries: int = 0

    @property
    def rewards(self) -> list[float]:
        """Reward per turn."""
        return [turn.reward for turn in self.turns]

    @property
    def total_reward(self) -> float:
        """Undiscounted return of the episode."""
        return math.fsum(self.rewards)

    @property
    def success(self) -> bool:
        """Whether the environment said that the task was solved."""
        return bool(self.turns) and bool(self.turns[-1].info.get("success", False))

    @property
    def num_response_tokens(self) -> int:
        """Tokens that the policy sampled."""
        return sum(len(turn.response_ids) for turn in self.turns)

    def sequence(self) -> Sequence:
        """The episode as one row.

        Raises:
            ConfigError: The episode was rolled out in rebuild mode: its turns share no prefix.
        """
        if self.context_mode != "append":
            instead = "; use transitions()" if self.context_mode == "rebuild" else ", it holds no tokens"
            raise ConfigError(
                f"an episode of context mode {self.context_mode!r} has no single sequence{instead}"
            )
        token_ids: list[int] = []
        turn_ids: list[int] = []
        logprobs: list[float] = []
        rewards: list[float] = []
        for number, turn in enumerate(self.turns):
            context, response = len(turn.context_ids), len(turn.response_ids)
            token_ids += turn.context_ids + turn.response_ids
            turn_ids += [-1] * context + [number] * response
            logprobs += [0.0] * context + (turn.logprobs or [0.0] * response)
            rewards += [0.0] * (context + response - 1) + [turn.reward]
        return Sequence(
            token_ids=token_ids,
            response_mask=[int(turn_id >= 0) for turn_id in turn_ids],
            turn_ids=turn_ids,
            logprobs=None if any(turn.logprobs is None for turn in self.turns) else logprobs,
            rewards=rewards,
            prompt_length=len(self.turns[0].context_ids) if self.turns else 0,
        )

    def transitions(self) -> list[Transition]:
        """The episode as one row per turn, in either context mode that has tokens.

        Raises:
            ConfigError: The episode holds messages, not tokens.
        """
        if self.context_mode == "messages":
            raise ConfigError("an episode of context mode 'messages' holds no tokens to train on")
        rows = []
        history: list[int] = []
        for number, turn in enumerate(self.turns):
            prompt_ids = history + turn.context_ids if self.context_mode == "append" else turn.context_ids
            rows.append(Transition(number, list(prompt_ids), turn.response_ids, turn.logprobs, turn.reward))
            history = [*prompt_ids, *turn.response_ids]
        return rows

    def images(self, turn: int | None = None) -> tuple[str, ...]:
        """The images whose places are in a row, in order, each as a data URL.

        Args:
            turn: The row is that of this turn in `transitions`; None for the row of `sequence`.
        """
        end = len(self.turns) if turn is None else turn + 1
        start = end - 1 if self.context_mode == "rebuild" else 0
        return tuple(url for shown in self.turns[start:end] for url in image_urls(shown.observation))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form with the schema version: `IMAGES_VERSION` where there are images."""
        fields = asdict(self)
        if images := take_out(fields["turns"]):
            return {"schema_version": IMAGES_VERSION, **fields, "images": images}
        return {"schema_version": SCHEMA_VERSION, **fields}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Episode:
        """Inverse of `to_dict`.

        Raises:
            TraceError: Another schema version, missing or unknown keys, or values of another kind.
        """
        fields = dict(data)
        version = fields.pop("schema_version", None)
        if version not in (SCHEMA_VERSION, IMAGES_VERSION):
            raise TraceError(
                f"trace schema version {version!r} is not supported; expected {SCHEMA_VERSION} or "
                f"{IMAGES_VERSION}"
            )
        try:
            turns = fields.pop("turns")
            if version == IMAGES_VERSION:
                turns = copy.deepcopy(turns)
                put_back(turns, fields.pop("images"))
            for turn in turns:
                _require_kinds(turn, _TURN_KINDS)
            _require_kinds(fields, _EPISODE_KINDS)
            return cls(turns=[Turn(**turn) for turn in turns], **fields)
        except (TypeError, KeyError, AttributeError) as error:
            raise TraceError(f"not an episode of schema version {version}: {error}") from None


_TURN_KINDS: dict[str, Any] = {
    "context_ids": Collection, "response_ids": Collection, "reward": Real, "observation": (str, list),
    "action": str, "info": dict,
}  # fmt: skip
_EPISODE_KINDS: dict[str, Any] = {"env_id": str, "env_kwargs": dict, "metadata": dict, "env_retries": int}


def _require_kinds(fields: dict[str, Any], kinds: dict[str, Any]) -> None:
    for name, kind in kinds.items():
        if name in fields and not isinstance(fields[name], kind):
            raise TypeError(f"{name} cannot be {reprlib.repr(fields[name])}")


def trainable_turn_rewards(episodes: Iterable[Episode]) -> list[list[float]]:
    """Turn rewards of the trainable episodes: what the estimators in `gem_core.advantages` take.

    Raises:
        NonFiniteReward: Names the episode and the turn.
    """
    rewards = []
    for number, episode in enumerate(episodes):
        for turn, reward in enumerate(episode.rewards):
            if not math.isfinite(reward):
                raise NonFiniteReward(
                    f"episode {number} ({episode.env_id}, seed {episode.seed}), turn {turn}: reward {reward}"
                )
        if episode.trainable:
            rewards.append(episode.rewards)
    return rewards
