"""Chat templates as functions from messages to text: `chat_renderer`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from gem_chat._chat_templates import check_variables, chosen_template, templates_of, with_date, with_today
from gem_chat._openings import with_asked_openings
from gem_chat._special_tokens import Spellings, spellings_of
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
            generate: Whether the text ends with the opening of an assistant turn. Otherwise it does not,
                also for a template that always writes one.
            date: Date that the template sees; None for today.
        """
        ...


def chat_renderer(
    tokenizer: Any,
    chat_template: str | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
    *,
    date: str | None = None,
    parts: bool = False,
) -> Render:
    """Return the renderer of `chat_template`, the tokenizer's own template, or else the plain format.

    Args:
        tokenizer: A transformers tokenizer, or any object with the methods of `Tokenizer`.
        chat_template: Jinja text, or the name of one of the tokenizer's templates.
        template_kwargs: Variables for the template.
        date: Day that the template takes for today, such as ``"2026-01-31"``; None for the real one.
        parts: Whether a text is given to the template as a list with one content part.

    Raises:
        ConfigError: The tokenizer cannot apply a template, `template_kwargs` or `date` is given without a
            template, or the template does not read a variable or the date.
    """
    has_template = chat_template is not None or getattr(tokenizer, "chat_template", None) is not None
    extra = dict(template_kwargs or {})
    if has_template and not hasattr(tokenizer, "apply_chat_template"):
        raise ConfigError(
            f"{type(tokenizer).__name__} has no apply_chat_template(), so it cannot apply a chat template"
        )
    if not has_template:
        if date is not None:
            raise ConfigError(f"date={date!r} was given, but the tokenizer has no chat template")
        if extra:
            raise ConfigError(
                f"template_kwargs {sorted(extra)} were given, but the tokenizer has no chat template"
            )
        return plain_renderer(tokenizer)
    source = chosen_template(tokenizer, chat_template, extra)
    check_variables([source], extra)
    usual = chat_template if date is None else with_date(source, date)

    def render(messages: Messages, *, generate: bool, date: str | None = None) -> str:
        template = usual if date is None else with_today(source, date)
        try:
            text: str = tokenizer.apply_chat_template(
                [_in_parts(message) if parts else dict(message) for message in messages],
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

    return with_asked_openings(render, tokenizer)


def _in_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message["content"]
    return {
        **message,
        "content": [{"type": "text", "text": content}] if isinstance(content, str) else content,
    }


def spellings_in(tokenizer: Any, chat_template: str | None, placeholders: Iterable[str] = ()) -> Spellings:
    """Return the tokens that texts of the environment must not spell.

    Args:
        tokenizer: A transformers tokenizer, or any object with the methods of `Tokenizer`.
        chat_template: Jinja text to use instead of the tokenizer's own template.
        placeholders: Further texts of tokens, such as those of images.
    """
    own = templates_of(getattr(tokenizer, "chat_template", None))
    sources = [*own.values(), *([] if chat_template is None else [chat_template])]
    return spellings_of(tokenizer, [*sources, *_written(tokenizer, chat_template)], placeholders)


def _written(tokenizer: Any, chat_template: str | None) -> list[str]:
    """Return what a template writes for each kind of message, for tokens that its source does not name."""
    question, answer = {"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}
    conversations = ([question], [question, answer], [question, answer, {"role": "tool", "content": "z"}])
    texts = []
    for messages in conversations:
        try:
            texts.append(chat_renderer(tokenizer, chat_template)(messages, generate=True))
        except UnsupportedTemplate:  # it has no such message
            continue
    return texts


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
