from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_chat import AppendContext, RebuildContext
from gem_chat._conversation import TokenContext
from gem_core._observations import observation_text
from gem_core.errors import ConfigError
from tests.rollout.tokenizers import CharTokenizer

CHARS = CharTokenizer()
END = CHARS.eos_token_id


def text(ids: list[int]) -> str:
    return CHARS.decode(ids)


def test_the_plain_format_is_used_without_a_template() -> None:
    context = AppendContext(CHARS, system_prompt="Play well.")
    assert text(context.first("Guess.")) == "Play well.\n\nUser: Guess.\n\nAssistant:"
    assert text(context.extend("Lower.", [65, END])) == "\n\nUser: Lower.\n\nAssistant:"
    assert text(context.extend("Lower.", [65])) == "\x03\n\nUser: Lower.\n\nAssistant:"
    assert text(context.extend("Lower.", [65, END], role="tool")) == "\n\nTool: Lower.\n\nAssistant:"
    assert context.extra_stop_id(()) == END


def test_the_end_of_turn_is_searched_only_at_the_end() -> None:
    context = AppendContext(CHARS)
    assert context.extend("Lower.", [END, 65])[0] == END
    assert context.extend("Lower.", [65, END])[0] != END


def test_a_tokenizer_without_special_tokens_has_no_end_of_turn() -> None:
    class Bare(CharTokenizer):
        eos_token = eos_token_id = None
        all_special_ids = ()

    context = AppendContext(Bare())
    assert context.extra_stop_id(()) is None
    assert text(context.extend("Lower.", [65])) == "\n\nUser: Lower.\n\nAssistant:"


def test_the_plain_format_begins_as_the_tokenizer_would() -> None:
    class Bos(CharTokenizer):
        bos_token, bos_token_id = "\x02", 2
        all_special_ids = (2, 3)

        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            return [2] * add_special_tokens + super().encode(text)

    context = AppendContext(Bos())
    assert context.first("x")[:2] == [2, ord("U")]
    assert 2 not in context.extend("x", [65])


@settings(max_examples=80)
@given(
    st.text(
        st.characters(min_codepoint=4), max_size=30
    ),  # the others are special tokens, see test_forging.py
    st.lists(st.integers(4, 500), min_size=1, max_size=4),
    st.booleans(),
)
def test_two_responses_are_always_separated_by_a_token(
    message: str, response: list[int], ended: bool
) -> None:
    between = AppendContext(CHARS).extend(message, [*response, END] if ended else response)
    assert between
    assert message in text(between)


def test_responses_are_decoded_without_their_end() -> None:
    context = AppendContext(CHARS)
    assert context.decode([72, 105, END]) == "Hi"
    assert context.decode([72, END, 105]) == f"H{CHARS.eos_token}i", "only the end is removed"
    assert context.decode([END]) == ""
    assert RebuildContext(CHARS).decode([72, 105, END]) == "Hi"


def test_content_parts_are_joined_and_images_rejected() -> None:
    parts: list[dict[str, Any]] = [{"type": "text", "text": "board"}, {"type": "text", "text": "move"}]
    assert observation_text(parts) == "board\nmove"
    context = AppendContext(CHARS)
    assert context.first(parts) == context.first("board\nmove")
    with pytest.raises(ConfigError, match="image_url, which text cannot hold"):
        context.extend([*parts, {"type": "image_url"}], [65])


def test_rebuild_takes_the_observation_as_the_whole_prompt() -> None:
    assert text(RebuildContext(CHARS).first("all of it")) == "User: all of it\n\nAssistant:"
    assert text(RebuildContext(CHARS, system_prompt="S").first("x")) == "S\n\nUser: x\n\nAssistant:"
    raw = RebuildContext(CHARS, raw=True)
    assert text(raw.first("all of it")) == "all of it"
    assert raw.extend("all of it", [65]) == raw.first("all of it")


def test_arguments_that_could_not_be_honored_are_rejected() -> None:
    with pytest.raises(ConfigError, match="raw=True"):
        RebuildContext(CHARS, raw=True, system_prompt="S")
    with pytest.raises(ConfigError, match="apply_chat_template"):
        AppendContext(CHARS, chat_template="{{ messages }}")
    with pytest.raises(ConfigError, match=r"enable_thinking.*no chat template"):
        AppendContext(CHARS, template_kwargs={"enable_thinking": False})


@pytest.mark.parametrize("context", [AppendContext(CHARS, system_prompt="S"), RebuildContext(CHARS)])
@pytest.mark.parametrize("response", [[65], [65, END], [END, 65]])
def test_the_text_forms_are_what_is_encoded(context: Any, response: list[int]) -> None:
    assert CHARS.encode(context.first_text("Guess."), add_special_tokens=False) == context.first("Guess.")
    between = context.extend_text("Lower.", response)
    assert CHARS.encode(between, add_special_tokens=False) == context.extend("Lower.", response)


def test_both_kinds_of_contexts_have_one_interface() -> None:
    def names(kind: type) -> set[str]:
        return {name for name in {*dir(kind(CHARS))} if not name.startswith("_")}

    assert names(AppendContext) - names(RebuildContext) == {"conversations"}  # for agents
    declared = {*dir(TokenContext), *TokenContext.__annotations__}
    assert names(RebuildContext) == {name for name in declared if not name.startswith("_")}
