"""Parsers of answers: boxes, tags, code blocks, numbers, and commands."""

from __future__ import annotations

from gem_envs._text import (
    first_code_block,
    first_tag,
    integer,
    integers,
    last_boxed,
    last_code_block,
    last_tag,
)

__all__ = [
    "first_code_block",
    "first_tag",
    "integer",
    "integers",
    "last_boxed",
    "last_code_block",
    "last_tag",
]
