"""rl-square 0.0.2, where RL2 samples by itself and passes the texts of its responses to an environment.

The tokens of a training row are RL2's own: the sampled tokens, and its encoding of the texts from here. An
episode of gem_core runs alongside and receives each response; its token ids are an encoding of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gem_core.core import Observation
from gem_core.rollout import Context, Generation, Turn
from gem_core.rollout.trajectory import ContextMode
from gem_rl2.play import Play


class TextContext:
    """A context of one episode that remembers the text that it encoded last.

    Attributes:
        text: Text that was encoded last.
        first_text: See `Context`.
        extend_text: See `Context`.
        decode: See `Context`.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.text = ""
        self.first_text = context.first_text
        self.extend_text = context.extend_text
        self.decode = context.decode

    @property
    def mode(self) -> ContextMode:
        """Mode of the wrapped context."""
        return self._context.mode

    @property
    def image_processor(self) -> None:
        """None, because RL2's batches contain only text."""
        return None

    def first(self, observation: Observation) -> list[int]:
        """Return the whole prompt of the first turn."""
        self.text = self._context.first_text(observation)
        return self._context.first(observation)

    def extend(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> list[int]:
        """Return the tokens that follow a response."""
        self.text = self._context.extend_text(observation, response_ids, role=role)
        return self._context.extend(observation, response_ids, role=role)


class TextPlay(Play):
    """An episode whose responses arrive one by one, as texts.

    Attributes:
        context: Context with the text that RL2 has to append.
        rewards: Rewards of the turns so far.
    """

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = TextContext(context)
        self.rewards: list[float] = []

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
