"""A batch of `batches.json` as rows of tensors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from gem_core.advantages import Threads
from gem_core.rollout import Episode, Thread, Turn


def read_batches() -> list[dict[str, Any]]:
    """Return the batches, in the order of the file."""
    data = json.loads(Path(__file__).with_name("batches.json").read_text(encoding="utf-8"))
    batches: list[dict[str, Any]] = data["batches"]
    return batches


class ExactRows:
    """The rows of a batch, in the order in which the turns were sampled.

    Args:
        batch: A batch of `read_batches`.

    Attributes:
        mask: 1.0 on response tokens and 0.0 elsewhere, float32 (rows, tokens).
        turn_ids: Index of the turn within the row, -1 elsewhere, int64 (rows, tokens).
        rewards: Reward of each turn on its last token, float32 (rows, tokens).
        episodes: Key of the episode of each row.
        indices: Index of each row among the rows of its episode.
        turns: Indices within the episode of the turns of each row.
        groups: Group of each row.
        threads: Threads of the episode of each row; None for the main thread only.
        group_sizes: Number of episodes of each group, failed ones included.
        played: The episodes, whose `Episode.rows` are these rows behind a prompt of one token. The metadata
            has the group.
    """

    def __init__(self, batch: dict[str, Any]) -> None:
        self.episodes: list[str] = []
        self.indices: list[int] = []
        self.turns: list[list[int]] = []
        self.groups: list[str] = []
        self.threads: list[Threads | None] = []
        self._scores: list[float] = []
        ids: list[list[int]] = []
        rewards: list[list[float]] = []
        for number, episode in enumerate(batch["episodes"]):
            links = {int(thread): (*link, False) for thread, link in episode["threads"].items()}
            threads = Threads(tuple(turn["thread"] for turn in episode["turns"]), links) if links else None
            failed = episode["failed"]
            for row in range(1 + max(turn["row"] for turn in episode["turns"])):
                turns = [n for n, turn in enumerate(episode["turns"]) if turn["row"] == row]
                row_ids: list[int] = []
                earned: list[float] = []
                for n in turns:
                    turn = episode["turns"][n]
                    gap, tokens = turn["gap"] if row_ids else 0, turn["tokens"]
                    row_ids += [-1] * gap + [-1 if failed else turns.index(n)] * tokens
                    reward = 0.0 if failed else float(Fraction(turn["reward"]))
                    earned += [0.0] * (gap + tokens - 1) + [reward]
                ids.append(row_ids)
                rewards.append(earned)
                self.episodes.append(f"{episode['group']}_{number}")
                self.indices.append(row)
                self.turns.append([] if failed else turns)
                self.groups.append(episode["group"])
                self.threads.append(threads)
                score = sum(Fraction(turn["reward"]) for turn in episode["turns"])
                self._scores.append(0.0 if failed else float(score))
        width = max(map(len, ids))
        self.turn_ids = torch.tensor([row_ids + [-1] * (width - len(row_ids)) for row_ids in ids])
        self.mask = (self.turn_ids >= 0).float()
        self.rewards = torch.tensor(
            [row_rewards + [0.0] * (width - len(row_rewards)) for row_rewards in rewards]
        )
        members = [episode["group"] for episode in batch["episodes"]]
        self.group_sizes = [members.count(group) for group in dict.fromkeys(members)]
        self.played = [_play(episode) for episode in batch["episodes"]]

    def scores(self) -> torch.Tensor:
        """Return the score of the episode on the last response token of each row, float32 (rows, tokens).

        Trainers that have one score per sample copy it to all of its rows.
        """
        last = (self.mask.cumsum(1) * self.mask).argmax(1, keepdim=True)
        return torch.zeros_like(self.mask).scatter(1, last, torch.tensor(self._scores)[:, None])

    def spread(self, values: Sequence[Sequence[float]]) -> torch.Tensor:
        """Return the value of each turn on its tokens, 0 elsewhere, float32 (rows, tokens).

        Args:
            values: For each episode, the values of its turns; unused if it failed.
        """
        known = dict(zip(dict.fromkeys(self.episodes), values, strict=True))
        rows = zip(self.episodes, self.turns, self.turn_ids, strict=True)
        return torch.stack(
            [
                torch.tensor([*(known[episode][turn] for turn in turns), 0.0])[ids]
                for episode, turns, ids in rows
            ]
        )


def _play(episode: dict[str, Any]) -> Episode:
    """Return an episode of a batch; all of its tokens are 1."""
    turns: list[Turn] = []
    ends: dict[int, int] = {}  # the last turn of each row
    for index, turn in enumerate(episode["turns"]):
        parent = ends.get(turn["row"])
        context, back = (1, None) if parent is None else (turn["gap"], parent - index)
        turns.append(
            Turn(
                [1] * context, [1] * turn["tokens"], None, float(Fraction(turn["reward"])), "", "", "stop",
                parent=back, thread=turn["thread"],
            )
        )  # fmt: skip
        ends[turn["row"]] = index
    failed = episode["failed"]
    return Episode(
        "conform", 0, turns, not failed, failed, "env_error" if failed else "terminated",
        error="failed" if failed else None, trainable=not failed, metadata={"group": episode["group"]},
        threads={int(thread): Thread(*link) for thread, link in episode["threads"].items()},
    )  # fmt: skip
