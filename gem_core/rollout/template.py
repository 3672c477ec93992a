"""Chat templates as functions from messages to text: `chat_renderer`."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from gem_core._util.chat_templates import check_variables, with_asked_openings
from gem_core._util.messages import error_line
from gem_core.errors import ConfigError, UnsupportedTemplate
from gem_core.special_tokens import Spellings, spellings_of

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
    source = _chosen_template(tokenizer, chat_template, extra)
    check_variables([source], extra)
    today = None if date is None else _date_macro(source, date)

    def render(messages: Messages, *, generate: bool, date: str | None = None) -> str:
        template, macro = chat_template, today if date is None else date
        if macro is not None:
            template = "{% macro strftime_now(format) %}" + macro + "{% endmacro %}" + source
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


def read_template(chat_template: str, tokenizer: Any) -> str:
    """Return the Jinja text that a user means: the text itself, a file, or a tokenizer's template by name.

    Raises:
        ConfigError: It is none of them.
    """
    templates = templates_of(getattr(tokenizer, "chat_template", None))
    if chat_template in templates:
        return templates[chat_template]
    if "{{" in chat_template or "{%" in chat_template:
        return chat_template
    try:
        return Path(chat_template).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        known = ", ".join(map(repr, templates)) or "none"
        raise ConfigError(
            f"chat_template={chat_template!r:.100}: expected a file, Jinja text, or the name of a template "
            f"of the tokenizer (it has {known}): {error_line(error)}"
        ) from None


def _in_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message["content"]
    return {
        **message,
        "content": [{"type": "text", "text": content}] if isinstance(content, str) else content,
    }


def _date_macro(template: str, date: str) -> str:
    """Return Jinja text that formats a fixed day as ``strftime_now(format)`` formats the real one.

    Raises:
        ConfigError: The date is invalid, or the template does not ask for it.
    """
    try:
        day = datetime.datetime.fromisoformat(date)
    except (TypeError, ValueError):
        raise ConfigError(f"date={date!r}: expected a day such as 2026-01-31") from None
    if "strftime_now" not in template:
        raise ConfigError(f"date={date!r}: the chat template shows no date; omit it")
    codes = [*(f"-{code}" for code in "dmHIMSjy"), *"aAbBcdHIjmMpSUwWxXyYzZ"]
    replaced = "".join(f".replace('%{code}', {day.strftime('%' + code)!r})" for code in codes)
    return "{{ format" + replaced + " }}"


def templates_of(chat_template: str | Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the templates of a tokenizer or a processor by name; a single one is the default."""
    if chat_template is None:
        return {}
    return {"default": chat_template} if isinstance(chat_template, str) else chat_template


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
