"""The result of a rollout: `Turn`, `Episode`, and its `Row`s, which trainers consume.

An episode holds the sampled token ids, which are never decoded and encoded again. `Episode.episode_row`
returns the episode as one row, `Episode.turn_rows` returns one row per turn. Both contain the same response
tokens, log-probs, and rewards.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import reprlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from numbers import Real
from typing import Any, Literal, TypeAlias

from gem_core._util.urls import data_without_secrets
from gem_core.core import Observation
from gem_core.errors import ConfigError, NonFiniteReward, TraceError
from gem_core.images import image_urls
from gem_core.rollout.images import extract_images, has_images, restore_images

SCHEMA_VERSION = 1
"""Schema version of a record without images."""
IMAGES_VERSION = 2
"""Schema version of a record that stores its images separately; see `gem_core.rollout.images`."""

FinishReason: TypeAlias = Literal["stop", "length"]
StopReason: TypeAlias = Literal[
    "terminated", "truncated", "max_turns", "token_budget", "empty_response", "policy_error", "env_error"
]
ContextMode: TypeAlias = Literal["append", "rebuild", "messages"]


@dataclass
class Turn:
    """One response of the policy and its result in the environment.

    Attributes:
        context_ids: Prompt tokens. In append mode, the tokens added since the previous response (turn 0: the
            whole prompt); in rebuild mode, the whole prompt of this turn; in messages mode, empty.
        response_ids: Sampled token ids, at least one; empty in messages mode.
        logprobs: Log-probability of each response token under the sampling policy, same length as
            `response_ids`; None if the engine did not report them.
        reward: Reward that `Env.step` returned for this turn.
        observation: The observation to which the model responded.
        action: The text sent to the environment; empty for a response cut by the length limit, unless
            `EpisodeLimits.on_length_cut` is "pass".
        finish_reason: Why generation stopped.
        info: The info dict of this step, reduced to values that JSON can represent.
        advantage: Advantage of this turn; None (not 0) until it is assigned.
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


Span: TypeAlias = tuple[int, int]
"""Start and end (exclusive) of a response in its row, as token indices."""


@dataclass
class Row:
    """One row of a training batch. Every list has one entry per token.

    Attributes:
        token_ids: The prompt and all tokens after it.
        turn_ids: Index of the turn within this row on response tokens, -1 elsewhere. All -1 in the row of
            an episode that is not trainable.
        rewards: Reward of each turn on its last response token, 0.0 elsewhere.
        logprobs: Log-probability of each response token under the sampling policy, 0.0 elsewhere. None if
            the engine did not report them.
        prompt_length: Number of tokens before the first response.
        turns: Indices within the episode of the turns in this row.
        images: Data URLs of the images whose placeholders are in the row, in order.
    """

    token_ids: list[int]
    turn_ids: list[int]
    rewards: list[float]
    logprobs: list[float] | None
    prompt_length: int
    turns: range
    images: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def response_mask(self) -> list[int]:
        """1 on response tokens, 0 elsewhere."""
        return [int(turn >= 0) for turn in self.turn_ids]

    @property
    def spans(self) -> list[Span]:
        """Start and end of the response of each turn in the row."""
        lengths, starts = [0] * len(self.turns), [-1] * len(self.turns)
        for position, turn in enumerate(self.turn_ids):
            if turn >= 0:
                starts[turn] = position if starts[turn] < 0 else starts[turn]
                lengths[turn] += 1
        spans: list[Span] = []
        end = self.prompt_length
        for start, length in zip(starts, lengths, strict=True):
            start = end if start < 0 else start  # an empty response has no token to find
            end = start + length
            spans.append((start, end))
        return spans

    @property
    def prompt_ids(self) -> list[int]:
        """The tokens before the first response."""
        return self.token_ids[: self.prompt_length]

    @property
    def response_ids(self) -> list[int]:
        """The tokens from the first response on, including the observations in between."""
        return self.token_ids[self.prompt_length :]

    def logprobs_or_zeros(self) -> list[float]:
        """Return `logprobs`, or zeros if the engine did not report them."""
        return [0.0] * len(self) if self.logprobs is None else self.logprobs


@dataclass
class Episode:
    """One episode of one environment.

    Attributes:
        env_id: Registered id; empty for an environment that was not created from a spec.
        seed: Seed of the reset; None if the environment continued its own random stream.
        turns: The turns, in order.
        terminated: Whether the task ended by its rules.
        truncated: Whether a limit or a failure cut the episode; never true together with `terminated`.
        stop_reason: Why the episode ended.
        error: Failure of the environment, or reason why the first prompt left no room for a response; None if
            nothing failed.
        trainable: Whether statistics and loss include the episode. False if the environment failed or the
            episode has no turns.
        context_mode: Meaning of `Turn.context_ids`.
        env_kwargs: Keyword arguments of the environment, from its spec.
        metadata: Arbitrary data that JSON can represent, such as group, training step, or policy version.
        env_retries: Number of failed attempts at this episode before this one (`EnvPool.play`).
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
        """Whether the environment reported that the task was solved."""
        return bool(self.turns) and bool(self.turns[-1].info.get("success", False))

    @property
    def num_response_tokens(self) -> int:
        """Number of tokens that the policy sampled."""
        return sum(len(turn.response_ids) for turn in self.turns)

    @property
    def agent(self) -> str:
        """The agent of a multi-agent environment that the policy played; empty in other environments."""
        reported = (turn.info.get("agent") for turn in self.turns[:1])
        return str(self.metadata.get("agent") or next(reported, None) or self.env_kwargs.get("agent") or "")

    def state_keys(self) -> list[str]:
        """Return a key of the state in which each turn began, the same in every process.

        The key is the value that the environment reported in ``info["state_key"]`` in the previous step or,
        by default, a hash of all observations since the reset: turns with equal keys saw the same
        observations.
        """
        digest = hashlib.sha256()
        keys = []
        for number, turn in enumerate(self.turns):
            digest.update(json.dumps(turn.observation, sort_keys=True).encode() + b"\n")
            reported = self.turns[number - 1].info.get("state_key") if number else None
            keys.append(digest.hexdigest() if reported is None else str(reported))
        return keys

    def episode_row(self) -> Row:
        """Return the episode as one row.

        Raises:
            ConfigError: The turns share no prefix (context mode "rebuild"), or the episode holds no tokens.
        """
        if self.context_mode != "append":
            instead = "use turn rows" if self.context_mode == "rebuild" else "it holds no tokens"
            raise ConfigError(
                f"an episode in context mode {self.context_mode!r} is not a single row; {instead}"
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
        return Row(
            token_ids,
            turn_ids,
            rewards,
            None if any(turn.logprobs is None for turn in self.turns) else logprobs,
            len(self.turns[0].context_ids) if self.turns else 0,
            range(len(self.turns)),
            self.images(),
        )

    def turn_rows(self) -> list[Row]:
        """Return one row per turn, in context mode "append" or "rebuild".

        Raises:
            ConfigError: The episode holds messages, not tokens.
        """
        if self.context_mode == "messages":
            raise ConfigError("an episode in context mode 'messages' holds no tokens to train on")
        rows = []
        history: list[int] = []
        for number, turn in enumerate(self.turns):
            prompt_ids = history + turn.context_ids if self.context_mode == "append" else turn.context_ids
            prompt, response = len(prompt_ids), len(turn.response_ids)
            history = [*prompt_ids, *turn.response_ids]
            rows.append(
                Row(
                    history,
                    [-1] * prompt + [0] * response,
                    [0.0] * (prompt + response - 1) + [turn.reward],
                    None if turn.logprobs is None else [0.0] * prompt + list(turn.logprobs),
                    prompt,
                    range(number, number + 1),
                    self.images(number),
                )
            )
        return rows

    def images(self, turn: int | None = None) -> tuple[str, ...]:
        """Return the images whose placeholders are in a row, in order, each as a data URL.

        Args:
            turn: Index of the turn, for its turn row; None for the episode row.
        """
        end = len(self.turns) if turn is None else turn + 1
        start = end - 1 if self.context_mode == "rebuild" else 0
        return tuple(url for shown in self.turns[start:end] for url in image_urls(shown.observation))

    def to_dict(self) -> dict[str, Any]:
        """Return the episode as data for JSON; the schema version is `IMAGES_VERSION` if it has images.

        Without images, the data shares token lists and infos with the episode, because copying them would
        take most of the time. URLs in `env_kwargs` have no passwords and keys.
        """
        turns = [dict(vars(turn)) for turn in self.turns]
        env_kwargs = data_without_secrets(self.env_kwargs)
        if not has_images(turns):
            return {"schema_version": SCHEMA_VERSION, **vars(self), "turns": turns, "env_kwargs": env_kwargs}
        fields = {**asdict(self), "env_kwargs": env_kwargs}
        return {"schema_version": IMAGES_VERSION, **fields, "images": extract_images(fields["turns"])}

    @classmethod
    def from_dict(cls, data: dict[str, Any], *, check_types: bool = True) -> Episode:
        """Create an episode from the output of `to_dict`.

        Args:
            data: The output of `to_dict`, also after a round trip through JSON.
            check_types: Whether to check the types of the values; False saves time for data that another
                process of the same run has just written.

        Raises:
            TraceError: The schema version is not supported, keys are missing or unknown, or a value has the
                wrong type.
        """
        fields = dict(data)
        version = fields.pop("schema_version", None)
        if version not in (SCHEMA_VERSION, IMAGES_VERSION):
            raise TraceError(
                f"trace schema version {version!r} is not supported: expected {SCHEMA_VERSION} or "
                f"{IMAGES_VERSION}"
            )
        try:
            turns = fields.pop("turns")
            if version == IMAGES_VERSION:
                turns = copy.deepcopy(turns)
                restore_images(turns, fields.pop("images"))
            if check_types:
                for turn in turns:
                    _require_kinds(turn, _TURN_KINDS)
                _require_kinds(fields, _EPISODE_KINDS)
            return cls(turns=[Turn(**turn) for turn in turns], **fields)
        except (TypeError, KeyError, AttributeError) as error:
            raise TraceError(f"not an episode of schema version {version}: {error}") from None


_TURN_KINDS: dict[str, Any] = {
    "context_ids": (list, Collection), "response_ids": (list, Collection), "reward": (float, int, Real),
    "observation": (str, list), "action": str, "info": dict,
}  # fmt: skip
"""Concrete types come first, because checks against abstract ones are slow."""
_EPISODE_KINDS: dict[str, Any] = {"env_id": str, "env_kwargs": dict, "metadata": dict, "env_retries": int}


def _require_kinds(fields: dict[str, Any], kinds: dict[str, Any]) -> None:
    for name, kind in kinds.items():
        if name in fields and not isinstance(fields[name], kind):
            raise TypeError(f"{name} cannot be {reprlib.repr(fields[name])}")


def trainable_turn_rewards(episodes: Iterable[Episode]) -> list[list[float]]:
    """Return the turn rewards of the trainable episodes, for the estimators in `gem_core.advantages`.

    Raises:
        NonFiniteReward: A reward is NaN or infinite; the message names the episode and the turn.
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


def trainable_reward_components(episodes: Iterable[Episode]) -> list[list[list[float]]]:
    """Return the components of the turn rewards of the trainable episodes, for the estimator GDPO.

    The components are the values that steps reported in ``info["reward_components"]``, in the order of their
    names; a component that a step did not report is 0. If the components do not sum to the reward, for
    example because of a wrapper's penalty, the difference is an additional component, the last one.

    Returns:
        One list per episode, with one list of components per turn.

    Raises:
        ConfigError: No step reported components.
    """
    trainable = [episode for episode in episodes if episode.trainable]
    return tabulate_components(
        [episode.rewards for episode in trainable],
        [reported_components(episode) for episode in trainable],
        [episode.env_id for episode in trainable],
    )


def reported_components(episode: Episode) -> list[dict[str, float]]:
    """Return the components of the reward of each turn, by name, as its step reported them."""
    return [turn.info.get("reward_components") or {} for turn in episode.turns]


def tabulate_components(
    rewards: Sequence[Sequence[float]],
    reported: Sequence[Sequence[Mapping[str, float]]],
    env_ids: Iterable[str],
) -> list[list[list[float]]]:
    """Do the same as `trainable_reward_components` with the parts of trainable episodes.

    Args:
        rewards: Rewards of the turns of each episode.
        reported: Components of each turn of each episode, by name.
        env_ids: Environment of each episode, for the message.
    """
    names = sorted({name for turns in reported for turn in turns for name in turn})
    if rewards and not names:
        envs = ", ".join(sorted(set(env_ids)))
        raise ConfigError(f"{envs}: no step reported info['reward_components'], which the estimator needs")
    rests = [
        [reward - math.fsum(turn.values()) for reward, turn in zip(of_episode, turns, strict=True)]
        for of_episode, turns in zip(rewards, reported, strict=True)
    ]
    size = max((abs(reward) for of_episode in rewards for reward in of_episode), default=0.0)
    has_rest = any(abs(rest) > 1e-9 * size for turns in rests for rest in turns)
    return [
        [
            [*(float(turn.get(name, 0.0)) for name in names), *([rest] if has_rest else [])]
            for turn, rest in zip(turns, turn_rests, strict=True)
        ]
        for turns, turn_rests in zip(reported, rests, strict=True)
    ]
