"""Assembles a record from the files of a trainer's shared spies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from gem_core.rollout import Episode, Turn
from gem_lab.consistency import Played, Record, compare
from gem_lab.consistency._compare import Comparison
from gem_lab.train._batches import policy_gradient
from tests.consistency.scenario import NOTE, Scenario
from tests.trainers.evidence import Row, Update, load_weights

_TASK = re.compile(r"Task (\d+)\.")


def turn_ids_of(mask: Sequence[int]) -> list[int]:
    """Return the number of the run of 1s at each position, -1 where the mask is 0."""
    ids, number, before = [], -1, 0
    for on in mask:
        number += int(bool(on) and not before)
        ids.append(number if on else -1)
        before = on
    return ids


def carried_episodes(spy: Path) -> list[tuple[list[int], Episode]]:
    """Return the tokens of each episode's first row and its outline, from ``carried.jsonl`` of a spy."""
    lines = [json.loads(line) for line in (spy / "carried.jsonl").read_text().splitlines()]
    return [(line["token_ids"], Episode.from_dict(line["episode"])) for line in lines]


def from_rows(rows: Iterable[Row], carried: Iterable[tuple[list[int], Episode]]) -> list[Played]:
    """Return the episodes of a trainer with one row per episode.

    Args:
        rows: Rows as the loss consumed them.
        carried: Tokens and outline of each episode; an outline that is not trainable needs no tokens.
    """
    left = [row for row in rows if not row.is_pad]
    found = []
    for tokens, outline in carried:
        made = Played(outline.env_id, outline.seed or 0, outline.trainable)
        made.copy_outcome(outline)
        if outline.trainable:
            row = next((row for row in left if row.prompt + row.response == tokens), None)
            assert row is not None, (
                f"{outline.env_id}, seed {outline.seed}: no row of the loss has its tokens"
            )
            left.remove(row)
            fill(made, row)
        found.append(made)
    assert not left, f"{len(left)} rows of the loss belong to no episode"
    return found


def from_turns(rows: Iterable[Row], carried: Iterable[Episode], tokenizer: Any) -> list[Played]:
    """Return the episodes of a trainer with one row per turn and append contexts.

    Each row begins with the tokens of the previous rows of its episode.

    Args:
        rows: Rows as the loss consumed them.
        carried: Outline of each episode; their order is unrelated to the rows.
        tokenizer: Tokenizer of the model.
    """
    chains, found = _chains(rows, list), []
    for outline in carried:
        made = Played(outline.env_id, outline.seed or 0, outline.trainable)
        made.copy_outcome(outline)
        if outline.trainable:
            chain = next(
                chain
                for chain in chains
                if task_seed(chain[0].prompt, tokenizer) == outline.seed and len(chain) == len(outline.turns)
            )
            chains.remove(chain)
            fill(made, _joined(chain))
        found.append(made)
    assert not chains, f"{len(chains)} chains of rows belong to no episode"
    return found


def _chains(rows: Iterable[Row], read: Callable[[list[int]], Any]) -> list[list[Row]]:
    """Return the rows of each episode in order: the prompt of a row begins with all of the row before it.

    Args:
        rows: Rows of the loss.
        read: Returns what is compared of a row's tokens: the tokens, or their text.
    """
    left = sorted(
        ((read(row.prompt), read(row.prompt + row.response), row) for row in rows), key=lambda of: len(of[1])
    )
    chains = []
    while left:
        start, _, row = left.pop()  # the longest remaining row ends an episode
        chain = [row]
        while before := [of for of in left if len(of[1]) < len(start) and start[: len(of[1])] == of[1]]:
            left.remove(before[-1])
            start, _, row = before[-1]
            chain.insert(0, row)
        chains.append(chain)
    return chains


def chains_of(rows: Iterable[Row], tokenizer: Any) -> list[list[Row]]:
    """Return the rows of each episode in order; each shows the text of the one before (`REWRITING`)."""
    left = [row for row in rows if not row.is_pad]
    return _chains(left, lambda ids: tokenizer.decode(ids).removeprefix(NOTE))


def unweighted(chains: Sequence[Sequence[Row]]) -> list[list[Row]]:
    """Return the rows of each episode without the factors that a mean over rows of means needs.

    The factors make each token weigh as in a mean over episodes of means, see `gem_core.trainers._weights`.
    """
    rows_per_episode = sum(map(len, chains)) / len(chains)
    found = []
    for chain in chains:
        tokens = sum(sum(row.mask) for row in chain)
        factors = [sum(row.mask) / tokens * rows_per_episode for row in chain]
        pairs = zip(chain, factors, strict=True)
        found.append([replace(row, advantages=[a / factor for a in row.advantages]) for row, factor in pairs])
    return found


def from_row_means(
    rows: Iterable[Row], carried: Iterable[tuple[list[int], Episode]], tokenizer: Any
) -> list[Played]:
    """Return the episodes of a trainer with several rows per episode, whose loss averages over rows of means.

    Args:
        rows: Rows as the loss consumed them.
        carried: See `from_chains`.
        tokenizer: Tokenizer of the model.
    """
    chains = unweighted(chains_of(rows, tokenizer))
    return from_chains([joined_turns(chain) for chain in chains], carried, tokenizer)


def joined_turns(chain: Sequence[Row]) -> list[Row]:
    """Join rows of one turn each where the prompt of a row begins with the tokens of the row before it."""
    parts: list[list[Row]] = []
    for row in chain:
        before = parts[-1][-1].prompt + parts[-1][-1].response if parts else []
        if before and row.prompt[: len(before)] == before:
            parts[-1].append(row)
        else:
            parts.append([row])
    return [_joined(part) for part in parts]


def from_chains(
    chains: Iterable[Sequence[Row]], carried: Iterable[tuple[list[int], Episode]], tokenizer: Any
) -> list[Played]:
    """Return the episodes of a trainer with several rows per episode.

    Args:
        chains: The rows of each episode in order, with the advantages of its turns.
        carried: The first tokens, which may be none, and the outline of each episode.
        tokenizer: Tokenizer of the model.
    """
    left, found = [read_rows(chain, tokenizer) for chain in chains], []
    for tokens, outline in carried:
        made = Played(outline.env_id, outline.seed or 0, outline.trainable)
        if outline.trainable:
            wanted = (outline.seed, tokens, len(outline.turns))
            played = (
                one for one in left if (one.seed, one.token_ids[: len(tokens)], len(one.advantages)) == wanted
            )
            made = next(played)
            left.remove(made)
            made.env_id = outline.env_id
        made.copy_outcome(outline)
        found.append(made)
    assert not left, f"the rows of {len(left)} episodes belong to none that was carried"
    return found


def read_rows(chain: Sequence[Row], tokenizer: Any) -> Played:
    """Return seed, tokens, turns, and advantages of an episode from its rows."""
    made, turns = Played("", task_seed(chain[0].prompt, tokenizer)), 0
    token_advantages: list[float] = []
    for row in chain:
        part = Played("", 0)
        fill(part, row)
        made.token_ids += part.token_ids
        made.turn_ids += [turn + turns if turn >= 0 else -1 for turn in part.turn_ids]
        token_advantages += [0.0] * len(row.prompt) + row.advantages
        turns += len(part.advantages)
    made.row_lengths = [len(row.prompt) + len(row.response) for row in chain] if len(chain) > 1 else []
    made.read_advantages(token_advantages)
    return made


def _joined(chain: Sequence[Row]) -> Row:
    """Return one row with all turns."""
    first, last = chain[0], chain[-1]
    start = len(first.prompt)
    size = len(last.prompt) + len(last.response) - start
    mask, advantages = [0] * size, [0.0] * size
    for row in chain:
        place = slice(len(row.prompt) - start, len(row.prompt) - start + len(row.response))
        mask[place], advantages[place] = row.mask, row.advantages
    tokens = last.prompt + last.response
    return Row(first.prompt, tokens[start:], mask, advantages, [], None, None)


def fill(made: Played, row: Row) -> None:
    """Set tokens, turns, and advantages from a row."""
    made.token_ids = row.prompt + row.response
    made.turn_ids = [-1] * len(row.prompt) + turn_ids_of(row.mask)
    made.read_advantages([0.0] * len(row.prompt) + row.advantages)


def task_seed(token_ids: Sequence[int], tokenizer: Any) -> int:
    """Return the seed of the task, which the wrapper "named" wrote into the prompt."""
    found = _TASK.search(tokenizer.decode(token_ids))
    assert found
    return int(found[1])


def gradient_difference(
    update: Update, core: Record, model: Any, factor: float = 1.0, *, episode_means: bool = False
) -> float:
    """Return |gradient - reference| / |reference|, with the reference trainer's gradient on `core`.

    Args:
        update: Weights and gradients of the trainer's first step.
        core: Expected inputs of the step.
        model: Model of the same architecture, in float32.
        factor: Known factor of the trainer's objective relative to the mean over tokens.
        episode_means: Whether it is a mean over episodes of the means over their tokens.
    """
    load_weights(model, update.weights)
    episodes = [episode_of(played) for played in core.episodes if played.trainable]
    if episode_means:
        tokens = sum(episode.num_response_tokens for episode in episodes)
        for episode in episodes:
            for turn in episode.turns:
                weight = tokens / (len(episodes) * episode.num_response_tokens)
                turn.advantage = (turn.advantage or 0.0) * weight
    wanted = list(policy_gradient(model, episodes).values())
    pairs = list(zip(update.gradients, wanted, strict=True))
    gap = torch.cat([((0 if g is None else g / factor) - w).double().flatten() for g, w in pairs])
    return float(gap.norm() / torch.cat([w.double().flatten() for w in wanted]).norm())


def lengths(played: Played) -> list[tuple[int, int]]:
    """Return, for each turn, the number of tokens since the previous turn, and of its own tokens."""
    found, before = [], 0
    for turn in range(len(played.advantages)):
        first = played.turn_ids.index(turn)
        size = played.turn_ids.count(turn)
        found.append((first - before, size))
        before = first + size
    return found


def episode_of(played: Played) -> Episode:
    """Return an episode with the same tokens, rewards, and advantages."""
    turns, start, ids = [], 0, played.token_ids
    begins = {0, *accumulate(played.row_lengths)}
    values = zip(lengths(played), played.rewards or [], played.advantages, strict=True)
    for (context, size), reward, advantage in values:
        middle, end = start + context, start + context + size
        turn = Turn(ids[start:middle], ids[middle:end], [0.0] * size, reward, "", "", "stop", {}, advantage)
        turn.parent = None if start in begins else -1
        turns.append(turn)
        start = end
    return Episode(played.env_id, played.seed, turns, True, False, "terminated", trainable=played.trainable)


def judge(
    made: Scenario,
    trainer: str,
    packages: Sequence[str],
    command: str,
    episodes: list[Played],
    gradient: float | None,
    *,
    reference: str = "core",
    not_carried: Mapping[str, str] | None = None,
    notes: Mapping[str, float] | None = None,
    checkout: Mapping[str, str] | None = None,
) -> Comparison:
    """Write the trainer's record next to the others, and compare it with gem_core's.

    `checkout` has the versions of software that is not installed as a package.
    """
    record = Record(
        trainer,
        {**(checkout or {}), **{package: version(package) for package in packages}},
        command,
        made.model_hash(),
        episodes,
        reference,
        dict(not_carried or {}),
        gradient,
        dict(notes or {}),
    )
    record.write(made.records / f"{trainer}.json")
    return compare(made.core(reference), record)
