r"""Null policies: players that answer without reading the environment's replies.

`POLICIES` holds the policies, and `FORMS` the formats in which environments expect answers. `play` plays all
of them on one item, and the oracle's actions of other items, which `replays` records. If such a player is
often rewarded, the environment has few possible answers, a skewed distribution of answers, a routine that
wins blindly, or a scorer that can be fooled; `gem_lab._checker.floors` has the measured success rates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, permutations
from random import Random
from typing import Any, NamedTuple

from gem_core import Env, render_observation
from gem_core._util.seeds import derive_rng
from gem_envs._text import boxes
from gem_envs.text import last_boxed

NullPolicy = Callable[[str, Random], tuple[str, ...]]
"""Function that takes the first prompt and a random generator, and returns answers to repeat in turn."""

FORMS: dict[str, str] = {
    "boxed": "\\boxed{%s}",
    "tag": "<answer>%s</answer>",
    "program": "```python\n%s\n```",
    "command": "```bash\n%s\n```",
    "bare": "%s",
}
"""Formats of an answer, by name; ``%s`` stands for the answer."""

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_WORD = re.compile(r"[^\W\d_]+")
_ITEM = re.compile(r"^[ \t]*(?:[-*\u2022]|\(?(?:[A-Z]|\d{1,2})[.):])[ \t]+(\S.{0,200})$", re.MULTILINE)
_ALTERNATIVES = re.compile(r"[\"'`]([^\"'`\n]{1,40})[\"'`](?:, [\"'`][^\"'`\n]{1,40}[\"'`])*,? or [\"'`]")
_CHOICES = re.compile(r"\bor ([^\W\d_]+)[.?]?\s*\Z")
_RANGE = re.compile(r"\bfrom 1 to (\d{1,9})\b")
_GRID = re.compile(r"\b(\d{1,3}) rows and (\d{1,3}) columns\b")
_COMMAND = re.compile(r"\\boxed\{([a-z]+) \d+ \d+\}")
_LONGEST = 50_000
"""Maximum number of characters of a prompt that are read."""


def _constant(*answers: str) -> NullPolicy:
    return lambda prompt, random: answers


def _first_number(prompt: str, random: Random) -> tuple[str, ...]:
    match = _NUMBER.search(prompt)
    return (match[0] if match else "",)


def _last_number(prompt: str, random: Random) -> tuple[str, ...]:
    numbers: list[str] = _NUMBER.findall(prompt)
    return (numbers[-1] if numbers else "",)


def _first_option(prompt: str, random: Random) -> tuple[str, ...]:
    """Return the first of several quoted alternatives, else the first list item, else the first word."""
    match = _ALTERNATIVES.search(prompt) or _ITEM.search(prompt) or _WORD.search(prompt)
    return (match[match.lastindex or 0].strip() if match else "",)


def _random_word(prompt: str, random: Random) -> tuple[str, ...]:
    words = _WORD.findall(prompt)
    return (random.choice(words) if words else "",)


def _shown_box(prompt: str, random: Random) -> tuple[str, ...]:
    return (last_boxed(prompt) or "",)


def _shown_boxes(prompt: str, random: Random) -> tuple[str, ...]:
    return tuple(boxes(prompt))[::-1] or ("",)


def _last_choice(prompt: str, random: Random) -> tuple[str, ...]:
    """Return the last of the choices that end the prompt: ``You may check or bet``."""
    match = _CHOICES.search(prompt)
    return (match[1] if match else "",)


def _codes(prompt: str, random: Random) -> tuple[str, ...]:
    """Return all arrangements of as many numbers as the last box of the prompt has, at most a thousand."""
    largest, shown = _RANGE.search(prompt), last_boxed(prompt) or ""
    if largest is None or not re.fullmatch(r"\d+(?: \d+)+", shown):
        return ("",)
    numbers = map(str, range(1, min(int(largest[1]), 99) + 1))
    codes = islice(permutations(numbers, len(shown.split())), 1000)
    return tuple(map(" ".join, codes)) or ("",)


def _corners(prompt: str, random: Random) -> tuple[str, ...]:
    """Return the first box of the prompt with the center and the corners of the grid as its two numbers."""
    grid, command = _GRID.search(prompt), _COMMAND.search(prompt)
    if grid is None or command is None:
        return ("",)
    bottom, right = int(grid[1]) - 1, int(grid[2]) - 1
    cells = (bottom // 2, right // 2), (0, 0), (bottom, right), (0, right), (bottom, 0)
    return tuple(f"{command[1]} {row} {column}" for row, column in cells)


POLICIES: dict[str, NullPolicy] = {
    "empty": _constant(""),
    **{text: _constant(text) for text in ("0", "1", "True", "False", "Yes", "No", "nan", "inf")},
    "first number": _first_number,
    "last number": _last_number,
    "first option": _first_option,
    "random word": _random_word,
    "shown box": _shown_box,
    "question": lambda prompt, random: (prompt,),
    "shown boxes in turn": _shown_boxes,
    "counting": _constant(*map(str, range(1, 1000))),
    "letters": _constant(*"etaoinsrhldcumfpgwybvkxjqz"),
    "circle": _constant("up", "left", "down", "right"),
    "wide circle": _constant("up", "up", "left", "left", "down", "down", "right", "right"),
    "zigzag": _constant("down", "left", "down", "right"),
    "last choice": _last_choice,
    "codes": _codes,
    "corners": _corners,
    "diagonals": _constant("1", "5", "9", "3", "7"),
    "tower": _constant("A C", "A B", "C B", "A C", "B A", "B C", "A C"),
}
"""Null policies by name.

``shown box`` repeats the last box of the prompt, which shows the answer format. The policies from ``shown
boxes in turn`` on give several answers in turn, but ``last choice`` repeats one.
"""

REPLAYED = range(1000, 1010)
"""Seeds whose oracle actions are replayed on other seeds."""


class NullOutcome(NamedTuple):
    """Result of one episode of one policy."""

    form: str
    policy: str
    success: bool
    total_reward: float
    readable: bool
    """Whether the environment could read any of the answers."""


def replays(
    env: Env, seeds: Iterable[int] = REPLAYED, *, max_turns: int = 1000
) -> dict[str, tuple[str, ...]]:
    """Return the oracle's actions in one episode per seed, without the seeds for which it has none.

    Args:
        env: Environment, which is reset and left in an arbitrary state.
        seeds: Random seeds of the episodes.
        max_turns: Number of steps after which an episode is left.

    Returns:
        Actions by the name of the player that repeats them, ``oracle of seed 1000`` for example.
    """
    played = {f"oracle of seed {seed}": _oracle_actions(env, seed, max_turns) for seed in seeds}
    return {name: actions for name, actions in played.items() if actions}


def _oracle_actions(env: Env, seed: int, max_turns: int) -> tuple[str, ...]:
    env.reset(seed=seed)
    actions: list[str] = []
    while len(actions) < max_turns and (action := env.oracle_action()) is not None:
        actions.append(action)
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            break
    return tuple(actions)


def play(
    env: Env,
    seed: int,
    *,
    forms: Iterable[str] = FORMS,
    policies: Mapping[str, NullPolicy] = POLICIES,
    replays: Mapping[str, tuple[str, ...]] | None = None,
    max_turns: int = 1000,
) -> Iterator[NullOutcome]:
    """Play every policy in each form on one item.

    Args:
        env: Environment, which is reset and left in an arbitrary state.
        seed: Random seed of the item.
        forms: Names from `FORMS`.
        policies: Null policies by name.
        replays: Actions to play as they are, by the name of the player; None stands for no such player.
        max_turns: Number of steps after which an unfinished episode counts as failed.

    Yields:
        One outcome per form and policy, in the order of `forms` and `policies`, and then one per member of
        `replays`, in the form ``bare``.
    """
    observation, info = env.reset(seed=seed)
    prompt = visible_text(render_observation(observation, info))[:_LONGEST]
    stateful = env.spec is None or env.spec.stateful
    start = env.get_state() if stateful else None
    players = [
        (form, name, tuple(FORMS[form] % answer for answer in policy(prompt, derive_rng(name, seed))))
        for form in forms
        for name, policy in policies.items()
    ]
    players += [("bare", name, actions) for name, actions in (replays or {}).items()]
    known: dict[tuple[str, ...], _Result] = {}
    for form, name, answers in players:
        result = known.get(answers) or known.get(answers[:1])
        if result is None or (result.turns > 1 and answers not in known):
            if known and start is not None:
                env.set_state(start)
            elif known:
                env.reset(seed=seed)
            result = known[answers] = _episode(env, answers, max_turns)
        yield NullOutcome(form, name, result.success, result.total_reward, result.readable)


def readable_forms(outcomes: Iterable[NullOutcome]) -> list[str]:
    """Return the forms in which the environment could read an answer.

    The policy that repeats the question is ignored, because a question may contain any form, and so are
    replays. A program that is read in one kind of code block is also read in the other, so only one is
    returned.
    """
    read = {outcome.form for outcome in outcomes if _shows_form(outcome)}
    return [form for form in FORMS if form in read and (form != "command" or "program" not in read)]


def find_readable_forms(env: Env, seed: int, max_turns: int = 1000) -> list[str]:
    """Return `readable_forms` of one item, playing only until each form was read once."""
    first = (
        next(filter(_shows_form, play(env, seed, forms=[form], max_turns=max_turns)), None) for form in FORMS
    )
    return readable_forms(outcome for outcome in first if outcome)


def _shows_form(outcome: NullOutcome) -> bool:
    return outcome.readable and outcome.policy != "question" and outcome.policy in POLICIES


class _Result(NamedTuple):
    success: bool
    total_reward: float
    readable: bool
    turns: int


def _episode(env: Env, answers: Sequence[str], max_turns: int) -> _Result:
    total, readable = 0.0, False
    for turn in range(max_turns):
        _, reward, terminated, truncated, info = env.step(answers[turn % len(answers)])
        total += reward
        readable = readable or info.get("invalid") != "format"
        if terminated or truncated:
            return _Result(bool(info.get("success")), total, readable, turn + 1)
    return _Result(False, total, readable, max_turns)


def visible_text(observation: Any) -> str:
    """Return the text of an observation, without images."""
    if isinstance(observation, str):
        return observation
    return "\n".join(part["text"] for part in observation if part.get("type") == "text")
