"""Episodes for rl-square 0.0.2, where RL2 samples the responses and passes their texts to an environment.

The tokens of a training row come from RL2: the sampled tokens, and its encoding of the texts from this
module. An episode of gem_core runs alongside and receives each response; its token ids are an encoding of the
text.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gem_chat._conversation import TokenContext
from gem_chat._template_context import TemplateContext
from gem_core.rollout import Generation, Turn
from gem_rl2._play import Play


class TextPlay(Play):
    """An episode whose responses arrive one by one, as texts.

    Args:
        context: Context of all episodes.
        tokenizer: Tokenizer of the model.

    Attributes:
        context: Context of the episode, which stores the text of each message in `text`.
        text: Text that RL2 has to append.
        rewards: Rewards of the turns so far.
    """

    def __init__(self, context: TokenContext, tokenizer: Any) -> None:
        super().__init__()
        self.text = ""
        self.rewards: list[float] = []
        self.context = self._with_texts(context, tokenizer)

    def _with_texts(self, context: TokenContext, tokenizer: Any) -> Any:
        """Return a copy of a context that keeps the text of each message."""
        kept: Any = copy.copy(context)
        if isinstance(context, TemplateContext):  # each episode copies it
            vars(kept)["encode"] = self._keep_text(context.shown_text, tokenizer)
            return kept

        def with_tools(schemas: Sequence[Mapping[str, Any]]) -> Any:
            found = context.with_tools(schemas)
            if found is None:
                return None
            tools: Any = copy.copy(found)
            tools.context = self._with_texts(found.context, tokenizer)
            tools.extend = self._keep_text(found.extend_text, tokenizer)
            return tools

        vars(kept).update(
            first=self._keep_text(context.first_text, tokenizer),
            extend=self._keep_text(context.extend_text, tokenizer),
            with_tools=with_tools,
        )
        return kept

    def _keep_text(self, text: Callable[..., str], tokenizer: Any) -> Callable[..., list[int]]:
        def encode(*args: Any, **kwargs: Any) -> list[int]:
            self.text = text(*args, **kwargs)
            return list(tokenizer.encode(self.text, add_special_tokens=False))

        return encode

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        """Act as the policy of the episode: wait for the response that RL2 sampled."""
        generation: Generation = await self.wait()
        return generation

    def on_turn(self, turn: Turn) -> None:
        """Record a reward."""
        self.rewards.append(turn.reward)


def read_response(text: str, tokenizer: Any, stop_texts: Sequence[str]) -> Generation:
    """Return a response as a generation; it counts as cut unless it ends where the engine stops.

    Args:
        text: The response with special tokens.
        tokenizer: Tokenizer of the model.
        stop_texts: Texts of stop tokens, and stop strings.
    """
    ids = tokenizer.encode(text, add_special_tokens=False)
    ended = any(text.endswith(stop) for stop in stop_texts)
    return Generation(list(ids), None, "stop" if ended else "length")
