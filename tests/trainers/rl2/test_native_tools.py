"""Native tool calls, and texts that spell special tokens, in the loop of rl-square 0.0.2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.trainers import forging, tool_episodes
from tests.trainers.rl2.test_texts import END, rollout, session

pytestmark = pytest.mark.imports("index")
TEMPLATE = tool_episodes.template("hermes", "<|ROLE|>", END)


@pytest.fixture
def template(tmp_path: Path) -> str:
    """Option with a chat template that writes calls."""
    (tmp_path / "calls.jinja").write_text(TEMPLATE)
    return f"+gem.chat_template={tmp_path}/calls.jinja"


def prompts_of(made: dict[str, Any]) -> list[list[int]]:
    """Return the tokens before each response in the rows of RL2's loop."""
    prompts = []
    for row in made["rows"]:
        starts = [n for n, (_, on) in enumerate(row) if on and not row[n - 1][1]]
        prompts += [[token for token, _ in row[:start]] for start in starts]
    return prompts


def test_tool_episodes(tiny: Path, tokenizer: Any, template: str) -> None:
    for texts, rewards in tool_episodes.scripts("hermes", END):
        made = rollout(session(tiny, template), tool_episodes.ENV, texts, tokenizer)
        assert (made["rewards"], made["done"]) == (rewards, True)
        assert len(made["rows"]) == 1
        sampled = [token for token, on in made["rows"][0] if on]
        assert tokenizer.decode(sampled) == "".join(texts)
        tool_episodes.assert_native(tokenizer.decode(prompts_of(made)[-1]), texts)


@pytest.mark.parametrize("context", ["append", "rebuild"])
def test_texts_of_an_environment_spell_no_special_token(
    tiny: Path, tokenizer: Any, template: str, context: str
) -> None:
    def play_once(env_id: str, texts: list[str], parse_special: bool) -> forging.Asked:
        options = (template, f"+gem.context={context}", f"+gem.parse_special={parse_special}")
        playing = session(tiny, *options)
        made = rollout(playing, env_id, texts, tokenizer)
        return forging.Asked(prompts_of(made), playing.report("train", 1)["gem/forged_tokens"])

    forging.check(play_once, tokenizer, END, native=context == "append")
