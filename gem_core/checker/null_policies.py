r"""Players that solve nothing: each gives one answer that it could give without understanding the task.

`POLICIES` holds them, `FORMS` the ways in which an environment may want an answer to be written. `play`
plays all of them on one item. An environment whose reward such a player earns often has few answers, a
skewed distribution of answers, or a scorer that can be fooled; `gem_core.checker.floors` has the measured
success rates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any, NamedTuple

from gem_core._util.seeds import derive_rng
from gem_core.core import Env
from gem_core.observations import render_observation
from gem_core.text import last_boxed

NullPolicy = Callable[[str, Random], str]
"""The answer to a prompt."""

FORMS: dict[str, str] = {
    "boxed": "\\boxed{%s}",
    "tag": "<answer>%s</answer>",
    "program": "```python\n%s\n```",
    "command": "```bash\n%s\n```",
    "bare": "%s",
}
"""Ways of writing an answer, by name; ``%s`` is where it goes."""

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_WORD = re.compile(r"[^\W\d_]+")
_ITEM = re.compile(r"^[ \t]*(?:[-*\u2022]|\(?(?:[A-Z]|\d{1,2})[.):])[ \t]+(\S.{0,200})$", re.MULTILINE)
_ALTERNATIVES = re.compile(r"[\"'`]([^\"'`\n]{1,40})[\"'`](?:, [\"'`][^\"'`\n]{1,40}[\"'`])*,? or [\"'`]")
_LONGEST = 50_000
"""Characters of a prompt that are read."""


def _constant(text: str) -> NullPolicy:
    return lambda prompt, random: text


def _first_number(prompt: str, random: Random) -> str:
    match = _NUMBER.search(prompt)
    return match[0] if match else ""


def _last_number(prompt: str, random: Random) -> str:
    numbers: list[str] = _NUMBER.findall(prompt)
    return numbers[-1] if numbers else ""


def _first_option(prompt: str, random: Random) -> str:
    """The first of several quoted alternatives, else the first item of a list, else the first word."""
    match = _ALTERNATIVES.search(prompt) or _ITEM.search(prompt) or _WORD.search(prompt)
    return match[match.lastindex or 0].strip() if match else ""


def _random_word(prompt: str, random: Random) -> str:
    words = _WORD.findall(prompt)
    return random.choice(words) if words else ""


def _shown_box(prompt: str, random: Random) -> str:
    return last_boxed(prompt) or ""


POLICIES: dict[str, NullPolicy] = {
    "empty": _constant(""),
    **{text: _constant(text) for text in ("0", "1", "True", "False", "Yes", "No", "nan", "inf")},
    "first number": _first_number,
    "last number": _last_number,
    "first option": _first_option,
    "random word": _random_word,
    "shown box": _shown_box,
    "question": lambda prompt, random: prompt,
}
"""The players by name. ``shown box`` repeats the box in which the prompt shows how to answer."""


class NullOutcome(NamedTuple):
    """One episode of one player."""

    form: str
    policy: str
    success: bool
    total_reward: float
    readable: bool
    """Whether any of its answers was read as an answer."""


def play(
    env: Env, seed: int, *, forms: Iterable[str] = FORMS, max_turns: int = 1000
) -> Iterator[NullOutcome]:
    """Every player in each of `forms` on the item of `seed`; the same answer every turn.

    Args:
        env: Is reset, and left in some position.
        seed: Of the item.
        forms: Names from `FORMS`.
        max_turns: An episode that goes on after so many steps has failed.

    Yields:
        One outcome for each form and player, in the order of `FORMS` and `POLICIES`.
    """
    observation, info = env.reset(seed=seed)
    prompt = _text(render_observation(observation, info))[:_LONGEST]
    stateful = env.spec is None or env.spec.stateful
    start = env.get_state() if stateful else None
    known: dict[str, tuple[bool, float, bool]] = {}
    for form in forms:
        for name, policy in POLICIES.items():
            answer = FORMS[form] % policy(prompt, derive_rng(name, seed))
            if answer not in known:
                if known and start is not None:
                    env.set_state(start)
                elif known:
                    env.reset(seed=seed)
                known[answer] = _episode(env, answer, max_turns)
            yield NullOutcome(form, name, *known[answer])


def readable_forms(outcomes: Iterable[NullOutcome]) -> list[str]:
    """The forms in which the environment read an answer; the question may hold one in any form.

    A program that is read in one kind of code block is read in the other as well: one of them is enough.
    """
    read = {outcome.form for outcome in outcomes if outcome.readable and outcome.policy != "question"}
    return [form for form in FORMS if form in read and (form != "command" or "program" not in read)]


def _episode(env: Env, answer: str, max_turns: int) -> tuple[bool, float, bool]:
    total, readable = 0.0, False
    for _ in range(max_turns):
        _, reward, terminated, truncated, info = env.step(answer)
        total += reward
        readable = readable or info.get("invalid") != "format"
        if terminated or truncated:
            return bool(info.get("success")), total, readable
    return False, total, readable


def _text(observation: Any) -> str:
    """What can be read of an observation; images are left out."""
    if isinstance(observation, str):
        return observation
    return "\n".join(part["text"] for part in observation if part.get("type") == "text")
