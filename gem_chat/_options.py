"""The context that the options of a rollout describe."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gem_chat._append_context import AppendContext
from gem_chat._chat_templates import read_template
from gem_chat._rebuild_context import RebuildContext
from gem_chat._template_context import TemplateContext
from gem_chat._vision import tokenizer_of
from gem_core._util.options import check_options
from gem_core.errors import ConfigError, UnsupportedTemplate
from gem_core.rollout._options import ContextOptions


def make_context(
    options: ContextOptions,
    tokenizer: Any,
    template_kwargs: Mapping[str, Any] | None = None,
    stop_ids: Collection[int] = (),
) -> AppendContext | RebuildContext | TemplateContext:
    """Return the context that all episodes share.

    Args:
        options: Options of the prompts.
        tokenizer: Tokenizer or processor of the model.
        template_kwargs: Variables for the chat template.
        stop_ids: Tokens at which the engine stops by itself.

    Raises:
        ConfigError: An option has a wrong value, or does not fit the chat template, such as a variable that
            the template does not read.
        UnsupportedTemplate: The context does not support the chat template.
    """
    check_options(options)
    arguments: dict[str, Any] = {
        "system_prompt": options.system_prompt,
        "template_kwargs": options.template_variables(template_kwargs),
        "stop_ids": stop_ids,
        "date": options.date,
        "parse_special": options.parse_special,
    }
    if options.chat_template is not None:
        arguments["chat_template"] = read_template(options.chat_template, tokenizer_of(tokenizer))
    if options.context != "rebuild" and options.raw:
        raise ConfigError(
            f"raw=True needs context='rebuild'; with context={options.context!r}, the chat template is "
            "applied to each observation"
        )
    if options.context == "rebuild":
        return RebuildContext(tokenizer, raw=options.raw, **arguments)
    kind = AppendContext if options.context == "append" else TemplateContext
    context = kind(tokenizer, native_tools=options.native_tools, **arguments)
    try:
        extra = context.extra_stop_id(stop_ids)
    except UnsupportedTemplate:  # `gem_chat._stop_ids.response_stops` raises it, too
        return context
    known = [*stop_ids, *([] if extra is None else [extra])]
    call_stop_id = context.call_stop_id(known) if stop_ids else None
    if call_stop_id is None:
        return context
    # `response_stops` adds this token to those at which the engine stops.
    arguments["stop_ids"] = [*stop_ids, call_stop_id]
    return kind(tokenizer, native_tools=options.native_tools, **arguments)
