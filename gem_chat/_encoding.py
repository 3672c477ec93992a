"""Encoding of prompts in which some parts must not become special tokens."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gem_chat._special_tokens import JOINER, MARK, REPLACEMENT, Spellings, map_texts
from gem_chat._template import spellings_in
from gem_chat._vision import Content, ImageProcessor, content_of, for_template
from gem_core import Observation
from gem_core._observations import observation_text

_OURS = "\ufdd1"
"""Precedes the special tokens of the template in a text for `_without_special_tokens`."""


class PromptEncoder:
    """A tokenizer that adds no tokens, cleans up no spaces, and reads marked spellings as text.

    The part of a prompt that the template wrote keeps its special tokens. The tokens of a text that spells
    none are those of the tokenizer itself.

    Args:
        tokenizer: A transformers tokenizer, or any object with the methods of `Tokenizer`.
        spellings: Tokens that marked texts spell.
    """

    def __init__(self, tokenizer: Any, spellings: Spellings) -> None:
        self._tokenizer = tokenizer
        self._pattern = spellings.pattern
        # By default, some tokenizers of transformers 4 decode " ." as ".".
        self._exact = (
            {"clean_up_tokenization_spaces": False} if hasattr(tokenizer, "apply_chat_template") else {}
        )
        self.atomic_ids = frozenset(tokenizer.all_special_ids) | frozenset(
            getattr(tokenizer, "added_tokens_decoder", ())
        )

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text; the marks of `Spellings.mark` are not part of it."""
        if MARK not in text:
            return list(self._tokenizer.encode(text, add_special_tokens=False))
        plain = text.replace(MARK, "")
        if MARK + MARK not in text and self._pattern.findall(text) == self._pattern.findall(plain):
            return list(self._tokenizer.encode(plain, add_special_tokens=False))
        encode = self._without_special_tokens
        ids = None if encode is None else encode(self._pattern.sub(lambda match: _OURS + match[0], text))
        return self._encode_pieces(text) if ids is None else ids

    def shown(self, text: str) -> str:
        """Return a marked text for an encoder of somebody else, with word joiners instead of the marks."""
        if MARK not in text:
            return text
        plain = text.replace(MARK, "")
        if self._pattern.findall(text) == self._pattern.findall(plain):
            return plain
        return re.sub(f"{MARK}+", JOINER, text)

    def without_padding(self, ids: Sequence[int]) -> Sequence[int]:
        """Return a response without the pad tokens at its end."""
        pad = getattr(self._tokenizer, "pad_token_id", None)
        while pad is not None and pad != self._tokenizer.eos_token_id and ids[-1:] and ids[-1] == pad:
            ids = ids[:-1]
        return ids

    def decode_all(self, ids: Sequence[int]) -> str:
        """Return the text of tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False, **self._exact))

    @functools.cached_property
    def _without_special_tokens(self) -> Callable[[str], list[int] | None] | None:
        """Encoder that knows a special token only after `_OURS`; None if there is no exact one.

        It shares the model of a fast tokenizer and its rules for text. It returns None for a text in which
        the model itself produces a special token.
        """
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            return None
        from tokenizers import AddedToken, Tokenizer

        copy = Tokenizer(backend.model)
        copy.normalizer, copy.pre_tokenizer = backend.normalizer, backend.pre_tokenizer
        added: dict[str, int] = {}  # the tokenizer's id by the copy's text
        tokens, guarded = [], set()
        for token_id, token in sorted(self._tokenizer.added_tokens_decoder.items()):
            text, is_guarded = str(token), self._pattern.fullmatch(str(token)) is not None
            flags = {name: getattr(token, name) for name in ("single_word", "lstrip", "rstrip")}
            normalized = token.normalized and not is_guarded
            text = _OURS * is_guarded + text
            tokens.append(AddedToken(text, normalized=normalized, special=False, **flags))
            added[text] = token_id
            if is_guarded:
                guarded.add(token_id)
        copy.add_tokens(tokens)
        own = {copy.token_to_id(text): token_id for text, token_id in added.items()}

        def encode(text: str) -> list[int] | None:
            ids = copy.encode(text.replace(MARK, ""), add_special_tokens=False).ids
            if any(token_id in guarded and token_id not in own for token_id in ids):
                return None
            return [own.get(token_id, token_id) for token_id in ids]

        for probe in (*_PROBES, "".join(map(str, self._tokenizer.added_tokens_decoder.values()))):
            expected = list(self._tokenizer.encode(probe, add_special_tokens=False))
            if encode(self._pattern.sub(lambda match: _OURS + match[0], probe)) != expected:
                return None
        return encode

    def _encode_pieces(self, text: str) -> list[int]:
        """Return the tokens of a marked text for any tokenizer, cut at each mark and each special token."""
        ids: list[int] = []
        position = 0
        for match in [*self._pattern.finditer(text), None]:
            for piece in text[position : match.start() if match else len(text)].split(MARK):
                found = list(self._tokenizer.encode(piece, add_special_tokens=False)) if piece else []
                atomic = {token_id for token_id in found if token_id in self.atomic_ids}
                if any(self._pattern.fullmatch(self.decode_all([token_id])) for token_id in atomic):
                    found = list(self._tokenizer.encode(REPLACEMENT, add_special_tokens=False))
                ids += found
            if match:
                ids += self._tokenizer.encode(match[0], add_special_tokens=False)
                position = match.end()
        return ids


_PROBES = ("Guess.", " two  lines,\n\nof text. ", "\n", "ends: <b>é</b> 12")
"""Texts for which an encoder must produce the tokens of the tokenizer itself."""


class PromptTexts:
    """Decides which texts of a prompt must not become special tokens, and encodes the prompt.

    Args:
        tokenizer: A transformers tokenizer, or any object with the methods of `Tokenizer`.
        chat_template: Jinja text to use instead of the tokenizer's own template.
        image_processor: Turns images into tokens; None for text only.
        parse_special: Whether texts of the environment may spell special tokens.

    Attributes:
        encoder: Encoder of prompts.
    """

    def __init__(
        self,
        tokenizer: Any,
        chat_template: str | None,
        image_processor: ImageProcessor | None,
        parse_special: bool,
    ) -> None:
        placeholders = () if image_processor is None else image_processor.placeholders.values()
        self._spellings = spellings_in(tokenizer, chat_template, placeholders)
        self._parse_special, self._image_processor = parse_special, image_processor
        self.encoder = PromptEncoder(tokenizer, self._spellings)

    def content(self, observation: Observation) -> Content:
        """Return what an observation holds; only its text if there is no image processor."""
        return observation_text(observation) if self._image_processor is None else content_of(observation)

    def written(self, write: Callable[[Any], str], content: Content) -> str:
        """Return the text that a template writes for a content, whose spellings are marked.

        Args:
            write: Function from the content of a message to text.
            content: The content.
        """
        content = self.guarded(content)
        return self.with_images(write(for_template(content)), [content])

    def with_images(self, text: str, contents: Iterable[Content]) -> str:
        """Return a text with as many placeholders for each image as it has tokens.

        Args:
            text: What a template writes for `contents`.
            contents: Guarded contents of messages, in order.
        """
        if self._image_processor is None:
            return text
        parts = ((("text", one),) if isinstance(one, str) else one for one in contents)
        return self._image_processor.expand(text, tuple(itertools.chain.from_iterable(parts)))

    def count(self, content: Content) -> int:
        """Return the number of special tokens that a content spells."""
        parts = (("text", content),) if isinstance(content, str) else content
        return sum(self._spellings.count(value) for kind, value in parts if kind == "text")

    def guarded(self, content: Content) -> Content:
        """Return a content with its spellings marked, unless they are to be parsed."""
        if isinstance(content, str):
            return self.guarded_text(content)
        return tuple((kind, self.guarded_text(value) if kind == "text" else value) for kind, value in content)

    def guarded_text(self, text: str) -> str:
        """Return a text with its spellings marked, unless they are to be parsed."""
        return text if self._parse_special else self._spellings.mark(text)

    def guarded_variables(self, variables: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return variables of a template with the texts inside lists and dicts guarded, such as schemas.

        Servers of tools write the names and descriptions in them; other texts are the user's.
        """
        variables = dict(variables or {})
        if self._parse_special:
            return variables
        mark = self._spellings.mark_inside
        return {
            name: value if isinstance(value, str) else map_texts(mark, value)
            for name, value in variables.items()
        }
