"""Observation wrappers that render the history with a chat template.

The observation becomes the text of a whole prompt, special tokens included: encode it with
``add_special_tokens=False`` and without another template around it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Mapping
from typing import Any, Protocol

from gem_chat._chat_templates import (
    THOUGHT_FIELDS,
    check_variables,
    chosen_template,
    read_template,
    shows,
    templates_of,
    with_date,
)
from gem_chat._special_tokens import Spellings, spellings_of
from gem_core import Env, Observation, without_thoughts
from gem_core._observations import observation_text
from gem_core._thoughts import THOUGHT_OPEN, thoughts_in
from gem_core._util.messages import error_line
from gem_core.errors import ConfigError, MissingDependency, ModelError, UnsupportedTemplate
from gem_core.wrappers._observation import History


class ChatTokenizer(Protocol):
    """The only method of a Hugging Face tokenizer that this module uses."""

    def apply_chat_template(self, conversation: list[dict[str, str]], **kwargs: Any) -> Any:
        """Return the conversation as text (with ``tokenize=False``)."""
        ...


class ConcatChat(History):
    """Shows the history as a conversation: observations are "user" (or "tool") messages, actions "assistant".

    An observation is a "tool" message if it answers a tool call (``info["use_tool"]``).

    Args:
        env: The environment.
        tokenizer: Folder or hub name of a tokenizer, loaded with transformers at the first reset
            and shared by all environments of the process; or an object with `apply_chat_template`.
        max_history: See `History`.
        chat_template: File with a chat template, its Jinja text, or the name of one of the tokenizer's
            templates; None for the tokenizer's own.
        template_kwargs: Keyword arguments of `apply_chat_template`, such as ``{"enable_thinking": False}``.
        date: Day that the template takes for today, such as ``"2026-01-31"``; None for the real one.
        tool_role: Role of a tool's answer; use "user" for templates without tools.
        parse_special: Whether a special token that a message spells, such as ``<|im_end|>``, becomes that
            token. By default, a word joiner (U+2060) in it keeps it from becoming one; the model's own
            messages may hold its markup, such as ``<think>``, but not the ends of turns.

    Raises:
        ConfigError: `tokenizer` has no chat template method, `chat_template` is no template, the template
            shows no date, or an observation holds images, which text cannot carry.
        MissingDependency: A tokenizer is given by name, and transformers is not installed.
        ModelError: The tokenizer cannot be loaded.
        UnsupportedTemplate: The template fails on the conversation, or does not show a message of the
            environment.
    """

    def __init__(
        self,
        env: Env,
        *,
        tokenizer: str | ChatTokenizer,
        max_history: int | None = None,
        chat_template: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        date: str | None = None,
        tool_role: str = "tool",
        parse_special: bool = False,
    ) -> None:
        super().__init__(env, max_history=max_history)
        if not isinstance(tokenizer, str) and not hasattr(tokenizer, "apply_chat_template"):
            raise ConfigError(
                f"tokenizer={tokenizer!r}: expected a folder, a hub name, or an object with "
                "apply_chat_template()"
            )
        self.tokenizer = tokenizer
        self.chat_template = chat_template
        self.template_kwargs = dict(template_kwargs or {})
        self.date = date
        self.tool_role = tool_role
        self.parse_special = parse_special
        self._given: dict[str, Any] | None = None
        self._spellings: Spellings | None = None
        self._has_thoughts: bool | None = None

    def entry(self, role: str, content: Observation) -> Any:
        text = self._guarded(content, from_model=role == "assistant")
        return {"role": self.tool_role if role == "tool" else role, "content": text}

    def render(self) -> Observation:
        return self.apply_template(self.history)

    def apply_template(self, messages: list[dict[str, str]]) -> str:
        """Render `messages` with the generation prompt at the end.

        Thoughts in an assistant message are given to the template as its fields for them, if it shows any.
        """
        if any(message["role"] == "assistant" and THOUGHT_OPEN in message["content"] for message in messages):
            if self._has_thoughts is None:
                answer = {"role": "assistant", "content": "a", **dict.fromkeys(THOUGHT_FIELDS, _THOUGHT)}
                self._has_thoughts = _THOUGHT in self._rendered([{"role": "user", "content": "q"}, answer])
            if self._has_thoughts:
                messages = [_with_fields(message) for message in messages]
        text = self._rendered(messages)
        for message in messages:
            if message["role"] != "assistant" and not shows(text, message["content"]):
                raise UnsupportedTemplate(
                    f"the chat template does not show the {message['role']} message "
                    f"{message['content']!r:.60}; use another tokenizer, or a template that shows it"
                )
        return text

    def _rendered(self, messages: list[dict[str, str]]) -> str:
        given = self._template()
        try:
            text = self._loaded().apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, **given, **self.template_kwargs
            )
        except Exception as error:  # templates are programs: jinja2 errors, ValueError without a template
            roles = ", ".join(message["role"] for message in messages)
            raise UnsupportedTemplate(
                f"the chat template failed on a conversation with the roles {roles}: {error_line(error)}"
            ) from error
        return str(text)

    def _template(self) -> dict[str, Any]:
        """Return the argument `chat_template` of the tokenizer; none for its own template."""
        if self._given is None:
            tokenizer: Any = self._loaded()
            template = None if self.chat_template is None else read_template(self.chat_template, tokenizer)
            known = template is not None or getattr(tokenizer, "chat_template", None) is not None
            if known:
                source = template or chosen_template(tokenizer, None, self.template_kwargs)
                check_variables([source], self.template_kwargs)
                template = template if self.date is None else with_date(source, self.date)
            elif self.date is not None:
                raise ConfigError(f"date={self.date!r}: the tokenizer has no chat template; omit it")
            self._given = {} if template is None else {"chat_template": template}
        return self._given

    def _loaded(self) -> ChatTokenizer:
        if isinstance(self.tokenizer, str):
            self.tokenizer = load_tokenizer(self.tokenizer)
        return self.tokenizer

    def _guarded(self, content: Observation, *, from_model: bool = False) -> str:
        text = observation_text(content)
        if self.parse_special:
            return text
        if self._spellings is None:
            self._spellings = _spellings_of(self._loaded(), **self._template())
        return self._spellings.separate(text, from_model=from_model)


class ConcatChatOnReset(ConcatChat):
    """Applies the chat template to the first observation only and appends the rest unchanged.

    Takes the arguments of `ConcatChat`. The first action follows the template directly, as the model wrote
    it; later entries are separated by line breaks.
    """

    def opening(self, content: Observation) -> Any:
        return self.apply_template([{"role": "user", "content": self._guarded(content)}])

    def entry(self, role: str, content: Observation) -> Any:
        return self._guarded(content, from_model=role == "assistant")

    def render(self) -> Observation:
        return str(self.history[0]) + "\n".join(self.history[1:])


_THOUGHT = "neutral thought 3950"


def _with_fields(message: dict[str, str]) -> dict[str, str]:
    """Return an assistant message whose thoughts are fields instead of a part of the content."""
    thoughts = thoughts_in(message["content"]) if message["role"] == "assistant" else ""
    if not thoughts:
        return message
    content = without_thoughts(message["content"])
    return {**message, "content": content, **dict.fromkeys(THOUGHT_FIELDS, thoughts)}


_known: weakref.WeakKeyDictionary[Any, dict[str | None, Spellings]] = weakref.WeakKeyDictionary()
"""Spellings by tokenizer and template, which all environments of the process share."""


def _spellings_of(tokenizer: Any, chat_template: str | None = None) -> Spellings:
    """Return the spellings of a tokenizer with a template or its own; none if it only renders."""
    if not hasattr(tokenizer, "all_special_ids"):
        return Spellings(())
    known = _known.setdefault(tokenizer, {})
    if chat_template not in known:
        sources = [*templates_of(getattr(tokenizer, "chat_template", None)).values()]
        sources += [] if chat_template is None else [chat_template]
        known[chat_template] = spellings_of(tokenizer, sources, turns=_turns(tokenizer, chat_template))
    return known[chat_template]


def _turns(tokenizer: Any, chat_template: str | None) -> str | None:
    """Return a conversation of plain messages; None if the template does not take one."""
    messages = [{"role": role, "content": "x"} for role in ("user", "assistant", "user")]
    given = {} if chat_template is None else {"chat_template": chat_template}
    try:
        return str(
            tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False, **given)
        )
    except Exception:  # templates are programs; the wrapper reports it when it renders the episode
        return None


@functools.lru_cache(maxsize=8)
def load_tokenizer(name: str) -> ChatTokenizer:
    """Load a Hugging Face tokenizer from a folder or from the hub.

    Raises:
        MissingDependency: transformers is not installed.
        ModelError: The tokenizer does not exist or is damaged.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingDependency(
            f"loading the tokenizer {name!r} needs transformers: pip install 'gem-core[train]'"
        ) from error
    try:
        tokenizer: ChatTokenizer = AutoTokenizer.from_pretrained(name)
    except Exception as error:  # OSError, ValueError, KeyError, ... depending on what is missing
        raise ModelError(f"cannot load a tokenizer from {name!r}: {error_line(error)}") from error
    return tokenizer
