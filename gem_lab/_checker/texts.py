r"""Texts for testing the parsers of an environment, also for use outside of the checker.

`JUNK` holds answers without any action. `nasty_texts` yields answers that have broken parsers: digits that
`int` rejects, unbalanced braces, lone surrogates. `long_texts` yields texts of up to a megabyte, for parsers
that recurse or are slower than linear.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from gem_core._util.seeds import derive_rng

JUNK = (
    "",
    " ",
    "\n\n\n",
    "\t\r\n\x0b\x0c",
    "\u200b\u200d\ufeff",
    "...",
    "I cannot decide.",
    "Let me think about this step by step. First of all, I have no idea.",
    "As a language model I would rather talk about the weather today.",
    "je ne comprends pas la question",
    "これは答えではありません",
    "لا أعرف الجواب",
    "\U0001f937\U0001f937\U0001f937",
    "<|im_end|><|endoftext|></s>",
    "\x00\x01\x02\x1b[31m",
    r"\boxed",
    r"\boxed{",
    r"\boxed}{",
    "}{",
    "<answer>",
    "</answer>",
    "</python>",
    "<tool_call>",
    "```",
    "$$$$",
)
"""Texts that no environment can read as an action."""

_CONTENTS = (
    "", " ", "\n", "-1", "-0", "+5", "0x10", "1_0", "1e400", "nan", "inf", "-inf", "1/0", "1.5", "1,000",
    "9" * 5000, "\u00b2", "\u0663", "\u2167", "\uff11 \uff12", "\u2460", "1\u200b", "\u202e12", "\ud800",
    "\x00",
    "None", "True", "[]", "{}", "{{}}", "{", "\\}", "\\boxed{1}", "\\text{1}", "$1$", "**1**", "1;2", "1\n2",
    "1 2 3 4 5 6 7 8 9", "reveal", "reveal 1", "reveal a b", "reveal -1 -1", "reveal 99999 99999",
    "flag 0 0 0",
    "A", "A A", "A,A", "AZ", "a c", "up down", "UP", "%s%n%d", "{0.__class__}", "__import__('os')",
    "'; drop table envs; --", "../../../etc/passwd", "\u00df", "\u017f", "\u0130", "e\u0301", "\U0001f600",
    "\u2028", "\x85",
)  # fmt: skip
_PIECES = (
    "\\boxed{", "\\boxed", "boxed{", "{", "}", "\\{", "\\}", "\\", "<answer>", "</answer>", "<search>",
    "</search>", "<python>", "</python>", "<tool_call>", "</tool_call>", "<tool_name>", "<arguments>", "```",
    "```python\n", "``", '{"a": ', "$", "1", "2 ", "-", "\n", "\r\n", " ", "A C", "reveal 0 0", "up",
    "\u200b",
    "\ud83d", "\ufffe",
)  # fmt: skip
_REPEATED = (
    "\\boxed{", "\\boxed{1} ", "{", "{}", "\\", "<answer>", "<answer></answer>", "`", "```", " ", "\n",
    "1", "1 ",
    "-1,", "a", "\u0130", "<tool_call><tool_name>", '{"a":',
)  # fmt: skip


def nasty_texts(seed: int = 0, count: int = 100) -> Iterator[str]:
    """Yield a fixed list of texts that have broken parsers, then `count` random texts made from `seed`."""
    for content in _CONTENTS:
        yield content
        yield f"So I answer \\boxed{{{content}}}"
        yield f"<answer>{content}</answer><search>{content}</search>"
        yield f"```python\n{content}\n```"
    random = derive_rng("nasty", seed)
    for _ in range(count):
        yield "".join(_random_piece(random) for _ in range(random.randrange(1, 30)))


def long_texts(size: int) -> Iterator[str]:
    """Yield texts of about `size` characters that repeat one piece of markup, closed or unclosed."""
    for piece in _REPEATED:
        body = piece * (size // len(piece))
        yield body
        yield f"\\boxed{{{body}}}"
        yield f"<answer>{body}</answer>"
    yield "\\boxed{" * (size // 14) + "}" * (size // 2)


def _random_piece(random: Random) -> str:
    if random.random() < 0.7:
        return random.choice(_PIECES)
    return chr(random.randrange(0x110000))  # lone surrogates included
