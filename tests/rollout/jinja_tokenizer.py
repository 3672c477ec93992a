"""Stub of a tokenizer with a chat template: one token per character, and one per special token."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any


@lru_cache(64)
def compiled(template: str) -> Any:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise ValueError(message)

    jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    jinja.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    jinja.globals["raise_exception"] = refuse
    return jinja.from_string(template)


class JinjaTokenizer:
    """Renders chat templates with Jinja as transformers does.

    Args:
        template: The chat template.
        specials: Texts of the special tokens; the first one is the end-of-sequence token.
    """

    bos_token, bos_token_id = None, None

    def __init__(self, template: str, specials: list[str]) -> None:
        self.chat_template = template
        self.eos_token, self.eos_token_id = specials[0], 0x110000
        self._texts = {0x110000 + index: text for index, text in enumerate(specials)}
        self._ids = {text: id for id, text in self._texts.items()}
        longest = sorted(specials, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest)))
        self.all_special_ids = list(self._texts)

    def apply_chat_template(
        self,
        messages: list[dict[str, Any]],
        *,
        chat_template: str | None = None,
        tokenize: bool = False,
        add_generation_prompt: bool = False,
        **variables: Any,
    ) -> str:
        template = compiled(chat_template or self.chat_template)
        return str(
            template.render(messages=messages, add_generation_prompt=add_generation_prompt, **variables)
        )

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        ids, position = [], 0
        for match in self._pattern.finditer(text):
            ids += [*map(ord, text[position : match.start()]), self._ids[match[0]]]
            position = match.end()
        return [*ids, *map(ord, text[position:])]

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = False, **options: Any) -> str:
        texts = self._texts | dict.fromkeys(self._texts, "") if skip_special_tokens else self._texts
        return "".join(texts[id] if id in texts else chr(id) for id in token_ids)
