"""Chat templates as texts: which one is meant, its day, and what it reads and shows."""

from __future__ import annotations

import datetime
import functools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from gem_chat._files import read_text
from gem_core._util.messages import error_line
from gem_core.errors import ConfigError

THOUGHT_FIELDS = ("reasoning_content", "reasoning", "thinking")
"""Fields of an assistant message in which templates expect thoughts."""
_GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
"""Tags that only transformers knows."""
_GIVEN = frozenset(("messages", "add_generation_prompt", "bos_token", "eos_token", "pad_token", "unk_token"))
"""Variables that the caller of a template sets itself."""


def check_variables(templates: Iterable[str], variables: Iterable[str]) -> None:
    """Require that a template reads each of the variables; tools are the matter of `require_tools`.

    Args:
        templates: Jinja texts, of which one will be used.
        variables: Names that the user gives as `template_kwargs`.

    Raises:
        ConfigError: No template reads a variable.
    """
    given = sorted({*variables} - {"tools"})
    if not given:
        return
    read: set[str] = set()
    for template in templates:
        found = _variables_of(template)
        if found is None:  # rendering reports that it cannot be parsed
            return
        read |= found
    unknown = [name for name in given if name not in read]
    if unknown:
        known = ", ".join(sorted(read - _GIVEN)) or "none"
        raise ConfigError(
            f"template_kwargs {', '.join(unknown)}: the chat template reads no such variable "
            f"(it reads: {known:.300}); correct the name or omit it"
        )


@functools.lru_cache(maxsize=64)
def _variables_of(template: str) -> frozenset[str] | None:
    from jinja2 import Environment, TemplateSyntaxError, meta

    environment = Environment(extensions=["jinja2.ext.loopcontrols"])
    try:
        return frozenset(meta.find_undeclared_variables(environment.parse(_GENERATION.sub("", template))))
    except TemplateSyntaxError:
        return None


def shows(text: str, content: str) -> bool:
    """Return whether a rendered text holds a content, apart from whitespace or in JSON."""
    text = "".join(text.split())
    forms = (content, *(json.dumps(content, ensure_ascii=ascii)[1:-1] for ascii in (False, True)))
    return any("".join(form.split()) in text for form in forms)


def tool_names(tools: Any) -> list[str]:
    """Return the names of tools, given as schemas or as Python functions."""
    names = []
    for tool in tools or ():
        function = tool.get("function", tool) if isinstance(tool, Mapping) else tool
        name = function.get("name") if isinstance(function, Mapping) else getattr(tool, "__name__", None)
        names.append(str(name))
    return names


def templates_of(chat_template: str | Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the templates of a tokenizer or a processor by name; a single one is the default."""
    if chat_template is None:
        return {}
    return {"default": chat_template} if isinstance(chat_template, str) else chat_template


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
        return read_text(chat_template)
    except (OSError, ValueError) as error:
        known = ", ".join(map(repr, templates)) or "none"
        raise ConfigError(
            f"chat_template={chat_template!r:.100}: expected a file, Jinja text, or the name of a template "
            f"of the tokenizer (it has {known}): {error_line(error)}"
        ) from None


def chosen_template(tokenizer: Any, chat_template: str | None, variables: Mapping[str, Any]) -> str:
    """Return the Jinja text that `apply_chat_template` uses.

    Args:
        tokenizer: A tokenizer with `chat_template`.
        chat_template: Jinja text, or the name of one of the tokenizer's templates; None for its own.
        variables: Variables for the template.

    Raises:
        ConfigError: The tokenizer has templates with names, and none of them is the default.
    """
    templates = templates_of(tokenizer.chat_template)
    if chat_template is not None:
        return templates.get(chat_template, chat_template)
    with_tools = variables.get("tools") is not None and "tool_use" in templates
    name = "tool_use" if with_tools else "default"
    if name not in templates:
        known = ", ".join(map(repr, templates)) or "none"
        raise ConfigError(f"the tokenizer has no default chat template; set chat_template (it has {known})")
    return templates[name]


def with_date(template: str, date: str) -> str:
    """Return a template that takes a fixed day for today.

    Args:
        template: Jinja text.
        date: The day, such as ``"2026-01-31"``.

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
    return with_today(template, "{{ format" + replaced + " }}")


def with_today(template: str, text: str) -> str:
    """Return a template in which ``strftime_now(format)`` is the Jinja text `text`."""
    return "{% macro strftime_now(format) %}" + text + "{% endmacro %}" + template
