"""What a context is given: its tokenizer, and a template that shows each input, or else an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gem_chat._chat_templates import shows, templates_of, tool_names
from gem_chat._probes import ADVICE, MESSAGES, clipped, system_messages
from gem_chat._template import Render, chat_renderer
from gem_chat._vision import ImageProcessor, is_processor
from gem_core._util.checks import expected
from gem_core.errors import ConfigError, UnsupportedTemplate

_UNDEFINED = re.compile(r"'(\w+)' is undefined")


def checked_renderer(
    tokenizer: Any,
    chat_template: str | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
    *,
    system_prompt: str | None = None,
    date: str | None = None,
) -> Render:
    """Return the renderer of `chat_renderer`, after a check that the first prompt shows all that it is given.

    A template that takes no text as content gets content parts.

    Args:
        tokenizer: As in `chat_renderer`.
        chat_template: As in `chat_renderer`.
        template_kwargs: As in `chat_renderer`.
        system_prompt: First message of each conversation; None for no system message.
        date: As in `chat_renderer`.

    Raises:
        ConfigError: As in `chat_renderer`.
        UnsupportedTemplate: The template drops the observation, the system prompt, or a tool.
    """
    variables = dict(template_kwargs or {})
    render = chat_renderer(tokenizer, chat_template, variables, date=date)
    problem = _problem(render)
    if problem is not None:
        in_parts = chat_renderer(tokenizer, chat_template, variables, date=date, parts=True)
        if _problem(in_parts) is not None:
            raise _with_advice(problem, tokenizer, chat_template, variables)
        render = in_parts
    if system_prompt is not None:
        _require_system(render, system_prompt)
    if variables.get("tools"):
        _require_tools(
            render, chat_renderer(tokenizer, chat_template, variables | {"tools": None}), variables
        )
    return render


def _problem(render: Render) -> UnsupportedTemplate | None:
    """Return why a template does not take a text as an observation; None if it does."""
    try:
        text = render([{"role": "user", "content": MESSAGES[1]}], generate=True)
    except UnsupportedTemplate as error:
        return error
    if MESSAGES[1] in text:
        return None
    return UnsupportedTemplate(
        f"the chat template does not show the observation, a user message ({clipped(text)}); {ADVICE}"
    )


def _with_advice(
    problem: UnsupportedTemplate, tokenizer: Any, chat_template: str | None, variables: dict[str, Any]
) -> UnsupportedTemplate:
    """Return the problem with what a user can do about it."""
    if "tools" not in variables and _problem(chat_renderer(tokenizer, chat_template, {"tools": []})) is None:
        return UnsupportedTemplate(
            f"{problem}; the template needs tools: pass template_kwargs={{'tools': []}}, or {ADVICE}"
        )
    undefined = _UNDEFINED.search(str(problem))
    if undefined is not None:
        name = undefined[1]
        return UnsupportedTemplate(
            f"{problem}; the template needs the variable {name}: pass template_kwargs={{'{name}': ...}}, or "
            f"{ADVICE}"
        )
    return problem


def _require_system(render: Render, system_prompt: str) -> None:
    messages = [*system_messages(system_prompt), {"role": "user", "content": MESSAGES[1]}]
    try:
        text = render(messages, generate=True)
    except UnsupportedTemplate as error:
        raise UnsupportedTemplate(
            f"{error}; put the system prompt into the first observation, or {ADVICE}"
        ) from error
    if not shows(text, system_prompt):
        raise UnsupportedTemplate(
            f"the chat template does not show the system prompt {system_prompt!r:.60}; put it into the first "
            f"observation, or {ADVICE}"
        )


def _require_tools(render: Render, without: Render, variables: Mapping[str, Any]) -> None:
    question = [{"role": "user", "content": MESSAGES[1]}]
    text = render(question, generate=True)
    try:
        bare = without(question, generate=True)
    except UnsupportedTemplate:  # it needs tools
        bare = ""
    missing = [name for name in tool_names(variables["tools"]) if text.count(name) <= bare.count(name)]
    if missing:
        raise UnsupportedTemplate(
            f"the chat template does not show the tools {', '.join(missing)[:200]} of template_kwargs; let "
            f"the first observation explain them (instructions=True of the tools wrapper), or {ADVICE}"
        )


def split_processor(
    tokenizer_or_processor: Any, chat_template: str | None, system_prompt: str | None
) -> tuple[Any, str | None, ImageProcessor | None]:
    """Return tokenizer, chat template, and image processor of a tokenizer or a processor.

    Raises:
        ConfigError: It is neither, or a processor that is not of the Qwen2-VL family or has no chat template.
        DataError: The system prompt holds a placeholder of an image.
    """
    if isinstance(tokenizer_or_processor, str | None):
        raise expected(
            "tokenizer", tokenizer_or_processor,
            "a tokenizer or a processor, as from transformers.AutoTokenizer.from_pretrained(NAME)",
        )  # fmt: skip
    if not is_processor(tokenizer_or_processor):
        return tokenizer_or_processor, chat_template, None
    processor = tokenizer_or_processor
    # The tokenizer's own template is preferred, so that text prompts do not change.
    own = processor.tokenizer.chat_template is not None
    if chat_template is None and not own:
        chat_template = templates_of(processor.chat_template).get("default")
    if chat_template is None and not own:
        raise ConfigError("this processor has no chat template, so the positions of images are unknown")
    image_processor = ImageProcessor(processor)
    if system_prompt is not None:
        image_processor.check_text(system_prompt)
    return processor.tokenizer, chat_template, image_processor


def first_prompt(render: Render, system_prompt: str | None, content: str | list[dict[str, str]]) -> str:
    """Return the text of a prompt with one message of the environment."""
    return render([*system_messages(system_prompt), {"role": "user", "content": content}], generate=True)
