"""How a chat template ends an answer: `find_answer_end`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from gem_chat._chat_templates import THOUGHT_FIELDS
from gem_chat._probes import ADVICE, LAST_ANSWERS, MESSAGES, QUESTIONS, THOUGHT, after, system_messages
from gem_chat._template import Render
from gem_core.errors import UnsupportedTemplate


@dataclass(frozen=True)
class AnswerEnd:
    """The tokens with which a template ends an answer.

    Attributes:
        space: Number of whitespace tokens that the template puts before `closing`.
        closing: Tokens that follow an answer before a message, from the first to the last special token of
            the end; empty if the template ends an answer with plain text.
        opens: Whether `closing` opens the next message, so that no other token can take its place.
        stops: Special tokens that end an answer and never occur inside one, in order.
        inside: Texts of special tokens that end an answer and also end a part of one, such as its thoughts,
            by id.
    """

    space: int
    closing: list[int]
    opens: bool
    stops: list[int]
    inside: dict[int, str]

    def extra_stop_id(self, known: Collection[int], *, required: bool = True) -> int | None:
        """Return the token at which an engine must stop in addition to `known`; None if it needs none.

        Args:
            known: Tokens at which the engine stops.
            required: Whether it is an error if there is no such token.

        Raises:
            UnsupportedTemplate: Each token that ends an answer also occurs inside one.
        """
        ends = self.stops or [*self.inside]
        if not ends or any(token_id in known for token_id in ends):
            return None
        if self.stops or not required:
            return self.stops[-1] if self.stops else None
        raise UnsupportedTemplate(
            f"the chat template writes {', '.join(map(repr, self.inside.values()))} both inside an answer "
            "and at its end, so an engine cannot tell where an answer ends; add the token that ends it to "
            f"eos_token_id in the model's generation_config.json, or {ADVICE}"
        )

    def written(self, response_ids: Sequence[int], stop_ids: Collection[int]) -> int:
        """Return the number of leading tokens of `closing` that need not be added to a response.

        Args:
            response_ids: The response.
            stop_ids: Tokens at which the engine stops by itself. One at the end of a response takes the place
                of `closing`, as ``<|return|>`` and ``<|call|>`` of gpt-oss do, or ``<|endoftext|>`` of Qwen.
        """
        for count in range(len(self.closing), 0, -1):
            if list(response_ids[-count:]) == self.closing[:count]:
                return count
        return 0 if self.opens else len(self.closing) * self._stopped(response_ids, stop_ids)

    def length(self, response_ids: Sequence[int], stop_ids: Collection[int]) -> int:
        """Return the number of tokens at the end of a response that end it and are not part of the answer."""
        for count in range(min(len(self.closing), len(response_ids)), 0, -1):
            if list(response_ids[-count:]) == self.closing[:count]:
                return count
        return int(self._stopped(response_ids, stop_ids))

    def _stopped(self, response_ids: Sequence[int], stop_ids: Collection[int]) -> bool:
        return bool(response_ids) and (response_ids[-1] in self.stops or response_ids[-1] in stop_ids)


def find_answer_end(
    render: Render,
    encode: Callable[[str], list[int]],
    decode: Callable[[list[int]], str],
    atomic_ids: frozenset[int],
    *,
    role: str = "user",
    system_prompt: str | None = None,
) -> AnswerEnd:
    """Determine how a template ends an answer.

    The special tokens that follow both an answer before a message and the last answer of a text end it. If
    they share none, the ones after the last answer do: gpt-oss ends an answer with ``<|return|>``, and has
    ``<|end|>`` after earlier answers and after each of their parts. If the last answer ends with none, the
    message after an answer does: GLM's models stop at ``<|user|>``.

    Args:
        render: The template.
        encode: Function from text to token ids, without added tokens.
        decode: Function from token ids to text that keeps special tokens.
        atomic_ids: Ids that the encoder never merges with adjacent tokens.
        role: Role of the message after an answer.
        system_prompt: First message of each conversation; None for no system message.

    Raises:
        UnsupportedTemplate: The template does not show an answer unchanged, or fails.
    """
    answer, message = LAST_ANSWERS[0], {"role": role, "content": MESSAGES[1]}
    history: list[dict[str, Any]] = [
        *system_messages(system_prompt),
        {"role": "user", "content": QUESTIONS[0]},
        {"role": "assistant", "content": answer},
    ]
    last = encode(after(answer, render(history, generate=False)))
    try:
        before = encode(after(answer, render([*history, message], generate=True)))
    except UnsupportedTemplate:  # it takes a single question, which is enough for a rebuilt context
        before = last
    return ends_of(before, last, decode, atomic_ids, tokens_inside(render, encode, system_prompt))


def tokens_inside(
    render: Render, encode: Callable[[str], list[int]], system_prompt: str | None = None
) -> list[int]:
    """Return the tokens that a template puts between the thoughts and the text of an answer.

    Args:
        render: The template.
        encode: Function from text to token ids, without added tokens.
        system_prompt: First message of each conversation; None for no system message.
    """
    answer = LAST_ANSWERS[0]
    thinking = {"role": "assistant", "content": answer} | dict.fromkeys(THOUGHT_FIELDS, THOUGHT)
    question = {"role": "user", "content": QUESTIONS[0]}
    try:
        text = render([*system_messages(system_prompt), question, thinking], generate=False)
    except UnsupportedTemplate:
        return []
    return encode(text.partition(THOUGHT)[2].partition(answer)[0])


def ends_of(
    before: Sequence[int],
    last: Sequence[int],
    decode: Callable[[list[int]], str],
    atomic_ids: frozenset[int],
    inside: Collection[int] = (),
) -> AnswerEnd:
    """Return how an answer ends, as in `find_answer_end`.

    Args:
        before: Tokens that follow an answer before a message.
        last: Tokens that follow the last answer of a text.
        decode: Function from token ids to text that keeps special tokens.
        atomic_ids: Ids that the encoder never merges with adjacent tokens.
        inside: Tokens that can occur inside an answer.
    """
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, last, strict=False))
    shared = [token_id for token_id, _ in pairs]
    space, closing = _special_part(shared, decode, atomic_ids)
    ends, opens = closing, False
    if not closing:
        space, closing = _special_part(before, decode, atomic_ids)
        closing = closing[:1]
        ends = _special_part(last, decode, atomic_ids)[1] or closing
        opens = ends is closing
    ends = [token_id for token_id in ends if token_id in atomic_ids]
    return AnswerEnd(
        space,
        closing,
        opens,
        [token_id for token_id in ends if token_id not in inside],
        {token_id: decode([token_id]) for token_id in ends if token_id in inside},
    )


def _special_part(
    ids: Sequence[int], decode: Callable[[list[int]], str], atomic_ids: frozenset[int]
) -> tuple[int, list[int]]:
    """Return the part from the first to the last special token, after its start.

    The part is empty if there is no special token, or anything but whitespace before it.
    """
    places = [place for place, token_id in enumerate(ids) if token_id in atomic_ids]
    if not places or decode(list(ids[: places[0]])).strip():
        return 0, []
    return places[0], list(ids[places[0] : places[-1] + 1])
