"""`TemplateContext`: each prompt is the template's own rendering, and rows hold what was sampled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra 'train'")

import gem_core
from gem_chat import AppendContext
from gem_chat._options import make_context
from gem_chat._template_context import TemplateContext
from gem_chat._tools import schema
from gem_chat.tools import ToolCall
from gem_core.errors import ConfigError, UnsupportedTemplate
from gem_core.rollout import Episode, Generation, RolloutOptions, run_episode
from gem_envs.tools import Tools
from tests.rollout.jinja_tokenizer import JinjaTokenizer
from tests.rollout.policies import ScriptedPolicy
from tests.rollout.test_tool_turns import FAMILIES, MALFORMED, Look, call
from tests.rollout.tokenizers import LLAMA3, MISTRAL, QWEN3, bpe_tokenizer
from tests.support import ScriptedEnv, with_limits

SYSTEM_LAST = (  # as Mistral Nemo's: the system prompt stands before the last question
    "{% set system = messages[0].content if messages[0].role == 'system' else '' %}"
    "{% for m in messages if m.role != 'system' %}<|im_start|>{{ m.role }}\n"
    "{% if loop.last and system %}{{ system }}\n\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NUMBERED = (  # the number of turns is in each message
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ loop.index }} of {{ messages | length }}\n"
    "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FIELD = (  # the thought is a field, shown only after the last question, with line breaks of its own
    "{% set roles = messages | map(attribute='role') | list %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content and 'user' not in roles[loop.index0:] %}"
    "<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHANNELS = (  # as gpt-oss: thoughts in a channel, another end at the end of a text
    "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% if m.thinking and loop.last %}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>"
    "{% endif %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}"
    "{{ '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}"
    "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
CHANNEL_TOKENS = ["<|return|>", "<|start|>", "<|message|>", "<|channel|>", "<|end|>"]


def play(context: Any, responses: list[Any], env: Any = None, **options: Any) -> Episode:
    policy = ScriptedPolicy(responses)
    limits = with_limits({"max_turns": len(responses), "max_tokens_per_turn": 2000, **options})
    return asyncio.run(
        run_episode(env or ScriptedEnv([0.5] * len(responses)), policy, context, seed=0, **limits)
    )


def expected(tokenizer: Any, messages: list[dict[str, Any]], **variables: Any) -> list[int]:
    """Return the tokens with which Hugging Face prompts a model for the next message."""
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **variables)
    return list(tokenizer.encode(text, add_special_tokens=False))


def check_rows(episode: Episode) -> None:
    """Require that the rows train each sampled token once, behind the tokens of its prompt."""
    prompts, trained = episode.prompts(), {}
    for row in episode.rows():
        for turn, (start, end) in zip(row.turns, row.spans, strict=True):
            trained[turn] = (row.token_ids[:start], row.token_ids[start:end])
    assert trained == {
        index: (prompt, turn.response_ids)
        for index, (prompt, turn) in enumerate(zip(prompts, episode.turns, strict=True))
    }


def tokenizer_of(family: str) -> Any:
    return JinjaTokenizer(FAMILIES[family].template, FAMILIES[family].specials)


def conversation(episode: Episode, answers: list[dict[str, Any]], turn: int) -> list[dict[str, Any]]:
    """Return the messages before the response of a turn."""
    messages: list[dict[str, Any]] = []
    for index in range(turn + 1):
        messages += [{"role": "assistant", **answers[index - 1]}] if index else []
        messages.append({"role": "user", "content": episode.turns[index].observation})
    return messages


@pytest.mark.parametrize("family", ["chatml", "llama3", "mistral"])
def test_a_history_that_only_grows_is_the_row_of_an_appended_context(family: str) -> None:
    tokenizer = bpe_tokenizer(family)
    end = tokenizer.eos_token
    answers = [" It is 5.", " Or\n\n7?", " 10"] if family == "mistral" else ["It is 5.", "Or\n\n7?", "10"]
    responses = [tokenizer.encode(answer + end, add_special_tokens=False) for answer in answers]
    responses[1] = Generation(responses[1][:-1], None, "length")  # the template ends a response that was cut
    rows = []
    for kind in (AppendContext, TemplateContext):
        context = kind(tokenizer, system_prompt=None if family == "mistral" else "Play.")
        (row,) = play(context, responses, on_length_cut="pass").rows()
        rows.append((row.token_ids, row.response_mask, row.rewards))
    assert rows[0] == rows[1]
    assert sum(rows[0][1]) == sum(map(len, [responses[0], responses[1].token_ids, responses[2]]))


@pytest.mark.parametrize("template", [QWEN3, FIELD])
def test_thoughts_of_earlier_turns_are_what_the_template_makes_of_them(template: str) -> None:
    tokenizer = bpe_tokenizer("qwen3", template)
    thoughts, texts = ["Let me think.", "Too high", "So 5"], ["8", "6", "5"]
    answers = [
        {"content": text, "reasoning_content": thought}
        if template == FIELD
        else {"content": f"<think>\n{thought}\n</think>\n\n{text}"}
        for thought, text in zip(thoughts, texts, strict=True)
    ]
    responses = [
        tokenizer.encode(f"<think>\n{thought}\n</think>\n\n{text}<|im_end|>", add_special_tokens=False)
        for thought, text in zip(thoughts, texts, strict=True)
    ]
    episode = play(TemplateContext(tokenizer), responses)
    for turn, prompt in enumerate(episode.prompts()):
        assert prompt == expected(tokenizer, conversation(episode, answers, turn))
        assert tokenizer.decode(prompt).count("<think>") == 0
    assert len(episode.rows()) == 3
    assert episode.context_mode == "template"
    assert [turn.action for turn in episode.turns] == texts
    check_rows(episode)


def test_a_response_that_the_template_writes_with_other_tokens_ends_its_row() -> None:
    tokenizer = bpe_tokenizer("chatml")
    usual = tokenizer.encode("Guess<|im_end|>", add_special_tokens=False)
    other = [*map(tokenizer.convert_tokens_to_ids, "Guess"), usual[-1]]
    assert tokenizer.decode(other) == tokenizer.decode(usual)
    assert other != usual
    answers = [{"content": "Guess"}] * 4
    episode = play(TemplateContext(tokenizer), [usual, other, usual, usual])
    for turn, prompt in enumerate(episode.prompts()):
        assert prompt == expected(tokenizer, conversation(episode, answers, turn))
    assert [row.turns for row in episode.rows()] == [(0, 1), (2, 3)]
    assert [turn.response_ids for turn in episode.turns] == [usual, other, usual, usual]
    check_rows(episode)


def test_special_tokens_stay_what_they_were_sampled_as() -> None:
    tokenizer = bpe_tokenizer("chatml")
    start, five, end = tokenizer.convert_tokens_to_ids(["<|im_start|>", "5", "<|im_end|>"])
    context = TemplateContext(tokenizer)
    assert len(play(context, [[start, five, end], [five, end]]).rows()) == 1
    spelled = tokenizer.convert_tokens_to_ids([*"<|im_start|>"])
    episode = play(context, [[*spelled, five, end], [five, end]])
    assert episode.prompts()[1].count(start) == 4  # of the template alone
    assert tokenizer.decode(episode.prompts()[1]).count("<|im_start|>") == 5
    check_rows(episode)


@pytest.mark.parametrize(
    ("template", "options"),
    [
        (SYSTEM_LAST, {"system_prompt": "Play."}),
        (NUMBERED, {}),
        (QWEN3, {"template_kwargs": {"enable_thinking": False}}),
        (LLAMA3, {"system_prompt": "Play."}),
    ],
)
def test_a_template_that_rewrites_the_history_works(template: str, options: dict[str, Any]) -> None:
    tokenizer = bpe_tokenizer("llama3" if template == LLAMA3 else "chatml", template)
    if template in (SYSTEM_LAST, NUMBERED):
        with pytest.raises(UnsupportedTemplate, match="context=template"):
            AppendContext(tokenizer, **options)
    variables = options.get("template_kwargs", {})
    end = "<|eot_id|>" if template == LLAMA3 else "<|im_end|>"
    responses = [tokenizer.encode(text + end, add_special_tokens=False) for text in "845"]
    episode = play(TemplateContext(tokenizer, **options), responses)
    system = [{"role": "system", "content": "Play."}] if "system_prompt" in options else []
    answers = [{"content": text} for text in "845"]
    for turn, prompt in enumerate(episode.prompts()):
        messages = [*system, *conversation(episode, answers, turn)]
        assert prompt == expected(tokenizer, messages, **variables)
    assert len(episode.rows()) == (1 if template == LLAMA3 else 3)
    check_rows(episode)


def test_thoughts_in_channels_are_thoughts_of_the_history() -> None:
    tokenizer: Any = JinjaTokenizer(CHANNELS, CHANNEL_TOKENS)
    said = (
        "<|channel|>analysis<|message|>Or 4?<|end|><|start|>assistant<|channel|>final<|message|>5<|return|>"
    )
    episode = play(TemplateContext(tokenizer), [tokenizer.encode(said)] * 2)
    messages = conversation(episode, [{"content": "5", "thinking": "Or 4?"}], 1)
    assert episode.prompts()[1] == expected(tokenizer, messages)
    assert "analysis" not in tokenizer.decode(episode.prompts()[1])
    assert [turn.action for turn in episode.turns] == ["5", "5"]
    check_rows(episode)


@pytest.mark.parametrize("name", FAMILIES)
def test_calls_and_results_are_messages_of_the_template(name: str) -> None:
    family, tokenizer = FAMILIES[name], tokenizer_of(name)
    context = TemplateContext(tokenizer, native_tools=True)
    made = call(name, {"place": "here", "times": 2}) + family.stop
    env = Tools(gem_core.make("math:Arithmetic-v0"), tools=Look('"4"\n2'))
    with env:
        episode = play(context, [tokenizer.encode(made), tokenizer.encode("no")], env)
    first, second = episode.prompts()
    tools = [schema(Look())]
    question = {"role": "user", "content": episode.turns[0].observation}
    assert first == expected(tokenizer, [question], tools=tools)
    arguments: Any = {"place": "here", "times": 2}
    id = "functions.look:0" if family.syntax == "kimi" else "call00001"
    native = context.conversations.call_reader().native
    entry = native.message([ToolCall("look", arguments, id=id)])
    result = {"role": "tool", "tool_call_id": id, "name": "look", "content": '"4"\n2'}
    assert second == expected(tokenizer, [question, entry, result], tools=tools)
    check_rows(episode)


@pytest.mark.parametrize("name", FAMILIES)
def test_calls_that_the_template_cannot_show_stay_text(name: str) -> None:
    family, tokenizer = FAMILIES[name], tokenizer_of(name)
    context = TemplateContext(tokenizer)
    two = call(name, {"place": "one"}, {"place": "two"})
    for made in (*MALFORMED[family.syntax], two):
        with Tools(gem_core.make("math:Arithmetic-v0"), tools=Look()) as env:
            episode = play(context, [tokenizer.encode(made + family.stop), tokenizer.encode("no")], env)
        shown = tokenizer.decode(episode.prompts()[1])
        assert ("two" if made == two else "The call was not made") in shown.replace("\\", ""), made
        check_rows(episode)


def test_a_thought_and_a_text_beside_a_call_that_the_template_refuses_stay_text() -> None:
    name = "hermes"
    template = FAMILIES[name].template.replace(
        "{% for m in messages %}",
        "{% for m in messages %}{% if m.reasoning_content and m.tool_calls %}"
        "{{ raise_exception('no thought') }}{% endif %}{% if m.reasoning_content %}<think>"
        "{{ m.reasoning_content }}</think>{% endif %}",
        1,
    )
    tokenizer: Any = JinjaTokenizer(template, FAMILIES[name].specials)
    made = f"<think>Look.</think>{call(name, {'place': 'here'})}<|im_end|>"
    with Tools(gem_core.make("math:Arithmetic-v0"), tools=Look()) as env:
        episode = play(TemplateContext(tokenizer), [tokenizer.encode(made), tokenizer.encode("no")], env)
    shown = tokenizer.decode(episode.prompts()[1])
    assert call(name, {"place": "here"}) in shown
    assert "<tool_response>\nhere\n</tool_response>" in shown


SINGLE = (
    "{% if messages | length > 1 %}{{ raise_exception('one question only') }}{% endif %}"
    "<|im_start|>user\n{{ messages[0].content }}<|im_end|>\n<|im_start|>assistant\n"
)
FORGETFUL = (
    "<|im_start|>user\n{{ messages[0].content }}<|im_end|>\n"
    "{% if messages | length == 2 %}{{ messages[1].content }}<|im_end|>\n{% endif %}<|im_start|>assistant\n"
)


@pytest.mark.parametrize(
    ("template", "options", "reason"),
    [
        (SINGLE, {}, "one question only"),
        (FORGETFUL, {}, "does not show the second question"),
        (QWEN3, {"native_tools": True}, "does not show the tools probe_tool"),
        (MISTRAL, {"system_prompt": "Play."}, "put the system prompt into the first observation"),
    ],
)
def test_what_no_prompt_can_show_is_refused_before_a_model_is_loaded(
    template: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnsupportedTemplate, match=reason):
        TemplateContext(bpe_tokenizer("mistral" if template == MISTRAL else "chatml", template), **options)


def test_the_option_makes_the_context_and_refuses_raw() -> None:
    tokenizer = bpe_tokenizer("chatml")
    options = RolloutOptions.read({"context": "template", "native_tools": False})
    assert isinstance(make_context(options, tokenizer), TemplateContext)
    for kind in ("append", "template"):
        with pytest.raises(ConfigError, match=f"raw=True needs context='rebuild'; with context='{kind}'"):
            make_context(RolloutOptions.read({"context": kind, "raw": True}), tokenizer)
    with pytest.raises(ConfigError, match="takes messages; give it a MessagesContext"):
        play_with_chat_policy(TemplateContext(tokenizer))


def play_with_chat_policy(context: Any) -> None:
    class Chat:
        async def reply(self, messages: Any, **given: Any) -> None: ...

    chat: Any = Chat()
    asyncio.run(run_episode(ScriptedEnv(), chat, context))


def test_episodes_that_share_a_context_have_histories_of_their_own() -> None:
    tokenizer = bpe_tokenizer("chatml")
    context = TemplateContext(tokenizer)
    responses = [tokenizer.encode(f"{text}<|im_end|>", add_special_tokens=False) for text in "845"]

    async def both() -> list[Episode]:
        limits = with_limits({"max_turns": 3})
        playing = (
            run_episode(ScriptedEnv([0.5] * 3), ScriptedPolicy(responses), context, seed=seed, **limits)
            for seed in range(3)
        )
        return await asyncio.gather(*playing)

    answers = [{"content": text} for text in "845"]
    for episode in asyncio.run(both()):
        (row,) = episode.rows()
        assert row.prompt_ids == expected(tokenizer, conversation(episode, answers, 0))
        assert episode.prompts()[2] == expected(tokenizer, conversation(episode, answers, 2))


@pytest.mark.parametrize("family", ["chatml", "qwen3"])
def test_the_response_limit_applies_to_each_row(family: str) -> None:
    tokenizer = bpe_tokenizer(family)
    said = "<think>\nx\n</think>\n\n5<|im_end|>" if family == "qwen3" else "5<|im_end|>"
    ids = tokenizer.encode(said, add_special_tokens=False)
    policy = ScriptedPolicy([ids])
    env = ScriptedEnv([0.0] * 6)
    episode = asyncio.run(
        run_episode(
            env, policy, TemplateContext(tokenizer), **with_limits({"max_turns": 6}), max_response_tokens=40
        )
    )
    rows = episode.rows()
    assert all(len(row) - row.prompt_length <= 40 for row in rows)
    for row in rows:
        first = policy.requests[row.turns[0]]
        assert first[1] == 40
        for turn in row.turns[1:]:
            assert policy.requests[turn][1] == 40 - (len(policy.requests[turn][0]) - len(first[0]))
    if family == "qwen3":  # each row has room of its own
        assert (len(rows), episode.stop_reason) == (6, "terminated")
    else:
        assert (len(rows), episode.stop_reason) == (1, "token_budget")


def test_a_prompt_longer_than_the_model_ends_the_episode() -> None:
    tokenizer = bpe_tokenizer("qwen3")
    ids = tokenizer.encode("<think>\nx\n</think>\n\n5<|im_end|>", add_special_tokens=False)
    options = {**with_limits({"max_turns": 6}), "seed": 0}  # both episodes have the same observations
    context = TemplateContext(tokenizer)
    long = asyncio.run(run_episode(ScriptedEnv([0.0] * 6), ScriptedPolicy([ids]), context, **options))
    total = len(long.prompts()[3])
    policy = ScriptedPolicy([ids])
    short = asyncio.run(
        run_episode(ScriptedEnv([0.0] * 6), policy, context, **options, max_total_tokens=total)
    )
    assert (len(short.turns), short.stop_reason) == (3, "token_budget")
    assert [request[1] + len(request[0]) for request in policy.requests] == [total] * 3
