"""Native tool calls in tokens: one minimal chat template per mechanism of the field, in whole episodes."""

from __future__ import annotations

import asyncio
import json
from functools import lru_cache
from typing import Any, NamedTuple

import pytest

import gem_core
from gem_chat import AppendContext, RebuildContext, get_syntax, native_syntax
from gem_chat._native_tools import CallResult
from gem_chat._tools import schema
from gem_chat.tools import Tool, ToolCall, ToolResult
from gem_core.errors import UnsupportedTemplate
from gem_core.rollout import Episode, EpisodeLimits, run_episode
from gem_envs.tools import Tools
from gem_envs.tools._wrapper import LAST_USE
from tests.rollout.jinja_tokenizer import JinjaTokenizer
from tests.rollout.policies import ScriptedPolicy
from tests.rollout.tokenizers import bpe_tokenizer

pytest.importorskip("jinja2", reason="needs jinja2, which comes with the extra 'train'")


class Family(NamedTuple):
    """A template in the manner of a model family.

    Attributes:
        syntax: Name of its syntax.
        template: The template.
        specials: Its special tokens; an answer ends with the first one.
        turn: What it puts between a call with the result `"4"\\n2` and the next answer.
        stop: Token with which the model ends a call.
    """

    syntax: str
    template: str
    specials: list[str]
    turn: str
    stop: str


# ruff: noqa: E501
# Every template shows the schemas once, and raises for a result that no call precedes.
_HEAD = "{% if tools %}SCHEMAS{{ tools | tojson }}{% endif %}"
_CHECK = "{% if not loop.first and messages[loop.index0 - 1].role not in ['assistant', 'tool'] %}{{ raise_exception('no call') }}{% endif %}"
_NEXT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def chatml(calls: str, result: str, head: str = _HEAD) -> str:
    """Return a template like Qwen's with its own text for calls and results."""
    return (
        head + "{% for m in messages %}{% if m.role == 'tool' %}" + _CHECK + result
        + "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}"
        + "{% if m.tool_calls %}" + calls + "{% endif %}<|im_end|>\n{% endif %}{% endfor %}" + _NEXT
    )  # fmt: skip


_EACH = "{% for c in m.tool_calls %}{% set f = c.function %}"
_TYPED = "{{ v if v is string else v | tojson }}"
_CHATML = ["<|im_end|>", "<|im_start|>"]
_USER_RESULT = "<|im_start|>user\n<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n"
_HERMES = (
    _EACH + '<tool_call>\n{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}\n</tool_call>'
    "{% if not loop.last %}\n{% endif %}{% endfor %}"
)
_SHOWN = '<|im_start|>user\n<tool_response>\n"4"\n2\n</tool_response><|im_end|>\n<|im_start|>assistant\n'

FAMILIES = {
    "hermes": Family(
        "hermes",
        chatml(
            _HERMES,
            # several results share a turn
            "{% if loop.previtem.role != 'tool' %}<|im_start|>user{% endif %}{{ '\\n' }}<tool_response>\n{{ m.content }}\n"
            "</tool_response>{% if loop.last or loop.nextitem.role != 'tool' %}<|im_end|>\n{% endif %}",
        ),
        _CHATML, f"<|im_end|>\n{_SHOWN}", "<|im_end|>",
    ),
    "typed arguments": Family(
        "xml",
        chatml(
            _EACH + "<tool_call>\n<function={{ f.name }}>\n{% for k, v in f.arguments.items() %}"
            "<parameter={{ k }}>\n" + _TYPED + "\n</parameter>\n{% endfor %}</function>\n</tool_call>\n{% endfor %}",
            _USER_RESULT,
        ),
        _CHATML, f"\n<|im_end|>\n{_SHOWN}", "<|im_end|>",
    ),
    "a thought before a call until the next question": Family(
        "hermes",
        chatml(
            "{% if messages[loop.index0:] | selectattr('role', 'equalto', 'user') | list | length == 0 %}"
            "<think>\n\n</think>\n\n{% endif %}" + _HERMES,
            _USER_RESULT,
        ),
        _CHATML, f"<|im_end|>\n{_SHOWN}", "<|im_end|>",
    ),
    "no question after a result": Family(
        "hermes",
        chatml(_HERMES, _USER_RESULT).replace(
            "{% else %}",
            "{% else %}{% if m.role == 'user' and not loop.first and loop.previtem.role == 'tool' %}"
            "{{ raise_exception('roles must alternate') }}{% endif %}",
        ),
        _CHATML, f"<|im_end|>\n{_SHOWN}", "<|im_end|>",
    ),
    "the opener of the result is the stop token": Family(
        "glm",
        _HEAD + "{% for m in messages %}{% if m.role == 'tool' %}" + _CHECK + "<|observation|>\n{{ m.content }}"
        "{% else %}<|{{ m.role }}|>\n{{ m.content }}{% for c in m.tool_calls or [] %}{% set f = c.function %}"
        "<tool_call>{{ f.name }}{% for k, v in f.arguments.items() %}\n<arg_key>{{ k }}</arg_key>\n<arg_value>"
        + _TYPED + "</arg_value>{% endfor %}\n</tool_call>{% endfor %}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
        ["<|user|>", "<|assistant|>", "<|observation|>", "<|system|>"],
        '<|observation|>\n"4"\n2<|assistant|>\n', "<|observation|>",
    ),
    "a result in JSON with the role ipython, one call only": Family(
        "llama",
        _HEAD + "{% for m in messages %}{% if m.role == 'tool' %}" + _CHECK
        + "<|start|>ipython<|sep|>{{ m.content | tojson }}<|eot|>"
        "{% elif m.tool_calls %}{% if m.tool_calls | length != 1 %}{{ raise_exception('one call') }}{% endif %}"
        '{% set f = m.tool_calls[0].function %}<|start|>assistant<|sep|>{"name": "{{ f.name }}", '
        '"parameters": {{ f.arguments | tojson }}}<|eot|>'
        "{% else %}<|start|>{{ m.role }}<|sep|>{{ m.content }}<|eot|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant<|sep|>{% endif %}",
        ["<|eot|>", "<|start|>", "<|sep|>"],
        '<|eot|><|start|>ipython<|sep|>"\\"4\\"\\n2"<|eot|><|start|>assistant<|sep|>', "<|eot|>",
    ),
    "the result continues the turn of the assistant": Family(
        "gemma4",
        _HEAD + "{% for m in messages %}{% if m.role == 'tool' %}" + _CHECK
        + "{% if loop.previtem.role == 'tool' %}<|tool_response>{% endif %}"
        'response:{{ m.name }}{value:<|"|>{{ m.content }}<|"|>{{ "}" }}<tool_response|>'
        "{% else %}{% if m.role != 'assistant' or loop.previtem.role != 'tool' %}<|turn>{{ m.role }}\n{% endif %}"
        "{{ m.content }}" + "{% for c in m.tool_calls or [] %}{% set f = c.function %}<|tool_call>call:{{ f.name }}{{ '{' }}"
        "{% for k, v in f.arguments.items() %}{% if not loop.first %},{% endif %}{{ k }}:"
        '{% if v is string %}<|"|>{{ v }}<|"|>{% else %}{{ v | tojson }}{% endif %}{% endfor %}{{ "}" }}<tool_call|>{% endfor %}'
        "{% if m.tool_calls %}<|tool_response>{% else %}<turn|>\n{% endif %}{% endif %}{% endfor %}"
        "{% if add_generation_prompt and messages[-1].role != 'tool' %}<|turn>assistant\n{% endif %}",
        ["<turn|>", "<|turn>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", '<|"|>'],
        '<|tool_response>response:look{value:<|"|>"4"\n2<|"|>}<tool_response|>', "<|tool_response>",
    ),
    "channels": Family(
        "harmony",
        _HEAD + "{% for m in messages %}{% if m.role == 'tool' %}" + _CHECK
        + "<|start|>functions.{{ m.name }} to=assistant<|channel|>commentary<|message|>{{ m.content | tojson }}<|end|>"
        "{% elif m.tool_calls %}{% set f = m.tool_calls[0].function %}<|start|>assistant<|channel|>commentary "
        "to=functions.{{ f.name }} <|constrain|>json<|message|>{{ f.arguments | tojson }}<|call|>"
        "{% elif m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}"
        "{{ '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}"
        "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant{% endif %}",
        ["<|return|>", "<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|call|>", "<|constrain|>"],
        '<|call|><|start|>functions.look to=assistant<|channel|>commentary<|message|>"\\"4\\"\\n2"<|end|>'
        "<|start|>assistant", "<|call|>",
    ),
    "ids of calls": Family(
        "kimi",
        _HEAD + "{% for m in messages %}{% if m.role == 'tool' %}" + _CHECK
        + "<|im_start|>tool<|im_middle|>## Return of {{ m.tool_call_id }}\n{{ m.content }}<|im_end|>"
        "{% else %}<|im_start|>{{ m.role }}<|im_middle|>{{ m.content }}{% if m.tool_calls %}<|tool_calls_section_begin|>"
        "{% for c in m.tool_calls %}<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>"
        "{{ c.function.arguments | tojson }}<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>{% endif %}"
        "<|im_end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant<|im_middle|>{% endif %}",
        ["<|im_end|>", "<|im_start|>", "<|im_middle|>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
         "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"],
        '<|im_end|><|im_start|>tool<|im_middle|>## Return of functions.look:0\n"4"\n2<|im_end|><|im_start|>assistant'
        "<|im_middle|>", "<|im_end|>",
    ),
    "arguments as JSON text": Family(
        "deepseek-v3.1",
        _HEAD + "{% for m in messages %}{% if m.role == 'tool' %}" + _CHECK + "<out>{{ m.content }}</out>"
        "{% elif m.role == 'user' %}<U>{{ m.content }}{% elif m.role == 'system' %}{{ m.content }}{% else %}"
        "{% if loop.previtem.role == 'user' %}<A>{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "<｜tool▁call▁begin｜>{{ c.function.name }}<｜tool▁sep｜>{{ c.function.arguments + '' }}<｜tool▁call▁end｜>{% endfor %}"
        "<eos>{% endif %}{% endfor %}{% if add_generation_prompt and messages[-1].role == 'user' %}<A>{% endif %}",
        ["<eos>", "<U>", "<A>", "<out>", "</out>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"],
        '<eos><out>"4"\n2</out>', "<eos>",
    ),
}  # fmt: skip


class Look(Tool):
    name = "look"
    description = "Looks at a place."
    parameters = {  # noqa: RUF012
        "type": "object",
        "properties": {"place": {"type": "string"}, "times": {"type": "integer"}},
        "required": ["place"],
    }

    async def call(self, arguments, state):
        return ToolResult(state.data["text"] if "text" in state.data else arguments["place"])

    def begin(self):
        state = super().begin()
        if self.text is not None:
            state.data["text"] = self.text
        return state

    def __init__(self, text: str | None = None) -> None:
        self.text = text


@lru_cache
def context_of(name: str) -> tuple[JinjaTokenizer, AppendContext]:
    tokenizer = JinjaTokenizer(FAMILIES[name].template, FAMILIES[name].specials)
    return tokenizer, AppendContext(tokenizer)


def tokenizer_of(name: str) -> JinjaTokenizer:
    return context_of(name)[0]


def model_tokenizer(name: str, eos: str = "<|endoftext|>") -> Any:
    """Return a tokenizer of transformers with the template of a family."""
    tokenizer = bpe_tokenizer("chatml", FAMILIES[name].template)
    tokenizer.add_tokens([*FAMILIES[name].specials, eos], special_tokens=True)
    tokenizer.eos_token = eos
    return tokenizer


def call(name: str, *arguments: dict[str, Any]) -> str:
    """Return a response with calls of `look`, without its stop token."""
    calls = [ToolCall("look", given) for given in arguments]
    return get_syntax(FAMILIES[name].syntax).write(calls)


def play(tokenizer: Any, texts: list[str], *, tool: Tool | None = None, **options: Any) -> Episode:
    env = Tools(gem_core.make("math:Arithmetic-v0"), tools=tool or Look('"4"\n2'), **options)
    known = [context for mine, context in map(context_of, FAMILIES) if mine is tokenizer]
    context = known[0] if known else AppendContext(tokenizer)
    policy = ScriptedPolicy([tokenizer.encode(text) for text in texts])
    limits = EpisodeLimits(max_tokens_per_turn=5000, max_turns=len(texts))
    with env:
        return asyncio.run(run_episode(env, policy, context, limits, seed=0))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_turn_after_a_call_is_the_one_of_the_template(name: str) -> None:
    family, tokenizer = FAMILIES[name], tokenizer_of(name)
    assert native_syntax(tokenizer).name == family.syntax
    written = call(name, {"place": "here", "times": 2})
    for ended in (True, False):
        ids = tokenizer.encode(written + family.stop * ended)
        episode = play(tokenizer, [written + family.stop * ended, "\\boxed{0}" + family.specials[0]])
        first, second = episode.turns
        assert tokenizer.decode(first.context_ids).count(Look.description) == 1
        assert "Result of" not in tokenizer.decode(first.context_ids)
        assert "<look>" not in tokenizer.decode(first.context_ids)  # no instructions in text
        assert first.info["tool_results"] == [{"name": "look", "ok": True}]
        assert first.response_ids == ids
        whole = tokenizer.decode([*first.response_ids, *second.context_ids])
        # a response that ends without the template's line break stays as it was sampled
        assert whole == written + (family.turn.lstrip("\n") if ended else family.turn)
        assert second.action == "\\boxed{0}"


@pytest.mark.parametrize("name", FAMILIES)
def test_the_action_is_the_call_in_the_format_of_the_environment(name: str) -> None:
    family, tokenizer = FAMILIES[name], tokenizer_of(name)
    episode = play(tokenizer, [call(name, {"place": "here", "times": 2}) + family.stop])
    with Tools(gem_core.make("math:Arithmetic-v0"), tools=Look("x")) as env:
        env.reset(seed=0)
        (found,) = env.format.parse(episode.turns[0].action, env.tools)
    assert (found.name, found.arguments, found.error) == ("look", {"place": "here", "times": 2}, None)


@pytest.mark.parametrize(
    "name", [name for name in FAMILIES if FAMILIES[name].syntax not in ("harmony", "llama")]
)
def test_several_calls_have_several_results(name: str) -> None:
    family, tokenizer = FAMILIES[name], tokenizer_of(name)
    written = call(name, {"place": "one"}, {"place": "two"}, {"place": "three"})
    episode = play(tokenizer, [written + family.stop, "no"], tool=Look(), max_calls=2)
    shown = tokenizer.decode(episode.turns[1].context_ids)
    assert [result["name"] for result in episode.turns[0].info["tool_results"]] == ["look", "look"]
    assert shown.index("one") < shown.index("two") < shown.index("not made")
    expected = AppendContext(tokenizer).with_tools([{"type": "function", "function": {"name": "look"}}])
    assert expected is not None


@pytest.mark.parametrize("name", ["a result in JSON with the role ipython, one call only", "channels"])
def test_a_template_for_one_call_shows_all_results(name: str) -> None:
    tokenizer = tokenizer_of(name)
    written = call(name, {"place": "one"}, {"place": "two"})
    episode = play(tokenizer, [written + FAMILIES[name].stop, "no"], tool=Look(), max_calls=2)
    shown = tokenizer.decode(episode.turns[1].context_ids)
    assert shown.count("ipython") + shown.count("to=assistant") == 2
    assert '"one"' in shown
    assert '"two"' in shown


MALFORMED = {
    "hermes": ['<tool_call>{"name": "look"', "<tool_call>look(here)</tool_call>", "<tool_call></tool_call>"],
    "xml": ["<tool_call>\n<function=look>\n<parameter=place>here", "<tool_call>look</tool_call>"],
    "glm": ["<tool_call>look\n<arg_key>place</arg_key>", "<tool_call>look</arg_value>"],
    "llama": ['{"name": "look", "parameters": {"place": ', '{"name": "look", "parameters": [1]}'],
    "gemma4": [
        "<|tool_call>call:look{place:here}<tool_call|>",
        "<|tool_call>look()<tool_call|>",
        "<|tool_call>",
    ],
    "harmony": ["<|channel|>commentary to=functions.look <|constrain|>json<|message|>{place: 1}"],
    "kimi": ["<|tool_call_begin|>look<|tool_call_end|>", "<|tool_call_begin|>functions.look:0"],
    "deepseek-v3.1": [
        "<｜tool▁call▁begin｜>look",
        "<｜tool▁call▁begin｜>look<｜tool▁sep｜>{<｜tool▁call▁end｜>",
    ],
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_malformed_call_is_answered_with_the_reason(name: str) -> None:
    family, tokenizer = FAMILIES[name], tokenizer_of(name)
    wrong = [*MALFORMED[family.syntax], call(name, {"times": 3}), call(name, {"place": "x", "times": "many"})]
    wrong.append(call(name, {"place": "x"}).replace("look", "find"))
    for text in wrong:
        episode = play(tokenizer, [text + family.stop, "no"])
        first = episode.turns[0]
        assert first.info["invalid"] == "format", text
        assert first.info["use_tool"], text
        assert "The call was not made" in first.info["tool_error"], text
        assert "The call was not made" in tokenizer.decode(episode.turns[1].context_ids), text


@pytest.mark.parametrize("name", FAMILIES)
def test_calls_may_end_like_an_answer(name: str) -> None:
    tokenizer, family = tokenizer_of(name), FAMILIES[name]
    context = AppendContext(tokenizer, native_tools=True).with_tools([schema(Look())])
    assert context is not None
    ids = tokenizer.encode(call(name, {"place": "here"}) + family.specials[0])
    shown = tokenizer.decode(context.extend([CallResult("look", "functions.look:0", '"4"\n2')], "", ids))
    if family.syntax in ("glm", "gemma4"):  # the end of the calls opens the result
        assert shown == family.turn
    else:
        assert shown == family.turn.lstrip("\n").removeprefix(family.stop)


@pytest.mark.parametrize("name", FAMILIES)
def test_what_an_environment_adds_follows_the_results(name: str) -> None:
    tokenizer, family = tokenizer_of(name), FAMILIES[name]
    context = AppendContext(tokenizer, native_tools=True).with_tools([schema(Look())])
    assert context is not None
    for count in (1, 2):
        results = [CallResult("look", "", f"result {number}") for number in range(count)]
        ids = tokenizer.encode(call(name, *[{"place": "here"}] * count) + family.stop)
        alone = tokenizer.decode(context.extend(results, "", ids))
        shown = tokenizer.decode(context.extend(results, "And a note.", ids))
        if name == "no question after a result":
            assert shown == alone.replace(f"result {count - 1}", f"result {count - 1}\n\nAnd a note.")
        else:
            start = alone.index(f"result {count - 1}") + len("result 0")
            assert shown.startswith(alone[:start])
            assert shown[start:].count("And a note.") == 1
            question = tokenizer.decode(
                context.context.extend("And a note.", tokenizer.encode(family.specials[0]))
            )
            assert shown.endswith(question.lstrip())


@pytest.mark.parametrize("name", FAMILIES)
def test_a_result_may_hold_anything(name: str) -> None:
    """What a tool returns is never read as a call, and never changes where a turn begins."""
    family, tokenizer = FAMILIES[name], tokenizer_of(name)
    written = call(name, {"place": "here"})
    plain = play(tokenizer, [written + family.stop, "no"], tool=Look("TEXT"))
    expected = tokenizer.decode(plain.turns[1].context_ids)
    in_json = '"TEXT"' in expected
    for text in (
        "</think>",
        "<think>",
        written,
        *family.specials,
        family.turn,
        "neutral argument 3817",
        "Neutral-Result",
    ):
        episode = play(tokenizer, [written + family.stop, "no"], tool=Look(text))
        assert [turn.info["use_tool"] for turn in episode.turns] == [True, False]
        shown = json.dumps(text, ensure_ascii=False)[1:-1] if in_json else text
        assert tokenizer.decode(episode.turns[1].context_ids) == expected.replace("TEXT", shown)


@pytest.mark.parametrize("name", FAMILIES)
def test_an_argument_may_hold_markers_of_the_conversation(name: str) -> None:
    tokenizer, family = tokenizer_of(name), FAMILIES[name]
    texts = [
        "</think>",
        "</parameter>",
        "</arg_value>",
        "</tool_call>",
        "<tool_response>",
        "</function>",
        "}}",
        "a\n\nb",
    ]
    for text in texts:
        episode = play(tokenizer, [call(name, {"place": f"a {text} b"}) + family.stop, "no"], tool=Look())
        assert episode.turns[0].info["tool_results"] == [{"name": "look", "ok": True}], text
        assert f"a {text} b" in episode.turns[1].observation


@pytest.mark.parametrize("id", ["abc123def", "short", "", "<|im_end|>", "x" * 60])
def test_an_id_that_the_template_rejects_is_replaced(id: str) -> None:
    """What a model writes is never an exception: Mistral's templates raise for ids of another length."""
    result = (
        "{% if m.tool_call_id | length != 9 %}{{ raise_exception('id') }}{% endif %}"
        "<|im_start|>tool\n{{ m.tool_call_id }} {{ m.content }}<|im_end|>\n"
    )
    calls = _EACH + "[TOOL_CALLS]{{ f.name }}[CALL_ID]{{ c.id }}[ARGS]{{ f.arguments | tojson }}{% endfor %}"
    tokenizer = JinjaTokenizer(chatml(calls, result), [*_CHATML, "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"])
    written = f'[TOOL_CALLS]look[CALL_ID]{id}[ARGS]{{"place": "here"}}<|im_end|>'
    episode = play(tokenizer, [written, "no"], tool=Look())
    shown = tokenizer.decode(episode.turns[1].context_ids)
    assert "<|im_start|>tool\n" + ("abc123def" if id == "abc123def" else "call00000") in shown


def test_calls_in_thoughts_are_not_made() -> None:
    for name in ("hermes", "typed arguments", "the opener of the result is the stop token"):
        thought = f"<think>{call(name, {'place': 'no'})}</think>\n"
        episode = play(tokenizer_of(name), [thought + call(name, {"place": "yes"}), "no"], tool=Look())
        assert [turn.observation for turn in episode.turns][1:] == ["Result of look:\nyes"]


def test_the_text_before_a_call_stays_in_the_action() -> None:
    for name in ("hermes", "ids of calls"):
        text = "I look. " + call(name, {"place": "here"}) + FAMILIES[name].stop
        episode = play(tokenizer_of(name), [text], tool=Look())
        assert episode.turns[0].action.startswith("I look. ")
        assert "tool_calls_section" not in episode.turns[0].action


def test_an_answer_after_the_last_use_goes_to_the_environment() -> None:
    for name, family in FAMILIES.items():
        text = call(name, {"place": "here"}) + family.stop
        env = Tools(gem_core.make("math:Arithmetic-v0-retry"), tools=Look("found"), max_tool_uses=1)
        tokenizer = tokenizer_of(name)
        policy = ScriptedPolicy([tokenizer.encode(text)])
        limits = EpisodeLimits(max_tokens_per_turn=5000, max_turns=3)
        with env:
            episode = asyncio.run(run_episode(env, policy, AppendContext(tokenizer), limits, seed=0))
        shown = [tokenizer.decode(turn.context_ids) for turn in episode.turns]
        assert LAST_USE in shown[1]
        assert [turn.info["use_tool"] for turn in episode.turns] == [True, False, False]
        assert "See the next message." in shown[2]


@pytest.mark.parametrize("options", [{"format": "gem"}, {"instructions": "Use <look>PLACE</look>."}])
def test_a_chosen_format_is_text(options: dict[str, Any]) -> None:
    tokenizer = tokenizer_of("hermes")
    episode = play(tokenizer, ["<look>here</look><|im_end|>", "no"], **options)
    assert "SCHEMAS" not in tokenizer.decode(episode.turns[0].context_ids)
    assert "<look>" in tokenizer.decode(episode.turns[0].context_ids)
    shown = tokenizer.decode(episode.turns[1].context_ids)
    assert shown == '\n<|im_start|>user\nResult of look:\n"4"\n2<|im_end|>\n<|im_start|>assistant\n'


UNUSABLE = {
    "unknown syntax": (chatml("CALL", _USER_RESULT), "unknown syntax"),
    "no result": (chatml(_EACH + '<tool_call>{{ f | tojson }}</tool_call>{% endfor %}', ""), "does not show the result"),
    "a result that later ones change": (
        chatml(
            _EACH + '<tool_call>{{ f | tojson }}</tool_call>{% endfor %}',
            "<|im_start|>tool\n{{ m.content }}{{ ' (old)' if not loop.last }}<|im_end|>\n",
        ),
        "differently when others follow",
    ),
    "the number of a turn": (
        chatml(
            _EACH + '<tool_call>{{ f | tojson }}</tool_call>{% endfor %}',
            "<|im_start|>tool\n{{ loop.index }} {{ m.content }}<|im_end|>\n",
        ),
        "depends on earlier turns",
    ),
    "the number of a result": (
        "{% set n = namespace(value=0) %}" + chatml(
            _EACH + '<tool_call>{{ f | tojson }}</tool_call>{% endfor %}',
            "<|im_start|>tool\n{{ n.value }} {{ m.content }}<|im_end|>\n{% set n.value = n.value + 1 %}",
        ),
        "depends on earlier calls",
    ),
    "the number of a call, as in Command R7B": (
        "{% set n = namespace(value=0) %}" + chatml(
            _EACH + '<tool_call>{"id": "{{ n.value }}", "name": "{{ f.name }}", "arguments": '
            '{{ f.arguments | tojson }}}</tool_call>{% set n.value = n.value + 1 %}{% endfor %}',
            "<|im_start|>tool\n{{ m.content }}<|im_end|>\n",
        ),
        "depends on earlier calls",
    ),
    "the date": (
        "{% macro day() %}{{ strftime_now('%d') if strftime_now is defined }}{% endmacro %}" + chatml(
            _EACH + '<tool_call>{{ f | tojson }}</tool_call>{% endfor %}',
            "<|im_start|>tool\n{{ strftime_now('%d') if strftime_now }} {{ m.content }}<|im_end|>\n",
        ),
        "date or time",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_template_without_usable_tool_turns_leaves_calls_in_the_text(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    template, reason = UNUSABLE[name]
    tokenizer = JinjaTokenizer(template, _CHATML)
    episode = play(tokenizer, ["<look>here</look><|im_end|>", "no"])
    assert "Result of look" in tokenizer.decode(episode.turns[1].context_ids)
    assert caplog.text.count("tools are called in the text of messages") == 1
    assert reason in caplog.text
    with pytest.raises(UnsupportedTemplate, match=reason):
        AppendContext(tokenizer, native_tools=True)


@pytest.mark.parametrize("thought", ["", "<think></think>"])
def test_an_opening_that_is_always_there_is_no_part_of_a_tool_turn(thought: str) -> None:
    system = "<|im_start|>system\n" + _HEAD.replace("{% endif %}", "<|im_end|>\n{% endif %}")
    head = FAMILIES["hermes"].template.replace(_HEAD, system).removesuffix(_NEXT)
    opening = "{{ '<|im_start|>assistant\\n" + thought + "' }}"
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    made = []
    for end in (opening, "{% if add_generation_prompt %}" + opening + "{% endif %}"):
        tokenizer = JinjaTokenizer(head + end, _CHATML)
        found = AppendContext(tokenizer, native_tools=True).with_tools(tools)
        assert found is not None
        ids = [tokenizer.encode(call("hermes", {}) + stop) for stop in ("", "<|im_end|>", "<|im_start|>")]
        turns = [found.extend([CallResult("look", "", "4")], "", response) for response in ids]
        made.append((native_syntax(tokenizer).name, turns))
    assert made[0] == made[1]


def test_switched_off_and_rebuilt_contexts_have_no_native_tools() -> None:
    tokenizer = tokenizer_of("hermes")
    tool = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    assert AppendContext(tokenizer, native_tools=False).with_tools(tool) is None
    assert AppendContext(tokenizer).with_tools([]) is None
    assert RebuildContext(tokenizer).with_tools(tool) is None


@pytest.mark.parametrize("name", FAMILIES)
def test_texts_and_tokens_are_the_same(name: str) -> None:
    """Trainers that encode texts themselves get the same tokens."""
    tokenizer, family = tokenizer_of(name), FAMILIES[name]
    found = AppendContext(tokenizer).with_tools(
        [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    )
    assert found is not None
    for stop in (family.stop, ""):
        ids = tokenizer.encode(call(name, {"place": "here"}) + stop)
        for note in ("", "and a note"):
            results = [CallResult("look", "functions.look:0", '"4"\n2')]
            text = found.extend_text(results, note, ids)
            assert tokenizer.encode(text) == found.extend(results, note, ids)
            assert note in text
