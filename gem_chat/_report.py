"""What a chat template does with an episode: `describe_template`, for ``gem-core template``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gem_chat._answer_end import AnswerEnd, find_answer_end
from gem_chat._append_context import AppendContext
from gem_chat._calls.native import after_opening, native_syntax
from gem_chat._chat_templates import templates_of
from gem_chat._encoding import PromptEncoder
from gem_chat._inputs import checked_renderer
from gem_chat._probes import ANSWERS, QUESTIONS, common_length
from gem_chat._rebuild_context import RebuildContext
from gem_chat._stop_ids import engine_stop_ids
from gem_chat._template import Render, spellings_in
from gem_chat._template_context import TemplateContext
from gem_chat._thinking import ThinkingFormat, find_thinking
from gem_core._thoughts import THOUGHT_CLOSE, THOUGHT_OPEN
from gem_core.errors import ConfigError, UnknownName, UnsupportedTemplate

_SENTINEL = "neutral-sentinel-6021"
_TOOL = {
    "type": "function",
    "function": {
        "name": "neutral_tool",
        "description": _SENTINEL,
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
}
THOUGHT_TAGS = (THOUGHT_OPEN, THOUGHT_CLOSE)
_TURNS = 4
_AROUND = 24
"""Characters around the first difference of a self-test."""
# Spellings of special tokens in the source of a template, which a stand-in tokenizer has.
_TOKEN = re.compile(
    r"<[|\uff5c][^<>|\uff5c{}\s']{1,40}[|\uff5c]>|<\|[a-z_\"]{1,30}>|<[a-z_]{1,30}\|>|<(?:start|end)_of_\w+>"
    r"|</?s>|<(?:bos|eos|sep|sop)>|<SPECIAL_\d+>|<seed:\w+>|</?(?:assistant|user|system)>|\[gMASK\]|<gmask>"
    r"|\[/?(?:INST|AVAILABLE_TOOLS|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|THINK|MODEL_SETTINGS"
    r"|ARGS|CALL_ID)\]|\]~b\]|\]~!b\[|\[e~\[|<end_of_utterance>"
)


@dataclass(frozen=True)
class TemplateReport:
    """What a chat template does with an episode.

    Attributes:
        rejected: Why a context that only appends rejects the template; None if it accepts it.
        template_rejected: Why a context that renders the whole history rejects it; None if it accepts it.
        rebuild_rejected: Why a rebuilt context rejects it; None if it accepts it.
        ends: Texts of the tokens that end an answer in the history.
        stops: Texts of the tokens at which the engine stops by itself.
        extra_stop: Text of the token at which the engine has to stop in addition; None if there is none.
        thinking: Texts before and after a thought; None if the template shows no thoughts.
        prefilled: Whether the opening of an answer opens a thought.
        calls: Name of the format of calls; None if the template writes none, or in an unknown one.
        tool_turns: Why results of calls have no turn of their own; empty if they have one.
        dropped: Inputs that the template does not show: "system prompt", "tools".
        dated: Whether the first prompt depends on the day.
        guarded: Number of tokens that texts of the environment cannot spell.
        self_test: Result of an episode of four turns, compared with the template's own rendering: "equal",
            "keeps" if only marks of thoughts and answers, and whitespace, stay in the history, or "differs".
        difference: Text around the first difference, of the episode and of the rendering; empty without one.
    """

    rejected: str | None
    template_rejected: str | None
    rebuild_rejected: str | None
    ends: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    extra_stop: str | None = None
    thinking: tuple[str, str] | None = None
    prefilled: bool = False
    calls: str | None = None
    tool_turns: str = ""
    dropped: tuple[str, ...] = ()
    dated: bool = False
    guarded: int = 0
    self_test: str | None = None
    difference: tuple[str, ...] = ()


def stand_in_tokenizer(template: str) -> Any:
    """Return a tokenizer for a template alone: one token per byte, and the special tokens that it spells."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = {text: index for index, text in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    tokenizer.add_tokens(sorted(set(_TOKEN.findall(template))), special_tokens=True)
    tokenizer.add_tokens(["<think>", "</think>", "<tool_call>", "</tool_call>"])
    tokenizer.chat_template = template
    return tokenizer


def describe_template(tokenizer: Any, template_kwargs: Mapping[str, Any] | None = None) -> TemplateReport:
    """Return what the chat template of a tokenizer does with an episode.

    Args:
        tokenizer: A transformers tokenizer.
        template_kwargs: Variables for the template.

    Raises:
        ConfigError: The tokenizer cannot apply a template, or the variables do not fit.
    """
    context, rejected = _made(AppendContext, tokenizer, template_kwargs)
    whole, template_rejected = _made(TemplateContext, tokenizer, template_kwargs)
    rebuilt, rebuild_rejected = _made(RebuildContext, tokenizer, template_kwargs)
    reasons = (rejected, template_rejected, rebuild_rejected)
    spellings = spellings_in(tokenizer, None)
    encoder = PromptEncoder(tokenizer, spellings)
    facts: dict[str, Any] = {"guarded": len(spellings.texts), "dropped": _dropped(tokenizer, template_kwargs)}
    accepting = context or whole or rebuilt
    if accepting is None:
        return TemplateReport(*reasons, **facts)
    known, render = engine_stop_ids(tokenizer), checked_renderer(tokenizer, None, template_kwargs)
    end = find_answer_end(render, encoder.encode, encoder.decode_all, encoder.atomic_ids)
    extra = accepting.extra_stop_id(known)
    thinking = find_thinking(render)
    facts |= {
        "ends": tuple(encoder.decode_all([token_id]) for token_id in end.closing),
        "stops": tuple(encoder.decode_all([token_id]) for token_id in sorted(known)),
        "extra_stop": None if extra is None else encoder.decode_all([extra]),
        "thinking": (thinking.open, thinking.close) if _shows_thoughts(tokenizer, render) else None,
        "prefilled": thinking.prefilled,
        "calls": _calls(tokenizer),
        "dated": _first(render, date="one day") != _first(render, date="another day"),
    }
    if context is not None:
        try:
            AppendContext(tokenizer, template_kwargs=template_kwargs, stop_ids=known, native_tools=True)
        except UnsupportedTemplate as error:
            facts["tool_turns"] = _reason(error)
        facts["self_test"], facts["difference"] = _self_test(context, render, encoder, end, thinking)
    return TemplateReport(*reasons, **facts)


def _made(kind: Any, tokenizer: Any, template_kwargs: Mapping[str, Any] | None) -> tuple[Any, str | None]:
    """Return a context and None, or None and why it rejects the template."""
    try:
        context = kind(tokenizer, template_kwargs=template_kwargs, stop_ids=engine_stop_ids(tokenizer))
        context.extra_stop_id(engine_stop_ids(tokenizer))
    except UnsupportedTemplate as error:
        return None, _reason(error)
    return context, None


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".!")


def _first(render: Render, **options: Any) -> str:
    return render([{"role": "user", "content": QUESTIONS[0]}], generate=True, **options)


def _dropped(tokenizer: Any, template_kwargs: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the inputs that a template does not show."""
    given = dict(template_kwargs or {})
    inputs: dict[str, dict[str, Any]] = {
        "system prompt": {"template_kwargs": given, "system_prompt": _SENTINEL},
        "tools": {"template_kwargs": given | {"tools": [_TOOL]}},
    }
    dropped = []
    for name, options in inputs.items():
        try:
            checked_renderer(tokenizer, **options)
        except (
            UnsupportedTemplate,
            ConfigError,
        ):  # it does not show the input, or does not read the variable
            dropped.append(name)
    return tuple(dropped)


def _shows_thoughts(tokenizer: Any, render: Render) -> bool:
    """Return whether a template names the tags of a thought, or shows one in a message."""
    if any(THOUGHT_OPEN in template for template in templates_of(tokenizer.chat_template).values()):
        return True
    fields = dict.fromkeys(("reasoning_content", "reasoning", "thinking"), _SENTINEL)
    parts = [{"type": "thinking", "thinking": _SENTINEL}, {"type": "text", "text": ANSWERS[0]}]
    answers: list[dict[str, Any]] = [{"content": ANSWERS[0], **fields}, {"content": parts}]
    for answer in answers:
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": QUESTIONS[0]},
            {"role": "assistant", **answer},
        ]
        try:
            text = render(messages, generate=False)
            if _SENTINEL in text and "'thinking'" not in text:  # not the list of parts as it is
                return True
        except UnsupportedTemplate:
            continue
    return False


def _calls(tokenizer: Any) -> str | None:
    try:
        return native_syntax(tokenizer).name
    except UnknownName:
        return None


def _self_test(
    context: AppendContext, render: Render, encoder: PromptEncoder, end: AnswerEnd, thinking: ThinkingFormat
) -> tuple[str, tuple[str, ...]]:
    """Play four turns; return the result and the texts around the first difference from the rendering."""
    messages: list[dict[str, Any]] = []
    ids: list[int] = []
    response: list[int] = []
    for turn in range(_TURNS):
        question, answer = QUESTIONS[turn % len(QUESTIONS)], f"{ANSWERS[turn % len(ANSWERS)]} {turn}"
        ids += context.extend(question, response) if turn else context.first(question)
        messages.append({"role": "user", "content": question})
        if turn == _TURNS - 1:
            break
        before = _written(render, messages, answer, thinking.answer)
        response = [*encoder.encode(before + answer), *end.closing]
        ids += response
        messages.append({"role": "assistant", "content": answer})
    expected = encoder.encode(render(messages, generate=True))
    played, rendered = encoder.decode_all(ids), encoder.decode_all(expected)
    if ids == expected or played == rendered:  # other tokens at a seam without a special token are no fault
        return "equal", ()
    first = render(messages[:1], generate=True)
    earlier = render(messages, generate=True)
    marks = [
        after_opening(first, earlier),
        before,
        thinking.answer,
        thinking.open,
        thinking.close,
        *THOUGHT_TAGS,
    ]
    if _bare(played, marks) == _bare(rendered, marks):
        return "keeps", ()
    place = max(common_length(played, rendered) - _AROUND // 2, 0)
    around = tuple(text[place : place + 2 * _AROUND] for text in (played, rendered))
    return "differs", around


def _written(render: Render, messages: list[dict[str, Any]], answer: str, mark: str) -> str:
    """Return what the template writes before the newest answer, after the opening of answers in a prompt."""
    opening = render(messages, generate=True)
    text = render([*messages, {"role": "assistant", "content": answer}], generate=False)
    before, found, _ = text.rpartition(answer)
    return before[len(opening) :] if found and before.startswith(opening) else mark


def _bare(text: str, marks: Sequence[str]) -> str:
    """Return a text without whitespace and without the marks of thoughts and answers."""
    text = "".join(text.split())
    for mark in sorted(("".join(mark.split()) for mark in marks), key=len, reverse=True):
        text = text.replace(mark, "") if mark else text
    return text
