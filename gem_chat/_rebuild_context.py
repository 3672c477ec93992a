"""`RebuildContext`: each observation is the whole prompt of its turn."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from gem_chat._answer_end import AnswerEnd, find_answer_end
from gem_chat._conversation import TokenContext
from gem_chat._encoding import PromptTexts
from gem_chat._inputs import checked_renderer, first_prompt, split_processor
from gem_chat._template import Tokenizer, chat_renderer
from gem_chat._thinking import ThinkingFormat, find_thinking
from gem_core import Observation
from gem_core.errors import ConfigError, UnsupportedTemplate
from gem_core.rollout._trajectory import ContextMode


class RebuildContext(TokenContext):
    """A context that uses each observation as the whole prompt of its turn.

    Use it with observation wrappers that keep the history themselves, such as `concat` or a summary of the
    history. A prompt that does not continue the tokens of an earlier turn begins another row.

    Args:
        tokenizer: As in `AppendContext`. With `raw`, only text is supported.
        raw: Whether to encode the observation unchanged, for `concat_chat` and other wrappers that apply a
            template themselves. False applies the chat template to the observation as one user message.
        chat_template: Jinja text to use instead of the tokenizer's own template, or the name of one of its
            templates.
        system_prompt: First message of each prompt; None leaves it to the template.
        template_kwargs: Variables for the template.
        stop_ids: As in `AppendContext`.
        date: As in `AppendContext`.
        parse_special: As in `AppendContext`. With `raw`, the wrapper decides: what it hands over is encoded
            with special tokens, and `concat_chat` keeps the texts of the environment from spelling any.

    Raises:
        UnsupportedTemplate: The template does not show how it ends an answer, or drops one of its inputs.
        ConfigError: `raw` is combined with an argument that only affects templates.
    """

    mode: ContextMode = "rebuild"

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        raw: bool = False,
        chat_template: str | None = None,
        system_prompt: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        stop_ids: Collection[int] = (),
        date: str | None = None,
        parse_special: bool = False,
    ) -> None:
        given = (chat_template, system_prompt, date)
        if raw and (any(value is not None for value in given) or template_kwargs):
            raise ConfigError(
                "RebuildContext(raw=True) encodes the observation unchanged, so chat_template, "
                "system_prompt, template_kwargs, and date have no effect; omit them or use raw=False"
            )
        tokenizer, chat_template, self.image_processor = split_processor(
            tokenizer, chat_template, system_prompt
        )
        self._tokenizer, self._own_template = tokenizer, chat_template
        self._has_template = (
            chat_template is not None or getattr(tokenizer, "chat_template", None) is not None
        )
        if raw:
            self.image_processor = None
        self._texts = PromptTexts(tokenizer, chat_template, self.image_processor, raw or parse_special)
        self._tokens = self._texts.encoder
        eos = tokenizer.eos_token_id
        self._stop_ids = frozenset([*stop_ids, *([] if eos is None else [eos])])
        self._render = None
        if not raw:
            self._render = checked_renderer(
                tokenizer,
                chat_template,
                self._texts.guarded_variables(template_kwargs),
                system_prompt=system_prompt,
                date=date,
            )
        self._system_prompt = system_prompt
        self._end = AnswerEnd(0, [], False, [], {})
        self._thinking = ThinkingFormat()
        tokens = self._tokens
        if self._render is not None:
            self._end = find_answer_end(
                self._render, tokens.encode, tokens.decode_all, tokens.atomic_ids, system_prompt=system_prompt
            )
            self._thinking = find_thinking(self._render, system_prompt=system_prompt)
        elif hasattr(tokenizer, "apply_chat_template"):  # the prompts are likely to have this template
            own = chat_renderer(tokenizer)
            self._thinking = find_thinking(own)
            with suppress(UnsupportedTemplate):
                self._end = find_answer_end(own, tokens.encode, tokens.decode_all, tokens.atomic_ids)

    def extra_stop_id(self, known: Collection[int]) -> int | None:
        """Return the token at which an engine must stop in addition to `known`, as in `AppendContext`.

        With `raw`, the template is unknown, so the result is None.
        """
        return None if self._render is None else self._end.extra_stop_id(known)

    def call_stop_id(self, known: Collection[int]) -> int | None:
        """Return None: calls are a part of the text."""
        return None

    def with_tools(self, schemas: Sequence[Mapping[str, Any]]) -> None:
        """Return None: an observation that holds the whole conversation holds calls and results as text."""
        return

    def first(self, observation: Observation) -> list[int]:
        """Return the tokens of the whole prompt."""
        return self._tokens.encode(self._marked_text(observation))

    def first_text(self, observation: Observation) -> str:
        """Return the text that `first` encodes, for trainers that encode texts themselves."""
        return self._tokens.shown(self._marked_text(observation))

    def count_spelled(self, observation: Observation) -> int:
        """Return the number of special tokens that an observation spells; 0 with `raw`."""
        return 0 if self._render is None else self._texts.count(self._texts.content(observation))

    def _marked_text(self, observation: Observation) -> str:
        content = self._texts.content(observation)
        if self._render is None:
            assert isinstance(content, str)  # a raw context takes text only
            return content
        return self._texts.written(partial(first_prompt, self._render, self._system_prompt), content)

    def extend(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> list[int]:
        """Return the tokens of the next prompt, as `first` does; the observation contains the response."""
        return self.first(observation)

    def extend_text(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> str:
        """Return the text that `extend` encodes."""
        return self.first_text(observation)

    def decode(self, response_ids: Sequence[int]) -> str:
        """Return the response as text, with its thoughts as ``<think>...</think>`` and without its end."""
        ids = self._tokens.without_padding(response_ids)
        end = self._end.length(ids, self._stop_ids)
        text = self._tokens.decode_all(ids[: len(ids) - end])
        if self._render is None and self._thinking.close not in text:  # the opening of the answer is unknown
            return replace(self._thinking, prefilled=False).rewrite(text)
        return self._thinking.rewrite(text)
