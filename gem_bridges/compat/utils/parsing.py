"""GEM's parsers; each returns None if there is no answer."""

from __future__ import annotations

from gem_envs.text import last_boxed, last_code_block, last_tag


def extract_last_boxed_answer(solution: str) -> str | None:
    r"""Return the content of the last complete ``\boxed{...}``."""
    return last_boxed(solution)


def extract_code_from_model(model_response: str) -> str | None:
    """Return the last fenced code block."""
    code = last_code_block(model_response)
    return None if code is None else code.strip()


def extract_last_tagged_answer(model_response: str) -> str | None:
    """Return the content of the last ``<answer>...</answer>``."""
    answer = last_tag(model_response, "answer")
    return None if answer is None else answer.strip()
