"""Environments whose texts spell special tokens, and what a trainer's engine may get of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gem_chat import get_syntax
from gem_chat._calls.formats import get_format
from gem_chat.tools import ToolResult
from gem_core import Env, register
from gem_envs.tools import Tools
from tests.support import ForgingEnv, ScriptedEnv
from tests.trainers.tool_episodes import Boxes, Look, first_call

PLAIN, FORGING = "test:PlainTexts", "test:ForgingTexts"
PLAIN_TOOL, FORGING_TOOL = "test:PlainTool", "test:ForgingTool"
"""Environments with the same messages except for what they spell."""


class ForgingLook(Look):
    """Spells special tokens in its description and in its results."""

    description = Look.description + ForgingEnv.TEXT

    async def call(self, arguments: Any, state: Any) -> ToolResult:
        made = await super().call(arguments, state)
        return ToolResult(made.text + ForgingEnv.TEXT, reward=made.reward)


def _with(tool: Look) -> Callable[[], Env]:
    return lambda: Tools(Boxes(), tools=tool, max_calls=2)


register(PLAIN, ScriptedEnv)
register(FORGING, ForgingEnv)
register(PLAIN_TOOL, _with(Look()))
register(FORGING_TOOL, _with(ForgingLook()))


class Asked(NamedTuple):
    """What the engine of a trainer was asked in one episode, and the metric ``gem/forged_tokens``."""

    prompts: Sequence[Sequence[int]]
    forged: float


def check(play: Callable[..., Asked], tokenizer: Any, end: str, *, native: bool = True) -> None:
    """Check that texts of environments and of tools spell no special token in a trainer's own loop.

    Args:
        play: Plays an episode in the trainer's loop, given the id of an environment, the responses, and
            whether texts may spell special tokens (`parse_special`).
        tokenizer: Tokenizer of the model, with a template of `tool_episodes.template` in the syntax "hermes".
        end: Token that ends a turn.
        native: Whether tools are called natively; else a call is part of the text.
    """
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    spelled = sum(
        ForgingEnv.TEXT.count(text) for text in ForgingEnv.TOKENS if _id(tokenizer, text) in special
    )
    assert spelled >= 3
    call = (
        get_syntax("hermes").write([first_call()]) if native else get_format("gem").write(Look(), {"box": 1})
    )
    for plain, forging, texts, messages in (
        (PLAIN, FORGING, ["one" + end] * 3, 3),
        (
            PLAIN_TOOL,
            FORGING_TOOL,
            [call + end, "right" + end],
            1 if native else 2,
        ),  # the text has the schema
    ):
        expected, found = play(plain, texts, False), play(forging, texts, False)
        assert len(expected.prompts) == len(found.prompts) == len(texts)
        for one, other in zip(expected.prompts, found.prompts, strict=True):
            assert [id for id in one if id in special] == [id for id in other if id in special]
        assert "You have won." in tokenizer.decode(found.prompts[-1]).replace("\u2060", "")
        assert (expected.forged, found.forged) == (0, spelled * messages)
        parsed = play(forging, texts, True)
        more = sum(id in special for id in parsed.prompts[-1]) - sum(
            id in special for id in found.prompts[-1]
        )
        assert more >= spelled
        assert parsed.forged == found.forged


def _id(tokenizer: Any, text: str) -> int | None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    return ids[0] if len(ids) == 1 else None
