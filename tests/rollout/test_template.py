"""Contexts with real tokenizers and real template families, and rejected templates."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from gem_chat import AppendContext, RebuildContext
from gem_core.errors import UnsupportedTemplate
from tests.rollout.tokenizers import CHATML, TEMPLATES, bpe_tokenizer
from tests.support import needs

pytestmark = needs("transformers", "train")

TURNS = [
    ("Guess a number.\n", "I think 5."),
    ("", "3"),
    ("  too high \\boxed{7}\n\n", "Let me think <b>\n\nabout it…"),
    ("done?", " yes "),
]
DATE = {"date_string": "01 Jan 2026"}


@functools.cache
def tokenizer(family: str) -> Any:
    return bpe_tokenizer(family)


def grow(context: AppendContext, encode: Any, answers: list[str], *, ended: bool = True) -> list[int]:
    """Return the ids of a conversation that grows turn by turn, up to the prompt of the next answer."""
    ids = context.first(TURNS[0][0])
    for (observation, _), answer in zip(TURNS[1:], answers, strict=False):
        response = encode(answer) + [context.extra_stop_id(())] * ended
        ids += response + context.extend(observation, response)
    return ids


def full(tok: Any, answers: list[str], system: str | None = None, **kwargs: Any) -> list[int]:
    """Return the ids of the same conversation, rendered and encoded as a whole."""
    messages = [{"role": "system", "content": system}] if system else []
    for (observation, _), answer in zip(TURNS, [*answers, None], strict=False):
        messages.append({"role": "user", "content": observation})
        if answer is not None:
            messages.append({"role": "assistant", "content": answer})
    rendered = tok.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **kwargs)
    return list(tok.encode(rendered, add_special_tokens=False))


@pytest.mark.parametrize("ended", [True, False], ids=["ended", "cut"])
@pytest.mark.parametrize("system", [None, "Play well."])
@pytest.mark.parametrize("family", ["chatml", "qwen3", "llama3"])
def test_growing_gives_the_tokens_of_the_whole_conversation(
    family: str, system: str | None, ended: bool
) -> None:
    tok = tokenizer(family)
    kwargs = DATE if family == "llama3" else {}
    context = AppendContext(tok, system_prompt=system, template_kwargs=kwargs)
    answers = [answer.strip() for _, answer in TURNS[:3]]  # Llama 3 trims what it renders
    encode = functools.partial(tok.encode, add_special_tokens=False)
    assert grow(context, encode, answers, ended=ended) == full(tok, answers, system, **kwargs)


@pytest.mark.parametrize("ended", [True, False], ids=["ended", "cut"])
def test_mistral_answers_keep_their_leading_space(ended: bool) -> None:
    tok = tokenizer("mistral")
    answers = ["5", "3", "7"]

    def encode(answer: str) -> list[int]:
        return list(tok.encode(" " + answer, add_special_tokens=False))

    assert grow(AppendContext(tok), encode, answers, ended=ended) == full(tok, answers)


def test_the_plain_format_of_a_real_tokenizer() -> None:
    tok = tokenizer("none")
    context = AppendContext(tok, system_prompt="Play.")
    assert tok.decode(context.first("Go.")) == "Play.\n\nUser: Go.\n\nAssistant:"
    response = [*tok.encode(" 5"), tok.eos_token_id]
    assert tok.decode(context.extend("No.", response)) == "\n\nUser: No.\n\nAssistant:"
    assert tok.decode(context.extend("No.", response[:-1])) == "<|endoftext|>\n\nUser: No.\n\nAssistant:"


def test_thinking_stays_although_the_template_strips_it() -> None:
    tok = tokenizer("qwen3")
    context = AppendContext(tok)
    answer = "<think>\n5 is the middle\n</think>\n\n\\boxed{5}"
    response = [*tok.encode(answer), context.extra_stop_id(())]
    ids = context.first("Guess.") + response + context.extend("Lower.", response)
    assert tok.decode(ids).count("5 is the middle") == 1
    messages = [
        {"role": "user", "content": "Guess."},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": "Lower."},
    ]
    rendered = tok.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert "5 is the middle" not in rendered, "or this tests nothing"
    assert context.decode(response) == answer, "think tags are text for the environment"


def test_template_variables_reach_every_turn() -> None:
    tok = tokenizer("qwen3")
    context = AppendContext(tok, template_kwargs={"enable_thinking": False})
    assert tok.decode(context.first("x")).endswith("assistant\n<think>\n\n</think>\n\n")
    assert tok.decode(context.extend("x", [1])).endswith("assistant\n<think>\n\n</think>\n\n")


def test_sampled_ids_are_never_encoded_again() -> None:
    tok = tokenizer("chatml")
    context = AppendContext(tok)
    spelled = [tok.encode(letter)[0] for letter in "number"]  # not how the tokenizer would encode it
    assert spelled != tok.encode("number")
    assert context.decode(spelled) == "number"
    assert context.extend("x", spelled) == context.extend("x", tok.encode("number"))


def test_a_tool_message_has_the_templates_own_form() -> None:
    tok = tokenizer("qwen3")
    context = AppendContext(tok)
    between = tok.decode(context.extend("4", [context.extra_stop_id(()) or 0], role="tool"))
    assert between == (
        "\n<|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    with pytest.raises(UnsupportedTemplate, match="alternate"):
        AppendContext(tokenizer("mistral")).extend("4", [1], role="tool")


@pytest.mark.parametrize("family", sorted(TEMPLATES))
def test_bos_comes_once(family: str) -> None:
    tok = tokenizer(family)
    context = AppendContext(tok)
    ids = grow(context, functools.partial(tok.encode, add_special_tokens=False), ["5", "3", "7"])
    if tok.bos_token_id is not None:
        assert ids.count(tok.bos_token_id) == 1
        assert ids[0] == tok.bos_token_id
        assert RebuildContext(tok).first("x").count(tok.bos_token_id) == 1


def test_another_template_can_be_given() -> None:
    tok = tokenizer("none")
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
    context = AppendContext(tok, chat_template=template)
    assert tok.decode(context.first("Go.")) == "<user>Go.<assistant>"
    assert tok.decode(context.extend("No.", tok.encode("5"))) == "<user>No.<assistant>"
    assert context.extra_stop_id(()) is None


def test_a_special_token_that_opens_the_next_turn_can_end_this_one() -> None:
    """GLM's models stop on the token that opens the user's turn."""
    tok = tokenizer("chatml")
    template = (
        "{% for m in messages %}"
        "{{ '\n' + ('<|im_start|>' if m.role == 'user' else '<|im_end|>') + m.content }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '\n<|im_end|>' }}{% endif %}"
    )
    context = AppendContext(tok, chat_template=template)
    user = tok.convert_tokens_to_ids("<|im_start|>")
    assert context.extra_stop_id(()) == user
    assert tok.decode(context.extend("No.", [user])) == "No.\n<|im_end|>"
    assert tok.decode(context.extend("No.", [5])) == "\n<|im_start|>No.\n<|im_end|>"


def test_a_turn_may_end_with_several_special_tokens() -> None:
    """Cohere's models write two: the first ends the response, the second ends the turn."""
    tok = tokenizer("llama3")
    end, turn, opening = (
        tok.convert_tokens_to_ids(token) for token in ("<|eot_id|>", "<|end_of_text|>", "<|start_header_id|>")
    )
    template = (
        "{% for m in messages %}{{ '<|start_header_id|>' + m.content }}"
        "{{ '<|eot_id|><|end_of_text|>' if m.role == 'assistant' else '<|end_header_id|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>' }}{% endif %}"
    )
    context = AppendContext(tok, chat_template=template)
    no = [*tok.encode("No."), tok.convert_tokens_to_ids("<|end_header_id|>"), opening]
    assert context.extend("No.", [99]) == [end, turn, opening, *no]
    assert context.extend("No.", [99, end]) == [turn, opening, *no]
    assert context.extend("No.", [99, end, turn]) == [opening, *no]
    assert context.extend("No.", [99, opening]) == [end, turn, opening, *no], "an opening closes nothing"
    assert context.decode([*tok.encode("Hi"), end, turn]) == "Hi"


def test_a_text_without_generation_prompt_may_end_with_eos() -> None:
    """Phi 3 puts the end-of-sequence token after a text without a generation prompt."""
    template = CHATML.replace("{% endif %}", "{% else %}{{ '<|endoftext|>' }}{% endif %}")
    context = AppendContext(tokenizer("chatml"), chat_template=template)
    assert context.extend("No.", [5]) == AppendContext(tokenizer("chatml")).extend("No.", [5])


LOOP = "{% for m in messages %}"
END = "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
TURN = "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"

REFUSED = {
    "numbers the turns": (LOOP + "{{ loop.index }}" + TURN + END, "the number of turns"),
    "says how many messages there are": (
        LOOP + TURN + "{% endfor %}{{ messages | length }}<|im_start|>assistant\n",
        "the number of turns",
    ),
    "repeats the first message": (
        LOOP + TURN + "{% endfor %}{{ 'Task: ' + messages[0].content }}<|im_start|>assistant\n",
        "the content of earlier messages",
    ),
    "repeats the last answer": (
        LOOP
        + "{% if loop.index0 > 0 and m.role == 'user' %}{{ 'You said ' + messages[loop.index0 - 1].content }}"
        + "{% endif %}"
        + TURN
        + END,
        "the content of earlier messages",
    ),
    "keeps the last two messages": (
        "{% set messages = messages[-2:] %}" + LOOP + TURN + END,
        "differently when others follow",
    ),
    "marks the last message": (
        LOOP + "{% if loop.last and m.role == 'user' %}{{ '[now]' }}{% endif %}" + TURN + END,
        "differently when others follow",
    ),
    "strips what users said before": (
        LOOP
        + "{% if m.role == 'user' and not loop.last %}{{ '<|im_start|>user\n(old)<|im_end|>\n' }}"
        + "{% else %}"
        + TURN
        + "{% endif %}"
        + END,
        "differently when others follow",
    ),
    "puts the date into each message": (
        LOOP + "{{ strftime_now('%d %b %Y') }}" + TURN + END,
        "date or time",
    ),
    "changes answers": (
        LOOP + "{% if m.role == 'assistant' %}{{ m.content | upper }}{% else %}" + TURN + "{% endif %}" + END,
        "does not show the answer",
    ),
    "drops messages after the first": (
        LOOP + "{% if loop.first or m.role != 'user' %}" + TURN + "{% endif %}" + END,
        "does not show the user message",
    ),
    "has nothing but contents": (LOOP + "{{ m.content }}{% endfor %}", "no token between two responses"),
    "takes one message only": (
        "{% if messages | length > 1 %}{{ raise_exception('one message only') }}{% endif %}"
        + LOOP
        + TURN
        + END,
        "one message only",
    ),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_template_without_token_exact_turns_is_rejected_with_the_reason(name: str) -> None:
    template, reason = REFUSED[name]
    with pytest.raises(UnsupportedTemplate, match=reason):
        AppendContext(tokenizer("chatml"), chat_template=template)


# Messages and the opening of an answer, of templates that could write the opening although none is asked for.
UNASKED = {
    "one token opens each message": (LOOP + TURN + "{% endfor %}", "<|im_start|>assistant\n"),
    "an empty thought, as in Command R7B": (
        LOOP + "<|im_start|>{{ m.role }}|{{ '<|say|>' if m.role == 'assistant' }}{{ m.content }}"
        "{{ '<|done|>' if m.role == 'assistant' }}<|im_end|>{% endfor %}",
        "<|im_start|>assistant|<|think|><|/think|>",
    ),
    "the beginning of an answer": (LOOP + TURN + "{% endfor %}", "<|im_start|>assistant\nMy answer:"),
    "a preamble that ends like a message": (
        "<|bos|><|im_start|>system\nHelp.<|im_end|>" + LOOP + TURN + "{% endfor %}",
        "<|im_start|>assistant\n",
    ),
    "no end of messages": (
        LOOP + "<|im_start|>{{ m.role }}\n{{ m.content }}{% endfor %}", "<|im_start|>assistant\n"
    ),
    "an opening for each role": (
        LOOP + "<|{{ m.role }}|>{{ m.content }}<|im_end|>{% endfor %}", "<|assistant|><|think|>"
    ),
    "the token that begins a text opens each message": (
        LOOP + "<|bos|>{{ m.role }}:{{ m.content }}<|im_end|>{% endfor %}", "<|bos|>assistant:"
    ),
    "roles are plain text": (
        LOOP + "\n\n{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}", "\n\nassistant:"
    ),
    "an answer has the only end": (
        LOOP
        + "{{ '[Q]' + m.content + '[/Q]' if m.role == 'user' else m.content + '<|im_end|>' }}{% endfor %}",
        "",
    ),
    "lines between messages": (
        "{% for m in messages -%}" + TURN + "\n    {% endfor %}", "<|im_start|>assistant\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNASKED)
def test_an_opening_that_is_always_there_is_no_end_of_an_answer(name: str) -> None:
    messages, opening = UNASKED[name]
    tok = bpe_tokenizer("chatml")
    tokens = ["<|say|>", "<|think|>", "<|/think|>", "<|done|>", "<|bos|>", "<|user|>", "<|assistant|>"]
    tok.add_tokens(tokens, special_tokens=True)
    opening = f"{{{{ {opening!r} }}}}"  # Jinja drops a line break at the end of a template
    asked = "{% if add_generation_prompt %}" + opening + "{% endif %}"
    for kind in (AppendContext, RebuildContext):
        context, twin = (kind(tok, chat_template=messages + end) for end in (opening, asked))
        stop = "<|im_start|>" if name == "no end of messages" else "<|im_end|>"
        assert context.extra_stop_id(()) == twin.extra_stop_id(()) == tok.convert_tokens_to_ids(stop)
        assert context.first("Go.") == twin.first("Go.")
        for text in (
            "5",
            "5<|im_end|>",
            "5<|done|>",
            "5<|done|><|im_end|>",
            "5<|im_start|>",
            "5<|endoftext|>",
        ):
            response = tok.encode(text, add_special_tokens=False)
            assert context.extend("No.", response) == twin.extend("No.", response)
            assert context.extend_text("No.", response) == twin.extend_text("No.", response)
            assert context.decode(response) == twin.decode(response)


def test_a_message_that_changes_is_rejected_also_before_an_opening_that_is_always_there() -> None:
    tok = bpe_tokenizer("chatml")
    last = "{{ 'You play.' if loop.last and m.role == 'user' }}"
    for changed in (TURN + last, last + TURN):
        template = LOOP + changed + "{% endfor %}<|im_start|>assistant\n"
        with pytest.raises(UnsupportedTemplate, match="differently when others follow"):
            AppendContext(tok, chat_template=template)


def test_the_reason_of_a_rejection_shows_the_text_around_the_first_difference() -> None:
    long = "a long preamble of the template " * 200
    template = LOOP + "{{ loop.length if loop.first }}" + long + TURN + END
    with pytest.raises(UnsupportedTemplate, match=r"'1a long .* became '3a long") as caught:
        AppendContext(tokenizer("chatml"), chat_template=template)
    assert len(str(caught.value)) < 500


def test_templates_with_names_are_checked_like_a_single_one() -> None:
    dated, reason = REFUSED["puts the date into each message"]
    plain, tools = CHATML, [{"type": "function", "function": {"name": "f"}}]
    rejected: list[tuple[dict[str, str], dict[str, Any]]] = [
        ({"default": dated}, {}),
        ({"default": dated, "tool_use": plain}, {}),
        ({"default": plain, "tool_use": "{{ tools }}" + dated}, {"template_kwargs": {"tools": tools}}),
        ({"default": plain, "dated": dated}, {"chat_template": "dated"}),
    ]
    tok = bpe_tokenizer("chatml")
    for templates, options in rejected:
        tok.chat_template = templates
        with pytest.raises(UnsupportedTemplate, match=reason):
            AppendContext(tok, **options)
    for templates, options in (
        ({"default": plain, "tool_use": dated}, {}),
        ({"default": dated, "tool_use": "{{ tools }}" + plain}, {"template_kwargs": {"tools": tools}}),
        ({"default": dated, "plain": plain}, {"chat_template": "plain"}),
        ({"default": dated}, {"chat_template": plain}),
    ):
        tok.chat_template = templates
        end = tok.decode(AppendContext(tok, **options).first("x"))
        assert end.endswith("<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n")


MERGES_SYSTEM_LAST = (
    "{% set system = messages[0].content if messages[0].role == 'system' else '' %}"
    "{% for m in messages %}{% if m.role != 'system' %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if loop.last %}{{ system + '\n' }}{% endif %}{{ m.content + '<|im_end|>\n' }}{% endif %}" + END
)
MERGES_SYSTEM_FIRST = (
    "{% set system = messages[0].content + '\n' if messages[0].role == 'system' else '' %}"
    "{% set rest = messages[1:] if messages[0].role == 'system' else messages %}"
    "{% for m in rest %}{{ '<|im_start|>' + m.role + '\n' + (system if loop.first else '') + m.content }}"
    "{{ '<|im_end|>\n' }}" + END
)


def test_a_system_prompt_may_be_merged_into_the_first_message_and_no_other() -> None:
    tok = tokenizer("chatml")
    context = AppendContext(tok, chat_template=MERGES_SYSTEM_FIRST, system_prompt="Play.")
    assert (
        tok.decode(context.first("Go.")) == "<|im_start|>user\nPlay.\nGo.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert "Play." not in tok.decode(context.extend("No.", [5]))
    with pytest.raises(UnsupportedTemplate, match="differently when others follow"):
        AppendContext(tok, chat_template=MERGES_SYSTEM_LAST, system_prompt="Play.")


def test_a_system_prompt_that_the_template_rejects_is_an_error_at_once() -> None:
    template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHATML
    )
    AppendContext(tokenizer("chatml"), chat_template=template)
    with pytest.raises(UnsupportedTemplate, match="no system role"):
        AppendContext(tokenizer("chatml"), chat_template=template, system_prompt="Play.")
