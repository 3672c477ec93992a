"""What a chat template reads and shows."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

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
