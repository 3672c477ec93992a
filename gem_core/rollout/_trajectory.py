"""The result of a rollout: an `Episode`, which `Episode.rows` lays out for trainers.

An episode holds the sampled token ids, which are never decoded and encoded again.
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
from typing import Any, Literal, TypeAlias, get_args

from gem_core._images import image_urls
from gem_core._util.checks import check_choice
from gem_core._util.urls import data_without_secrets
from gem_core.errors import ConfigError, NonFiniteReward, TraceError
from gem_core.rollout._images import extract_images, has_images, restore_images
from gem_core.rollout._rows import Row, RowSplit, lay_out, masked_row
from gem_core.rollout._turn import Thread, Turn, parents_of, whole_prompts

SCHEMA_VERSION = 3
"""Schema version of the records that `Episode.to_dict` returns."""
_OLD_VERSIONS = (1, 2)
"""Versions without `Turn.parent`: every prompt continued the previous turn, or no turn in rebuild mode."""

StopReason: TypeAlias = Literal[
    "terminated", "truncated", "max_turns", "token_budget", "empty_response", "policy_error", "env_error"
]
ContextMode: TypeAlias = Literal["append", "template", "rebuild", "messages"]


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
        context_mode: What an observation shows: what is new since the parent of the turn ("append") or since
            the turn before ("template"), or everything again ("rebuild"); "messages" if the turns hold no
            tokens.
        env_kwargs: Keyword arguments of the environment, from its spec.
        metadata: Arbitrary data that JSON can represent, such as group, training step, or policy version.
        env_retries: Number of failed attempts at this episode before this one (`EnvPool.play`).
        threads: The side threads by number, such as sub-agents and calls that summarize the history, with the
            turns that they belong to. Empty if all turns are in the main thread, 0.
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
    threads: dict[int, Thread] = field(default_factory=dict)

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
        for index, turn in enumerate(self.turns):
            digest.update(json.dumps(turn.observation, sort_keys=True).encode() + b"\n")
            reported = self.turns[index - 1].info.get("state_key") if index else None
            keys.append(digest.hexdigest() if reported is None else str(reported))
        return keys

    def rows(self, split: RowSplit = "auto", *, pad_id: int | None = None) -> list[Row]:
        """Return the episode as rows of a training batch, in the order of their first turns.

        A turn whose prompt continues the tokens of a row is in that row, any other turn begins a row, so an
        episode whose prompts only grow is one row. Every split has the same response tokens, log-probs, and
        rewards.

        Args:
            split: "auto" for as few rows as the prompts allow, "turn" for one row per turn, for trainers that
                take a single response per row.
            pad_id: Token of the masked row that represents an episode that is not trainable, for trainers
                that expect a row from every episode. None returns no row for such an episode.

        Raises:
            ConfigError: The episode holds messages instead of tokens.
        """
        check_choice("split", split, get_args(RowSplit))
        if not self.trainable:
            return [] if pad_id is None else [masked_row(pad_id)]
        return lay_out(self._with_tokens(), split, self.images)

    def only_row(self, pad_id: int) -> Row:
        """Return the row of the episode, for trainers that take one row per episode.

        Args:
            pad_id: As in `rows`.

        Raises:
            ConfigError: The episode has several rows, of which such a trainer would lose all but one, or it
                holds messages instead of tokens.
        """
        rows = self.rows(pad_id=pad_id)
        if len(rows) != 1:
            raise ConfigError(
                f"an episode of {self.env_id} has {len(rows)} rows, because its history was rewritten, but "
                "this trainer takes one row per episode; use an agent that only appends messages, or "
                "another trainer"
            )
        return rows[0]

    def prompts(self) -> list[list[int]]:
        """Return the whole prompt of each turn.

        Raises:
            ConfigError: The episode holds messages instead of tokens.
        """
        return whole_prompts(self._with_tokens())

    def _with_tokens(self) -> list[Turn]:
        if self.context_mode == "messages":
            raise ConfigError("an episode in context mode 'messages' holds no tokens to train on")
        return self.turns

    def images(self, turn: int) -> tuple[str, ...]:
        """Return the images in the prompt of a turn, in the order of their placeholders, each as a data URL.

        Args:
            turn: Index of the turn.
        """
        is_template = self.context_mode == "template"  # each prompt shows the whole history
        parents, path = [None, *range(turn)] if is_template else parents_of(self.turns), [turn]
        # The observation of a rebuilt context shows everything again.
        while self.context_mode != "rebuild" and (parent := parents[path[-1]]) is not None:
            path.append(parent)
        return tuple(url for shown in reversed(path) for url in image_urls(self.turns[shown].observation))

    def to_dict(self) -> dict[str, Any]:
        """Return the episode as data for JSON; images are stored once, under "images".

        Without images, the data shares token lists and infos with the episode, because copying them would
        take most of the time. URLs in `env_kwargs` have no passwords and keys.
        """
        turns = [dict(vars(turn)) for turn in self.turns]
        env_kwargs = data_without_secrets(self.env_kwargs)
        if not has_images(turns):
            return {"schema_version": SCHEMA_VERSION, **vars(self), "turns": turns, "env_kwargs": env_kwargs}
        fields = {**asdict(self), "env_kwargs": env_kwargs}
        return {"schema_version": SCHEMA_VERSION, **fields, "images": extract_images(fields["turns"])}

    @classmethod
    def from_dict(cls, data: dict[str, Any], *, check_types: bool = True) -> Episode:
        """Create an episode from the output of `to_dict`, also of the older schema versions 1 and 2.

        Args:
            data: The output of `to_dict`, also after a round trip through JSON.
            check_types: Whether to check the types of the values; False saves time for data that another
                process of the same run has just written.

        Raises:
            TraceError: The schema version is not supported, keys are missing or unknown, a value has the
                wrong type, or the parent of a turn is not an earlier one.
        """
        fields = dict(data)
        version = fields.pop("schema_version", None)
        if version not in (*_OLD_VERSIONS, SCHEMA_VERSION):
            raise TraceError(
                f"trace schema version {version!r} is not supported: expected 1 to {SCHEMA_VERSION}"
            )
        try:
            turns = fields.pop("turns")
            if check_types:
                for turn in turns:
                    _require_kinds(turn, _TURN_KINDS)
                _require_kinds(fields, _EPISODE_KINDS)
            if has_images(turns):
                turns = copy.deepcopy(turns)
                restore_images(turns, fields.pop("images", {}))
            if version in _OLD_VERSIONS and fields.get("context_mode") == "rebuild":
                turns = [{**turn, "parent": None} for turn in turns]
            fields["threads"] = {
                int(number): Thread(*thread) for number, thread in fields.get("threads", {}).items()
            }
            episode = cls(turns=[Turn(**turn) for turn in turns], **fields)
            if check_types:
                parents_of(episode.turns)
            return episode
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise TraceError(f"not an episode of schema version {version}: {error}") from None


_TURN_KINDS: dict[str, Any] = {
    "context_ids": (list, Collection), "response_ids": (list, Collection), "reward": (float, int, Real),
    "observation": (str, list), "action": str, "info": dict, "parent": (int, type(None)),
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
    for index, episode in enumerate(episodes):
        for turn, reward in enumerate(episode.rewards):
            if not math.isfinite(reward):
                raise NonFiniteReward(
                    f"episode {index} ({episode.env_id}, seed {episode.seed}), turn {turn}: reward {reward}"
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
        [reward - math.fsum(turn.values()) for reward, turn in zip(episode_rewards, turns, strict=True)]
        for episode_rewards, turns in zip(rewards, reported, strict=True)
    ]
    size = max((abs(reward) for episode_rewards in rewards for reward in episode_rewards), default=0.0)
    has_rest = any(abs(rest) > 1e-9 * size for turns in rests for rest in turns)
    return [
        [
            [*(float(turn.get(name, 0.0)) for name in names), *([rest] if has_rest else [])]
            for turn, rest in zip(turns, turn_rests, strict=True)
        ]
        for turns, turn_rests in zip(reported, rests, strict=True)
    ]
