"""The plan of a run: what `gem-core doctor --trainer NAME -- ARGUMENTS` prints for accepted arguments.

    Plan(
        sources=count_rows([("train", "openai/gsm8k", "single_turn_agent", "the trainer's score")]),
        estimator=choice.summary,
        budget=[describe_budget(12, 320, 1024, "data.max_response_length")],
    )

A check of names and types accepts a run that trains on the wrong thing. The plan says what plays each row,
what rewards it, and how much of an episode fits, so that a user can see it before the run starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gem_core._core import Split
from gem_core.rollout._limits import MAX_TURNS


class SourceRows(NamedTuple):
    """Rows of one source that the same thing plays and rewards.

    Attributes:
        split: "train" or "eval".
        source: Environment, value of ``data_source``, or file.
        player: What plays the rows, such as the name of an agent loop.
        reward: What rewards them.
        rows: Number of rows; None if the source has no end.
    """

    split: Split
    source: str
    player: str
    reward: str
    rows: int | None

    def __str__(self) -> str:
        rows = "rows" if self.rows is None else f"{self.rows:,} rows" if self.rows != 1 else "1 row"
        return f"{self.split}: {rows} of {self.source}, played by {self.player}, rewarded by {self.reward}"


@dataclass(frozen=True)
class Plan:
    """What a run would do.

    Attributes:
        sources: Rows by source.
        estimator: The estimator, its options, and the turns over which its statistics are computed.
        budget: Sentences about the tokens that an episode may use.
        notes: Sentences about options that have no effect, or another one than their name suggests.
    """

    sources: Sequence[SourceRows]
    estimator: str
    budget: Sequence[str] = ()
    notes: Sequence[str] = ()

    def lines(self) -> list[str]:
        """Return the plan as lines of text."""
        lines = [str(source) for source in self.sources]
        lines.append(f"estimator: {self.estimator}")
        lines += [f"tokens: {text}" for text in self.budget]
        return lines + [f"note: {text}" for text in self.notes]


def count_rows(rows: Iterable[tuple[Split, str, str, str]]) -> list[SourceRows]:
    """Count rows by split, source, player, and reward, in the order in which each first appears.

    Args:
        rows: Split, source, player, and reward of each row; see `SourceRows`.
    """
    return [SourceRows(*kind, count) for kind, count in Counter(rows).items()]


def describe_budget(
    max_turns: int | None,
    max_tokens_per_turn: int | None,
    limit: int | None,
    option: str,
    *,
    with_prompt: bool = False,
) -> str:
    """Return a sentence about the tokens of an episode, and whether they fit into the trainer's limit.

    Args:
        max_turns: Maximum number of turns; None if the environment or `limit` ends an episode.
        max_tokens_per_turn: Maximum number of tokens of a response; None if only `limit` does.
        limit: Maximum number of tokens of an episode after its first prompt, observations included; None if
            there is no such limit.
        option: Name that a user writes for `limit`.
        with_prompt: Whether `limit` counts the tokens of the first prompt as well.
    """
    if max_turns is None and limit is None:
        max_turns = MAX_TURNS  # as in `EpisodeLimits`
    counted = "prompt and observations" if with_prompt else "observations"
    turn_tokens = max_tokens_per_turn if max_tokens_per_turn is not None else limit
    turns = "any number of turns" if max_turns is None else f"{max_turns:,} turn{'s' * (max_turns != 1)}"
    if turn_tokens is None:
        return f"an episode has {turns} of any length"
    text = f"an episode has {turns} of at most {turn_tokens:,} sampled tokens"
    if limit is None:
        return text
    if max_turns is None:
        return f"{text}; it is cut at {option}={limit:,} tokens, {counted} included"
    total = max_turns * turn_tokens
    if total <= limit:
        return f"{text}, {total:,} in all; {option}={limit:,} leaves {limit - total:,} for {counted}"
    return f"{text}, {total:,} in all, but it is cut at {option}={limit:,} tokens, {counted} included"


def describe_truncation(prefix: str, sampling_params: Mapping[str, Any]) -> list[str]:
    """Return a note about each sampling parameter that keeps the engine from sampling some of the tokens.

    Args:
        prefix: Text that a user writes before the name of a parameter.
        sampling_params: Values of "top_p", "top_k", and "min_p"; others are ignored.
    """
    neutral = {"top_p": (None, 1), "top_k": (None, 0, -1), "min_p": (None, 0)}
    return [
        f"{prefix}{name}={sampling_params[name]}: the engine samples from fewer tokens than the log-probs "
        "cover, so the importance ratio and the gradient are those of another distribution"
        for name, values in neutral.items()
        if sampling_params.get(name) not in values
    ]
