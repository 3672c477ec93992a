"""Tokens that end a response, in both kinds of contexts and for the ways in which templates end an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gem_chat import AppendContext, RebuildContext
from gem_chat._options import make_context
from gem_chat._stop_ids import engine_stop_ids, response_stops
from gem_chat._template_context import TemplateContext
from gem_chat._tools import schema
from gem_core.errors import ConfigError, UnsupportedTemplate
from gem_core.rollout import RolloutOptions
from tests.rollout.test_tool_turns import FAMILIES, Look, model_tokenizer
from tests.rollout.tokenizers import CHATML, bpe_tokenizer
from tests.support import needs

pytestmark = needs("transformers", "train")

CONTEXTS = (AppendContext, RebuildContext)
EOS = "<|endoftext|>"
SPECIAL = [
    "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|user|>", "<|assistant|>",
    "<|call|>", "<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "<|eom|>", "<|eot|>",
]  # fmt: skip
LOOP, END = "{% for m in messages %}", "{% endfor %}"
ASSISTANT = "{% if m.role == 'assistant' %}"
LAST = "loop.last and not add_generation_prompt"

# gpt-oss: an answer has several parts, and only the last answer of a text ends with <|return|>.
HARMONY = (
    LOOP + ASSISTANT + "{% if m.thinking and " + LAST + " %}"
    "<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}"
    "<|start|>assistant<|channel|>final<|message|>{{ m.content }}"
    "{{ '<|return|>' if " + LAST + " else '<|end|>' }}"
    "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}" + END +
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)  # fmt: skip
# Kimi K3: the tokens that close an answer also close its thoughts, but for the last one.
CLOSES = (
    LOOP + ASSISTANT + "<|open|>message<|sep|>"
    "{% if m.reasoning_content %}<|open|>think<|sep|>{{ m.reasoning_content }}<|close|>think<|sep|>"
    "{% endif %}"
    "<|open|>response<|sep|>{{ m.content }}<|close|>response<|sep|><|end_of_msg|>"
    "{% else %}<|open|>{{ m.role }}<|sep|>{{ m.content }}<|end_of_msg|>{% endif %}" + END +
    "{% if add_generation_prompt %}<|open|>message<|sep|>{% endif %}"
)  # fmt: skip
# Solar Open: each part of an answer ends with the same token.
ONE_TOKEN = (
    LOOP + "<|start|>{{ m.role }}"
    "{% if m.reasoning %}<|channel|>{{ m.reasoning }}<|end|><|start|>assistant{% endif %}"
    "<|message|>{{ m.content }}<|end|>" + END + "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
# Muse: parts of an answer end with their own token.
PARTS = ONE_TOKEN.replace("{{ m.reasoning }}<|end|>", "{{ m.reasoning }}<|eom|>").replace(
    "<|end|>", "<|eot|>"
)
# GLM: the token that opens the next message ends an answer.
OPENS = (
    LOOP
    + "<|{{ m.role }}|>\n{{ m.content }}"
    + END
    + "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Phi 3: a text without an open answer ends with the end-of-sequence token.
EOS_LAST = CHATML.replace("{% endif %}", "{% else %}{{ eos_token }}{% endif %}")
# Cohere: two tokens end each answer.
TWO = (
    LOOP
    + "<|start|>{{ m.content }}<|end|><|eot|>"
    + END
    + "{% if add_generation_prompt %}<|start|>{% endif %}"
)
# Only the last answer ends with a special token.
NEWLINES = LOOP + "{{ m.content }}{{ eos_token if " + LAST + " else '\\n' }}" + END + "<|start|>"
TEXT = LOOP + "### {{ m.role }}\n{{ m.content }}\n\n" + END + "### assistant\n"


def tokenizer_of(template: str | None, eos: str = EOS) -> Any:
    tokenizer = bpe_tokenizer("chatml", template)
    tokenizer.add_tokens(SPECIAL, special_tokens=True)
    tokenizer.eos_token = eos
    return tokenizer


@pytest.mark.parametrize("kind", CONTEXTS)
@pytest.mark.parametrize(
    ("template", "extra"),
    [
        (CHATML, "<|im_end|>"),
        (HARMONY, "<|return|>"),
        (CLOSES, "<|end_of_msg|>"),
        (PARTS, "<|eot|>"),
        (OPENS, "<|user|>"),
        (EOS_LAST, "<|im_end|>"),
        (TWO, "<|eot|>"),
        (NEWLINES, None),
        (TEXT, None),
    ],
)
def test_an_engine_stops_where_the_template_ends_an_answer(
    kind: Any, template: str, extra: str | None
) -> None:
    """As with a base model, whose end-of-sequence token is not the one of the template."""
    tokenizer = tokenizer_of(template)
    stops = response_stops(kind(tokenizer), tokenizer)
    assert stops.known == {tokenizer.eos_token_id}
    assert stops.extra == (None if extra is None else tokenizer.convert_tokens_to_ids(extra))
    assert stops.all == {tokenizer.eos_token_id, stops.extra} - {None}


@pytest.mark.parametrize("kind", CONTEXTS)
@pytest.mark.parametrize(
    ("template", "eos"),
    [
        (CHATML, "<|im_end|>"),
        (HARMONY, "<|return|>"),
        (TWO, "<|eot|>"),
        (TWO, "<|end|>"),
        (ONE_TOKEN, "<|end|>"),  # the model itself says so
        (None, EOS),
    ],
)
def test_an_engine_that_stops_there_needs_no_other_token(kind: Any, template: str | None, eos: str) -> None:
    tokenizer = tokenizer_of(template, eos)
    if template is None:
        tokenizer.chat_template = None
    assert response_stops(kind(tokenizer), tokenizer).extra is None


@pytest.mark.parametrize("kind", CONTEXTS)
def test_a_template_whose_end_is_also_inside_an_answer_is_rejected(kind: Any) -> None:
    tokenizer = tokenizer_of(ONE_TOKEN)
    with pytest.raises(
        UnsupportedTemplate, match=r"'<\|end\|>' both inside an answer.*generation_config\.json"
    ):
        response_stops(kind(tokenizer), tokenizer)


def test_the_template_of_a_raw_context_is_not_known() -> None:
    tokenizer = tokenizer_of(CHATML)
    assert response_stops(RebuildContext(tokenizer, raw=True), tokenizer).extra is None


@pytest.mark.parametrize("kind", CONTEXTS)
def test_the_options_of_the_template_decide(kind: Any) -> None:
    template = CHATML.replace("'<|im_end|>\n'", "('<|eot|>' if short else '<|im_end|>')")
    tokenizer = tokenizer_of(template)
    context = kind(tokenizer, template_kwargs={"short": True})
    assert response_stops(context, tokenizer).extra == tokenizer.convert_tokens_to_ids("<|eot|>")
    other = kind(tokenizer, chat_template=TWO.replace("<|eot|>", ""))
    assert response_stops(other, tokenizer).extra == tokenizer.convert_tokens_to_ids("<|end|>")


def test_a_rebuilt_context_needs_only_an_answer() -> None:
    numbered = (
        LOOP
        + "{{ loop.index }}"
        + CHATML.removeprefix("{% for message in messages %}").replace("message[", "m[")
    )
    two_messages = "{% if messages | length > 2 %}{{ raise_exception('no') }}{% endif %}" + CHATML
    for template in (numbered, two_messages):
        tokenizer = tokenizer_of(template)
        with pytest.raises(UnsupportedTemplate):
            AppendContext(tokenizer)
        stops = response_stops(RebuildContext(tokenizer), tokenizer)
        assert stops.extra == tokenizer.convert_tokens_to_ids("<|im_end|>")
    for template in (
        "{{ messages[0].content }}",
        CHATML.replace("message['content']", "message['content'] | upper"),
    ):
        with pytest.raises(UnsupportedTemplate, match="does not show the"):
            RebuildContext(tokenizer_of(template))


def test_an_answer_that_ended_is_not_ended_again() -> None:
    tokenizer = tokenizer_of(HARMONY)
    context = AppendContext(tokenizer)
    answer = tokenizer.encode("<|channel|>final<|message|>5")
    text = "<|start|>user<|message|>No.<|end|><|start|>assistant"
    for last, added in (("<|return|>", ""), ("<|end|>", ""), ("", "<|end|>")):
        response = [*answer, *tokenizer.encode(last)]
        assert tokenizer.decode(context.extend("No.", response)) == added + text
        assert context.extend_text("No.", response) == added + text
        assert context.decode(response) == "5"
    closes = tokenizer_of(CLOSES)
    context = AppendContext(closes)
    for ended in ("<|close|>response<|sep|><|end_of_msg|>", "<|close|>response<|sep|>", "<|close|>", ""):
        response = closes.encode("5" + ended)
        rest = "<|close|>response<|sep|><|end_of_msg|>".removeprefix(ended)
        assert closes.decode(context.extend("No.", response)).startswith(f"{rest}<|open|>user<|sep|>No.")


@pytest.mark.parametrize(
    ("template", "ended", "added"),
    [
        (CHATML, "<|im_end|>", "\n<|im_start|>user\n"),
        (CHATML, "<|endoftext|>", "\n<|im_start|>user\n"),
        (CHATML, "<|eom|>", "<|im_end|>\n<|im_start|>user\n"),  # no stop of the engine: a cut
        (CHATML, "", "<|im_end|>\n<|im_start|>user\n"),
        (HARMONY, "<|call|>", "<|start|>user<|message|>"),
        (HARMONY, "<|return|>", "<|start|>user<|message|>"),
        (CLOSES, "<|call|>", "<|open|>user<|sep|>"),
        (TWO, "<|eot|>", "<|start|>"),
        (TWO, "<|end|><|eot|>", "<|start|>"),
        (TWO, "<|end|>", "<|eot|><|start|>"),
        (TWO, "<|call|>", "<|start|>"),
        (OPENS, "<|user|>", "\n"),
        (OPENS, "<|call|>", "<|user|>\n"),  # the message has to be opened
        (EOS_LAST, "<|endoftext|>", "\n<|im_start|>user\n"),
    ],
)
def test_a_stop_token_of_the_engine_ends_an_answer(template: str, ended: str, added: str) -> None:
    tokenizer = tokenizer_of(template)
    context = AppendContext(tokenizer, stop_ids={tokenizer.convert_tokens_to_ids("<|call|>")})
    response = tokenizer.encode("5" + ended)
    assert tokenizer.decode(context.extend("No.", response)).startswith(added + "No.")
    assert context.extend_text("No.", response).startswith(added + "No.")
    assert context.decode(response) == ("5<|eom|>" if ended == "<|eom|>" else "5")


@pytest.mark.parametrize("kind", CONTEXTS)
def test_an_end_that_is_not_flagged_as_special_is_no_part_of_the_answer(kind: Any) -> None:
    template = CHATML.replace("im_end", "fin")
    tokenizer = tokenizer_of(template)
    tokenizer.add_tokens(["<|fin|>"])
    context, end = kind(tokenizer), tokenizer.convert_tokens_to_ids("<|fin|>")
    assert response_stops(context, tokenizer).extra == end
    assert context.decode([*tokenizer.encode("Hi"), end]) == "Hi"


@pytest.mark.parametrize("kind", [AppendContext, TemplateContext])
@pytest.mark.parametrize("name", FAMILIES)
def test_an_engine_stops_where_the_template_ends_a_call(kind: Any, name: str) -> None:
    """As with a model whose generation config does not name the token."""
    tokenizer, family = model_tokenizer(name), FAMILIES[name]
    end, call = tokenizer.convert_tokens_to_ids([family.specials[0], family.stop])
    stops = response_stops(kind(tokenizer), tokenizer)
    assert (stops.known, stops.extra) == ({tokenizer.eos_token_id}, end)
    assert stops.call == (None if call == end else call)
    assert stops.all == {tokenizer.eos_token_id, end, call}
    assert kind(tokenizer, native_tools=False).call_stop_id({end}) is None
    known = model_tokenizer(name, family.stop)
    assert response_stops(kind(known), known).call is None
    assert RebuildContext(tokenizer).call_stop_id({end}) is None


@pytest.mark.parametrize("kind", [AppendContext, TemplateContext])
def test_a_token_inside_an_answer_ends_no_call(kind: Any) -> None:
    """Solar Open ends thoughts, calls, and answers with the same token; here, answers have another one."""
    template = (
        FAMILIES["channels"]
        .template.replace("<|call|>", "<|end|>")
        .replace(
            "{% elif m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>",
            "{% elif m.role == 'assistant' %}{% if m.thinking %}<|start|>assistant<|channel|>analysis"
            "<|message|>{{ m.thinking }}<|end|>{% endif %}<|start|>assistant<|channel|>final<|message|>",
        )
    )
    tokenizer = model_tokenizer("channels", "<|return|>")
    tokenizer.chat_template = template
    assert kind(tokenizer).with_tools([schema(Look())]) is not None
    stops = response_stops(kind(tokenizer), tokenizer)
    assert (stops.extra, stops.call) == (None, None)


@pytest.mark.parametrize("context", ["append", "template"])
def test_the_end_of_a_call_is_no_part_of_an_answer(context: Any) -> None:
    """Also if the call in front of it cannot be read."""
    tokenizer = model_tokenizer("channels", "<|return|>")
    made = make_context(RolloutOptions(context=context), tokenizer, stop_ids=engine_stop_ids(tokenizer))
    response = tokenizer.encode("5<|call|>")
    assert made.decode(response) == "5"
    made.first("Hello.")
    assert "<|call|><|end|>" not in tokenizer.decode(made.extend("No.", response))


@pytest.mark.parametrize("kind", CONTEXTS)
def test_no_token_at_all_ends_a_response(kind: Any) -> None:
    tokenizer = tokenizer_of(TEXT)
    tokenizer.eos_token = None
    with pytest.raises(ConfigError, match=r"no token ends a response: .* set one of the two"):
        response_stops(kind(tokenizer), tokenizer)
    chat = tokenizer_of(CHATML)
    chat.eos_token = None
    assert response_stops(kind(chat), chat).all == {chat.convert_tokens_to_ids("<|im_end|>")}


def test_the_engines_own_tokens_come_from_the_tokenizer_and_the_generation_config(tmp_path: Path) -> None:
    from transformers import GenerationConfig

    tokenizer = bpe_tokenizer()
    assert engine_stop_ids(tokenizer) == {tokenizer.eos_token_id}
    more = [tokenizer.eos_token_id, 7]
    GenerationConfig(eos_token_id=more).save_pretrained(tmp_path)
    tokenizer.name_or_path = str(tmp_path)
    assert engine_stop_ids(tokenizer) == set(more)
    GenerationConfig(eos_token_id=[7, -1, 10**6]).save_pretrained(tmp_path)
    tokenizer.eos_token = None
    assert engine_stop_ids(tokenizer) == {7, 10**6}  # -1 stands for none
