"""The text that a chat template produces for a single message, determined by probing the template.

A token-exact context needs the text between two responses: the end of the assistant's turn, the
environment's message, and the opening of the next assistant turn. `MessageFormat.between` returns that text
for one message. It renders a short neutral conversation and returns the text after the neutral answer, so the
cost does not grow with the number of turns.

The result is correct only for templates whose messages do not depend on each other. The constructor of
`MessageFormat` therefore probes the template with conversations of different lengths and contents, and raises
`UnsupportedTemplate` with the reason if they do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from gem_core.errors import ConfigError, UnsupportedTemplate

Messages: TypeAlias = Sequence[Mapping[str, Any]]
"""Dicts with "role" and "content"; the content is a text or a list of content parts."""


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that contexts use.

    Two optional parts are used if they exist: `chat_template` with `apply_chat_template`, and
    `added_tokens_decoder`, whose keys are ids that the encoder never merges with adjacent tokens.
    """

    eos_token: str | None
    eos_token_id: int | None
    bos_token: str | None
    bos_token_id: int | None
    all_special_ids: Sequence[int]

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = False) -> str: ...


class Render(Protocol):
    """Interface of a function that turns messages into the text of a prompt."""

    def __call__(self, messages: Messages, *, generate: bool, date: str | None = None) -> str:
        """Return the text of the messages.

        Args:
            messages: Dicts with "role" and "content".
            generate: Whether the text ends with the opening of an assistant turn.
            date: Date that the template sees; None for today.
        """
        ...


def chat_renderer(
    tokenizer: Any, chat_template: str | None = None, template_kwargs: Mapping[str, Any] | None = None
) -> Render:
    """Return the renderer of `chat_template`, the tokenizer's own template, or else the plain format.

    Raises:
        ConfigError: The tokenizer cannot apply a template, or `template_kwargs` is given without a template.
    """
    has_template = chat_template is not None or getattr(tokenizer, "chat_template", None) is not None
    extra = dict(template_kwargs or {})
    if has_template and not hasattr(tokenizer, "apply_chat_template"):
        raise ConfigError(
            f"{type(tokenizer).__name__} has no apply_chat_template(), so it cannot apply a chat template"
        )
    if not has_template:
        if extra:
            raise ConfigError(
                f"template_kwargs {sorted(extra)} were given, but the tokenizer has no chat template"
            )
        return plain_renderer(tokenizer)

    def render(messages: Messages, *, generate: bool, date: str | None = None) -> str:
        template = chat_template
        if date is not None:
            source = _chosen_template(tokenizer, chat_template, extra)
            template = "{% macro strftime_now(format) %}" + date + "{% endmacro %}" + source
        try:
            text: str = tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                chat_template=template,
                tokenize=False,
                add_generation_prompt=generate,
                **extra,
            )
        except Exception as error:  # a template can raise any error
            roles = [message["role"] for message in messages]
            raise UnsupportedTemplate(
                f"the chat template fails on a conversation with the roles {roles}: {error}"
            ) from error
        return text

    return render


def templates_of(chat_template: str | Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the templates of a tokenizer or a processor by name; a single one is the default."""
    if chat_template is None:
        return {}
    return {"default": chat_template} if isinstance(chat_template, str) else chat_template


def _chosen_template(tokenizer: Any, chat_template: str | None, variables: Mapping[str, Any]) -> str:
    """Return the Jinja text that `apply_chat_template` uses."""
    templates = templates_of(tokenizer.chat_template)
    if chat_template is not None:
        return templates.get(chat_template, chat_template)
    with_tools = variables.get("tools") is not None and "tool_use" in templates
    return templates["tool_use" if with_tools else "default"]


def plain_renderer(tokenizer: Tokenizer) -> Render:
    r"""Return the renderer for tokenizers without a chat template.

    A prompt is ``User: ...\n\nAssistant:``, with the tokenizer's end-of-sequence token after each answer. A
    system prompt is a separate paragraph before it. The text starts with the beginning-of-sequence token if
    the tokenizer itself would add it.
    """
    bos = ""
    if tokenizer.bos_token is not None and tokenizer.encode("x")[:1] == [tokenizer.bos_token_id]:
        bos = tokenizer.bos_token
    eos = tokenizer.eos_token or ""

    def render(messages: Messages, *, generate: bool, date: str | None = None) -> str:
        text = bos
        for message in messages:
            if message["role"] == "system":
                text += f"{message['content']}\n\n"
            elif message["role"] == "assistant":
                text += f"Assistant:{message['content']}{eos}\n\n"
            else:
                text += f"{message['role'].capitalize()}: {message['content']}\n\n"
        return text + "Assistant:" if generate else text

    return render


# Neutral messages. An answer is located in a rendered text by its content, so the last answer of a
# conversation differs from all others.
_QUESTIONS = ("first neutral question", "what comes second?", "3", "a longer\nquestion of\n\nthree lines")
_ANSWERS = ("Alpha-reply-7319", "beta reply (2741)!", "Gamma: 5083")
_LAST_ANSWERS = ("Neutral-last-reply-6205", "9 lines and\none other ending-4418")
_THOUGHT_TEXT = "neutral thought"
_THOUGHT = f"<think>\n{_THOUGHT_TEXT}\n</think>\n\n"
_THOUGHT_FIELDS = ("reasoning_content", "reasoning", "thinking")
"""Fields of an assistant message in which templates expect thoughts."""
_MESSAGES = ("", "Neutral-Message", "two lines,\n\nof which one ends here.\n", "{{ x }} 12 <b>")
_LENGTHS = (1, 2, 3, 9)


@dataclass(frozen=True)
class AnswerEnd:
    """The tokens with which a template ends an answer.

    Attributes:
        space: Number of whitespace tokens that the template puts before `closing`.
        closing: Tokens that follow an answer before a message, from the first to the last special token of
            the end; empty if the template ends an answer with plain text.
        stops: Special tokens that end an answer and never occur inside one, in order.
        inside: Texts of special tokens that end an answer and also end a part of one, such as its thoughts,
            by id.
    """

    space: int
    closing: list[int]
    stops: list[int]
    inside: dict[int, str]

    def extra_stop_id(self, known: Collection[int]) -> int | None:
        """Return the token at which an engine must stop in addition to `known`; None if it needs none.

        Raises:
            UnsupportedTemplate: Each token that ends an answer also occurs inside one.
        """
        ends = self.stops or [*self.inside]
        if not ends or any(token_id in known for token_id in ends):
            return None
        if self.stops:
            return self.stops[-1]
        raise UnsupportedTemplate(
            f"the chat template writes {', '.join(map(repr, self.inside.values()))} both inside an answer "
            "and at its end, so an engine cannot tell where an answer ends; add the token that ends it to "
            f"eos_token_id in the model's generation_config.json, or {_ADVICE}"
        )

    def overlap(self, response_ids: Sequence[int]) -> int:
        """Return the number of leading tokens of `closing` that need not be added to a response."""
        for count in range(len(self.closing), 0, -1):
            if list(response_ids[-count:]) == self.closing[:count]:
                return count
        # The last answer can end with another token than an earlier one, which then takes its place.
        replaced = bool(self.closing) and self.closing[0] not in self.stops
        return int(replaced and list(response_ids[-1:]) == self.stops[-1:] != [])


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
    answer, message = _LAST_ANSWERS[0], {"role": role, "content": _MESSAGES[1]}
    history: list[dict[str, Any]] = [
        *([] if system_prompt is None else [{"role": "system", "content": system_prompt}]),
        {"role": "user", "content": _QUESTIONS[0]},
        {"role": "assistant", "content": answer},
    ]
    last = encode(_after(answer, render(history, generate=False)))
    try:
        before = encode(_after(answer, render([*history, message], generate=True)))
    except UnsupportedTemplate:  # it takes a single question, which is enough for a rebuilt context
        before = last
    history[-1] |= dict.fromkeys(_THOUGHT_FIELDS, _THOUGHT_TEXT)
    try:
        thinking = render(history, generate=False)
    except UnsupportedTemplate:
        thinking = ""
    inside = encode(thinking.partition(_THOUGHT_TEXT)[2].partition(answer)[0])
    return ends_of(before, last, decode, atomic_ids, inside)


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
    ends = closing
    if not closing:
        space, closing = _special_part(before, decode, atomic_ids)
        closing = closing[:1]
        ends = _special_part(last, decode, atomic_ids)[1] or closing
    ends = [token_id for token_id in ends if token_id in atomic_ids]
    return AnswerEnd(
        space,
        closing,
        [token_id for token_id in ends if token_id not in inside],
        {token_id: decode([token_id]) for token_id in ends if token_id in inside},
    )


def _after(answer: str, text: str) -> str:
    """Return the text after an answer.

    Raises:
        UnsupportedTemplate: The text does not hold the answer.
    """
    _, match, after = text.partition(answer)
    if not match:
        raise UnsupportedTemplate(
            f"the chat template does not show the answer {answer!r} unchanged ({text!r}), so what follows an "
            "answer cannot be determined"
        )
    return after


class MessageFormat:
    """The text that a template puts between two responses for a message of one role.

    Args:
        render: The template.
        encode: Function from text to token ids, without added tokens.
        decode: Function from token ids to text that keeps special tokens.
        atomic_ids: Ids that the encoder never merges with adjacent tokens.
        role: Role of the message.
        system_prompt: First message of each conversation; None for no system message.
        placeholder: Text that the template must write for an image; None if there are no images.

    Attributes:
        end: How the template ends the answer before such a message.

    Raises:
        UnsupportedTemplate: The text depends on the rest of the conversation, or can be empty.
    """

    def __init__(
        self,
        render: Render,
        encode: Callable[[str], list[int]],
        decode: Callable[[list[int]], str],
        atomic_ids: frozenset[int],
        *,
        role: str = "user",
        system_prompt: str | None = None,
        placeholder: str | None = None,
    ) -> None:
        self._render = render
        self._role = role
        self._system = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
        self._neutral = self._history(1)
        self._reject_dependence()
        self._reject_clock()
        self._reject_changing_history()
        self.end = find_answer_end(render, encode, decode, atomic_ids, role=role, system_prompt=system_prompt)
        self._reject_nothing_between(encode)
        if placeholder is not None:
            self._reject_varying_images(placeholder)

    def between(self, message: str | list[dict[str, str]]) -> str:
        """Return the text from the end of one response to the start of the next, including `message`."""
        return self._after_history(self._neutral, message)

    def _history(self, turns: int, *, shift: int = 0, reasoning: str = "") -> list[dict[str, Any]]:
        """Return a neutral conversation of alternating questions and answers."""
        messages = list(self._system)
        for number in range(turns):
            question = _QUESTIONS[(number + shift) % len(_QUESTIONS)]
            answer = _ANSWERS[(number + shift) % len(_ANSWERS)]
            messages.append({"role": "user", "content": question})
            messages.append({"role": "assistant", "content": reasoning + answer})
        messages[-1]["content"] = reasoning + _LAST_ANSWERS[shift % len(_LAST_ANSWERS)]
        return messages

    def _after_history(
        self,
        history: list[dict[str, Any]],
        message: str | list[dict[str, str]],
        follow_up: Messages = (),
        *,
        generate: bool = True,
        date: str | None = None,
    ) -> str:
        """Return the text that the template puts after the last answer of `history`."""
        messages = [*history, {"role": self._role, "content": message}, *follow_up]
        text = self._render(messages, generate=generate, date=date)
        return _after(history[-1]["content"].removeprefix(_THOUGHT), text)

    def _reject_dependence(self) -> None:
        """Require that the text of a message does not depend on the messages before it."""
        by_length = [self._history(turns) for turns in _LENGTHS]
        by_content = [
            self._history(1, shift=1),
            self._history(3, shift=2),
            self._history(2, reasoning=_THOUGHT),
        ]
        causes = [
            ("the number of turns before it", by_length),
            ("the content of earlier messages", by_content),
        ]
        for message in _MESSAGES:
            expected = self.between(message)
            if message.strip() not in expected:
                raise UnsupportedTemplate(
                    f"the chat template does not show the {self._role} message {message!r} after the answer "
                    f"that it follows ({expected!r})"
                )
            for cause, histories in causes:
                for history in histories:
                    text = self._after_history(history, message)
                    if text != expected:
                        raise UnsupportedTemplate(
                            f"with this chat template, the text of a {self._role} message depends on {cause} "
                            f"({expected!r} became {text!r}), so the tokens cannot be append-only; {_ADVICE}"
                        )

    def _reject_clock(self) -> None:
        """Require that the text of a message does not depend on the date or time."""
        texts = [self._after_history(self._neutral, "x", date=date) for date in ("one date", "another date")]
        if texts[0] != texts[1]:
            raise UnsupportedTemplate(
                f"the chat template puts the date or time into each {self._role} message ({texts[0]!r}), "
                f"so episodes are not reproducible; {_ADVICE}"
            )

    def _reject_changing_history(self) -> None:
        """Require that a message has the same text whether or not other messages follow it."""
        question = [*self._system, {"role": "user", "content": _QUESTIONS[0]}]
        follow_up = [
            {"role": "assistant", "content": _ANSWERS[0]},
            {"role": "user", "content": _QUESTIONS[1]},
        ]
        history = self._history(2)
        _require_growth(
            [self._render(question, generate=generate) for generate in (False, True)],
            self._render([*question, *follow_up], generate=True),
        )
        _require_growth(
            [self._after_history(history, _MESSAGES[1], generate=generate) for generate in (False, True)],
            self._after_history(history, _MESSAGES[1], follow_up),
        )

    def _reject_varying_images(self, placeholder: str) -> None:
        """Require that an image is one placeholder, whatever images come before it."""
        message = [{"type": "image"}, {"type": "text", "text": _MESSAGES[1]}]
        expected = self.between(message)
        earlier = self._history(1)
        earlier[-2] = {**earlier[-2], "content": message}
        if expected.count(placeholder) != 1 or _MESSAGES[1] not in expected:
            raise UnsupportedTemplate(
                f"the chat template does not write {placeholder!r} exactly once per image ({expected!r}); "
                f"{_ADVICE}"
            )
        text = self._after_history(earlier, message)
        if text != expected:
            raise UnsupportedTemplate(
                f"with this chat template, the text of an image depends on the images before it "
                f"({expected!r} became {text!r}), so the tokens cannot be append-only; {_ADVICE}"
            )

    def _reject_nothing_between(self, encode: Callable[[str], list[int]]) -> None:
        """Require at least one token between two responses, whatever the message."""
        for message in _MESSAGES:
            ids = encode(self.between(message))
            if len(ids) <= self.end.space + len(self.end.closing):
                raise UnsupportedTemplate(
                    f"the chat template puts no token between two responses when the message is {message!r}, "
                    f"so they would form a single run of 1s in the response mask; {_ADVICE}"
                )


_ADVICE = "give the context another chat_template"


def _require_growth(last: list[str], later: str) -> None:
    # `last` holds the text with and without the opening of an answer; their common prefix is the message
    # itself. Without the opening, some templates end the text with the end-of-sequence token.
    message = "".join(
        a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*last, strict=False))
    )
    if not later.startswith(message):
        raise UnsupportedTemplate(
            "the chat template renders a message differently when others follow it "
            f"({message!r} is not a prefix of {later!r}), so the tokens cannot be append-only; {_ADVICE}"
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
