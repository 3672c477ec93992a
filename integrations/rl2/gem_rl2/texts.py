"""rl-square 0.0.2: RL2 samples by itself, and shows an environment the texts of its responses.

The tokens of a training row are RL2's own: the sampled ones, and those of the texts that come from here.
An episode of gem_core plays along and is told each response; its ids are those of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gem_core.core import Observation
from gem_core.rollout import Context, Generation, Turn
from gem_core.rollout.trajectory import ContextMode
from gem_rl2.play import Play


class TextContext:
    """A context that remembers the text which it encoded last. For one episode."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.text = ""

    @property
    def mode(self) -> ContextMode:
        """That of the context inside."""
        return self._context.mode

    @property
    def image_processor(self) -> None:
        """RL2's batches have text only."""
        return None

    def first(self, observation: Observation) -> list[int]:
        """The whole prompt of the first turn."""
        self.text = self._context.first_text(observation)
        return self._context.first(observation)

    def extend(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> list[int]:
        """What comes after a response."""
        self.text = self._context.extend_text(observation, response_ids, role=role)
        return self._context.extend(observation, response_ids, role=role)

    def first_text(self, observation: Observation) -> str:
        """As of the context inside."""
        return self._context.first_text(observation)

    def extend_text(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> str:
        """As of the context inside."""
        return self._context.extend_text(observation, response_ids, role=role)

    def decode(self, response_ids: Sequence[int]) -> str:
        """The response as the environment gets it."""
        return self._context.decode(response_ids)


class TextPlay(Play):
    """An episode whose responses come one by one, as texts.

    Attributes:
        context: Knows the text that RL2 has to append.
        rewards: Of the turns so far.
    """

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = TextContext(context)
        self.rewards: list[float] = []

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        """The policy of the episode: waits for what RL2 sampled."""
        generation: Generation = await self.wait()
        return generation

    def on_turn(self, turn: Turn) -> None:
        """Note a reward."""
        self.rewards.append(turn.reward)


def read_response(text: str, tokenizer: Any, stop_texts: Sequence[str]) -> Generation:
    """A response as a generation: without an end that the engine stops at, it was cut.

    Args:
        text: With special tokens.
        tokenizer: Of the model.
        stop_texts: Texts of stop tokens, and stop strings.
    """
    ids = tokenizer.encode(text, add_special_tokens=False)
    ended = any(text.endswith(stop) for stop in stop_texts)
    return Generation(list(ids), None, "stop" if ended else "length")
