"""No input of a context is dropped without an error, in either kind of context."""

from __future__ import annotations

from typing import Any

import pytest

from gem_chat import AppendContext, RebuildContext
from gem_chat._chat_templates import check_variables, shows
from gem_core.errors import ConfigError, UnsupportedTemplate
from tests.rollout.tokenizers import CHATML, LLAMA3, QWEN3, bpe_tokenizer
from tests.support import needs

pytestmark = needs("transformers", "train")

CONTEXTS = (AppendContext, RebuildContext)
LOOP, END = (
    "{% for m in messages %}",
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{% endif %}",
)
TURN = "<|im_start|>{{ m.role }}|{{ m.content }}<|im_end|>"
PARTS = LOOP + TURN.replace("{{ m.content }}", "{% for p in m.content %}{{ p.text }}{% endfor %}") + END
SYSTEM_OPENS = "{% if messages[0].role == 'system' %}"
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {}}}, {"name": "x"}]


def context_of(kind: Any, template: str, **options: Any) -> tuple[Any, Any]:
    tokenizer = bpe_tokenizer("chatml", template)
    return kind(tokenizer, **options), tokenizer


@pytest.mark.parametrize("kind", CONTEXTS)
@pytest.mark.parametrize(
    ("template", "options", "reason"),
    [
        (LOOP + "{% if m.role != 'system' %}" + TURN + "{% endif %}" + END, {"system_prompt": "Play."},
         "system prompt 'Play.'"),
        (LOOP + TURN.replace("m.content", "m.content[:20]") + END, {"system_prompt": "Play " * 9}, "system"),
        (SYSTEM_OPENS + "{% set messages = messages[1:] %}{% endif %}" + LOOP + TURN + END,
         {"system_prompt": "Play."}, "system prompt"),
        (CHATML, {"template_kwargs": {"tools": TOOLS}}, "the tools look_up, x of template_kwargs"),
        ("{{ tools[0].function.name }}" + CHATML, {"template_kwargs": {"tools": TOOLS}}, "the tools x of"),
        ("{% if tools %}I have tools.{% endif %}" + CHATML, {"template_kwargs": {"tools": TOOLS}}, "look_up"),
        (LOOP + "{{ m.role }}<|im_end|>" + END, {}, "does not show the observation"),
        (LOOP + "<|im_end|>{% if m.content is not string %}{{ m.content[0].image }}{% endif %}" + END, {},
         "does not show the observation"),
        ("{% for tool in tools %}{{ tool }}{% endfor %}" + CHATML, {}, r"template_kwargs=\{'tools': \[\]\}"),
        ("{{ functions + 'x' }}" + CHATML, {}, r"template_kwargs=\{'functions': \.\.\.\}"),
    ],
)  # fmt: skip
def test_a_template_that_drops_an_input_is_rejected(
    kind: Any, template: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnsupportedTemplate, match=reason) as caught:
        context_of(kind, template, **options)
    assert "chat_template" in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("kind", CONTEXTS)
@pytest.mark.parametrize(
    ("template", "options"),
    [
        (CHATML, {"system_prompt": "Play.\n"}),
        (LOOP + TURN.replace("m.content", "m.content | trim") + END, {"system_prompt": "\n Play. \n"}),
        ("{{ tools | tojson }}" + CHATML, {"template_kwargs": {"tools": TOOLS}}),
        (
            SYSTEM_OPENS + "{{ messages[0].content | tojson }}{% endif %}" + CHATML,
            {"system_prompt": 'Say "a".'},
        ),
        (QWEN3, {"template_kwargs": {"enable_thinking": False}}),
        (LLAMA3, {"template_kwargs": {"date_string": "1 Jan"}}),
        (
            "{% generation %}{% endgeneration %}" + "{{ mood }}" + CHATML,
            {"template_kwargs": {"mood": "calm"}},
        ),
    ],
)
def test_a_template_that_shows_its_inputs_is_accepted(
    kind: Any, template: str, options: dict[str, Any]
) -> None:
    context_of(kind, template, **options)


@pytest.mark.parametrize("kind", CONTEXTS)
@pytest.mark.parametrize("template", [CHATML, QWEN3, LLAMA3])
def test_variables_that_the_template_does_not_read_are_rejected(kind: Any, template: str) -> None:
    with pytest.raises(ConfigError, match=r"template_kwargs enable_thinkin, typo: .*reads no such variable"):
        context_of(kind, template, template_kwargs={"typo": 1, "enable_thinkin": False})


def test_the_variables_that_exist_are_named() -> None:
    with pytest.raises(ConfigError, match=r"\(it reads: enable_thinking,"):
        check_variables([QWEN3], ["thinking"])
    check_variables(["{% if broken"], ["thinking"])  # rendering reports it


@pytest.mark.parametrize("kind", CONTEXTS)
def test_a_template_that_takes_content_parts_gets_them(kind: Any) -> None:
    context, tokenizer = context_of(kind, PARTS, system_prompt="Play.")
    assert tokenizer.decode(context.first("Go.")) == (
        "<|im_start|>system|Play.<|im_end|><|im_start|>user|Go.<|im_end|><|im_start|>assistant"
    )
    if kind is AppendContext:
        between = "<|im_start|>user|No.<|im_end|><|im_start|>assistant"
        assert tokenizer.decode(context.extend("No.", [tokenizer.eos_token_id])) == between


@pytest.mark.parametrize("kind", CONTEXTS)
def test_the_day_of_a_prompt_can_be_fixed(kind: Any) -> None:
    template = "{{ strftime_now('%d %b %Y, %-d|%A %B %m') }}" + CHATML
    context, tokenizer = context_of(kind, template, date="2026-01-05")
    assert tokenizer.decode(context.first("Go.")).startswith("05 Jan 2026, 5|Monday January 01<|im_start|>")
    llama, tokenizer = context_of(kind, LLAMA3, date="2026-01-05")
    assert "Today Date: 05 Jan 2026" in tokenizer.decode(llama.first("Go."))
    for options, reason in (
        ({"date": "tomorrow"}, "expected a day such as 2026-01-31"),
        ({"date": "2026-01-05", "chat_template": CHATML}, "shows no date"),
    ):
        with pytest.raises(ConfigError, match=reason):
            context_of(kind, template, **options)
    bare = bpe_tokenizer("none")
    with pytest.raises(ConfigError, match="no chat template"):
        kind(bare, date="2026-01-05")


def test_a_content_may_be_trimmed_or_in_json() -> None:
    assert shows("a 5  6", "5 6\n")
    assert shows(r'{"x": "say \"5\" \n"}', 'say "5" \n')
    assert not shows("5", "6")
