"""Thoughts in the syntax of several templates reach the environment as one form, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gem_chat import AppendContext, RebuildContext
from gem_chat._template import chat_renderer
from gem_chat._thinking import ThinkingFormat, find_thinking
from gem_core import Env, without_thoughts
from gem_core.rollout import EpisodeLimits, Generation, run_episode
from gem_envs._text import boxed_answer
from tests.rollout.tokenizers import CHATML, QWEN3, bpe_tokenizer
from tests.support import needs

pytestmark = needs("transformers", "train")

LOOP, END = "{% for m in messages %}", "{% endfor %}"
ASSISTANT = "{% if m.role == 'assistant' %}"
THOUGHTS = "{% if m.reasoning_content or m.thinking %}"
SPECIAL = [
    "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "[THINK]", "[/THINK]", "<|open|>",
    "<|close|>", "<|sep|>", "<|say|>", "<channel|>", "<|channel>", "<|eom|>", "<|call|>",
]  # fmt: skip


def asked(header: str) -> str:
    return "{% if add_generation_prompt %}" + header + "{% endif %}"


def plain(template: str) -> str:
    return LOOP + ASSISTANT + template + "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>"


HARMONY = (
    plain(
        THOUGHTS + "<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}"
        "<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|return|>"
    )
    + "{% endif %}" + END + asked("<|start|>assistant")
)  # fmt: skip
BRACKETS = plain("{{ m.content if m.content is string else '' }}"
    "{% for part in m.content if m.content is not string %}"
    "{{ '[THINK]' + part.thinking + '[/THINK]' if part.type == 'thinking' else part.text }}{% endfor %}"
    "<|end|>") + "{% endif %}" + END + asked("<|start|>assistant")  # fmt: skip
NAMED = plain("<|start|>assistant<|open|>think<|sep|>{{ m.reasoning_content }}<|close|>think<|sep|>"
    "<|open|>response<|sep|>{{ m.content }}<|close|>response<|sep|><|end|>") + "{% endif %}" + END + asked(
    "<|start|>assistant<|open|>think<|sep|>"
)  # fmt: skip
PIPES = plain("<|start|>model\n" + THOUGHTS + "<|channel>thought\n{{ m.thinking }}\n<channel|>{% endif %}"
    "{{ m.content }}<|end|>") + "{% endif %}" + END + asked("<|start|>model\n")  # fmt: skip
TEXT = plain("<|start|>assistant\n" + THOUGHTS + "<my:think>{{ m.thinking }}</my:think>\n{% endif %}"
    "{{ m.content }}<|end|>") + "{% endif %}" + END + asked("<|start|>assistant\n")  # fmt: skip
PREFILLED = plain("<|start|>assistant\n" + THOUGHTS + "<think>\n{{ m.thinking }}\n</think>\n{% endif %}"
    "{{ m.content }}<|end|>") + "{% endif %}" + END + asked("<|start|>assistant\n<think>\n")  # fmt: skip
SAID = plain("<|start|>assistant<|say|>{{ m.content }}<|end|>") + "{% endif %}" + END + asked(
    "<|start|>assistant"
)  # fmt: skip

FORMATS = {
    "harmony": (HARMONY, ThinkingFormat("<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant",
        "<|channel|>final<|message|>")),
    "brackets": (BRACKETS, ThinkingFormat("[THINK]", "[/THINK]")),
    "named": (NAMED, ThinkingFormat("<|open|>think<|sep|>", "<|close|>think<|sep|>", "",
        "<|open|>response<|sep|>", prefilled=True)),
    "pipes": (PIPES, ThinkingFormat("<|channel>thought", "<channel|>")),
    "text": (TEXT, ThinkingFormat("<my:think>", "</my:think>")),
    "prefilled": (PREFILLED, ThinkingFormat(prefilled=True)),
    "said": (SAID, ThinkingFormat(answer="<|say|>")),
    "chatml": (CHATML, ThinkingFormat()),
    "qwen3": (QWEN3, ThinkingFormat()),
}  # fmt: skip


def tokenizer_of(template: str) -> Any:
    tokenizer = bpe_tokenizer("chatml", template)
    tokenizer.add_tokens(SPECIAL, special_tokens=True)
    return tokenizer


@pytest.mark.parametrize("name", FORMATS)
def test_the_syntax_of_thoughts_is_found_in_the_template(name: str) -> None:
    template, expected = FORMATS[name]
    render = chat_renderer(tokenizer_of(template))
    assert find_thinking(render) == expected
    assert find_thinking(render, system_prompt="Play.") == expected


RESPONSES = [
    ("harmony", "<|channel|>analysis<|message|>4?<|end|><|start|>assistant<|channel|>final<|message|>5"
     "<|return|>", "<think>4?</think>5"),
    ("harmony", "<|channel|>final<|message|>5<|return|>", "5"),
    ("harmony", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b"
     "<|end|><|start|>assistant<|channel|>final<|message|>5<|return|>",
     "<think>a</think>\n<think>b</think>5"),
    ("harmony", "<|channel|>analysis<|message|>\\boxed{9}", "<think>\\boxed{9}"),
    ("harmony", "<|channel|>analysis<|message|>I end </think> \\boxed{9}<|end|><|start|>assistant", None),
    ("harmony", "<|channel|>commentary to=f<|message|>{}<|call|>", "<|channel|>commentary to=f<|message|>{}"),
    ("brackets", "[THINK]4?[/THINK]5<|end|>", "<think>4?</think>5"),
    ("brackets", "5 <|eom|> 6<|end|>", "5 <|eom|> 6"),
    ("named", "4?<|close|>think<|sep|><|open|>response<|sep|>5<|close|>response<|sep|><|end|>",
     "<think>4?</think>5"),
    ("named", "4? \\boxed{9}", "<think>4? \\boxed{9}"),
    ("pipes", "<|channel>thought\n4?\n<channel|>5<|end|>", "<think>\n4?\n</think>5"),
    ("pipes", "<|channel>thought\n<channel|>5<|end|>", "5"),
    ("pipes", "Wait.<|channel>thought\n\\boxed{9}<channel|>5<|end|>", "Wait.\n<think>\n\\boxed{9}</think>5"),
    ("text", "<my:think>4?</my:think>\n5<|end|>", "<think>4?</think>\n5"),
    ("prefilled", "4?\n</think>\n5<|end|>", "<think>4?\n</think>\n5"),
    ("prefilled", "4? \\boxed{9}", "<think>4? \\boxed{9}"),
    ("prefilled", "<think>4?</think>5", "<think>4?</think>5"),
    ("said", "<|say|>5<|end|>", "5"),
    ("chatml", "<think>4?</think>5<|im_end|>", "<think>4?</think>5"),
    ("chatml", "5<|im_end|><|endoftext|><|endoftext|>", "5"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "response", "expected"), RESPONSES)
def test_a_response_has_one_form_of_thoughts(name: str, response: str, expected: str | None) -> None:
    tokenizer = tokenizer_of(FORMATS[name][0])
    context = AppendContext(tokenizer, stop_ids=tokenizer.convert_tokens_to_ids(["<|call|>"]))
    ids = tokenizer.encode(response)
    text = context.decode(ids)
    assert boxed_answer(without_thoughts(text)) is None, "a box in a thought, or cut off in one"
    if expected is not None:
        assert text == expected
        assert RebuildContext(tokenizer, stop_ids={ids[-1]}).decode(ids) in (expected, expected[:-1])


def test_a_raw_context_knows_the_syntax_of_the_tokenizers_own_template() -> None:
    tokenizer = tokenizer_of(HARMONY)
    response = tokenizer.encode(RESPONSES[0][1])
    assert RebuildContext(tokenizer, raw=True).decode(response) == "<think>4?</think>5"
    prefilled = RebuildContext(tokenizer_of(PREFILLED), raw=True)
    assert prefilled.decode(tokenizer.encode("4?\n</think>\n5")) == "<think>4?\n</think>\n5"
    assert prefilled.decode(tokenizer.encode("5")) == "5", "the prompt may have closed the thoughts"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("5", "5"),
        ("<think>a</think>\n5", "5"),
        (" <think>a</think><think>b</think> 5", "5"),
        ("<think>a</think>5\n<think>b</think>6", "5\n6"),
        ("<think>a", ""),
        ("5\n<think>a", "5\n"),
        ("<think></think>", ""),
        ("write '<think>' and 5", "write '<think>' and 5"),
        ('<tool_call>"<think>"</tool_call>', '<tool_call>"<think>"</tool_call>'),
        ("a</think>5", "a</think>5"),
        ("<think>a <think> b</think>5", "5"),
    ],
)  # fmt: skip
def test_an_answer_is_what_is_outside_of_thoughts(text: str, answer: str) -> None:
    assert without_thoughts(text) == answer


def test_the_text_without_thoughts_takes_linear_time() -> None:
    for text in ("<think>" * 200_000, "\n <think></think>" * 60_000, "<think>\n" * 100_000):
        assert isinstance(without_thoughts(text), str)


class Boxed(Env):
    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        return "Give 5.", {}

    def step(self, action: str) -> Any:
        return "", float(boxed_answer(action) == "5"), True, False, {}


class Says:
    """A policy that always gives the same response."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    async def generate(self, prompt_ids: list[int], *, max_tokens: int, request_id: str) -> Generation:
        return Generation(self.ids, None, "stop")


@pytest.mark.parametrize(
    ("thoughts", "box", "reward"),
    [("drop", "thought", 0.0), ("keep", "thought", 1.0), ("drop", "answer", 1.0)],
)
def test_a_box_in_a_thought_counts_only_on_demand(thoughts: Any, box: str, reward: float) -> None:
    tokenizer = tokenizer_of(HARMONY)
    said = {"thought": "", "answer": ""} | {box: r"\boxed{5}"}
    response = (
        f"<|channel|>analysis<|message|>I think. {said['thought']}<|end|><|start|>assistant"
        f"<|channel|>final<|message|>So: {said['answer']}<|return|>"
    )
    policy = Says(tokenizer.encode(response))
    limits = EpisodeLimits(thoughts=thoughts)
    episode = asyncio.run(run_episode(Boxed(), policy, AppendContext(tokenizer), limits, seed=0))
    assert episode.total_reward == reward
    assert ("I think." in episode.turns[0].action) == (thoughts == "keep")
