"""`TinyOptions`: every option of a tiny model, checked before anything is created."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Literal

from gem_core._util.checks import expected
from gem_core._util.options import Bounds, check_options


@dataclass(frozen=True)
class TinyOptions:
    """Options of a tiny model; the same options give the same model.

    The minimum of `vocab_size` is one token per byte plus five special tokens. A short warm start does not
    play more than it learns from.

    Raises:
        ConfigError: A value is out of range.
    """

    title: ClassVar = "model"

    env: Annotated[
        tuple[str, ...],
        "environments that the model will play, whose texts and format it learns: ids, or 'ID(key=value)'",
    ] = ("game:GuessTheNumber-v0-easy",)
    context: Annotated[
        Literal["append", "rebuild"], "prompts of the random play, as in the options of a rollout"
    ] = "append"
    hidden_size: Annotated[int, "width, a multiple of 32, the size of a head", Bounds(32)] = 64
    layers: Annotated[int, "number of decoder layers", Bounds(1)] = 2
    vocab_size: Annotated[int, "most tokens in the vocabulary; 261 for one per byte", Bounds(261)] = 2048
    max_positions: Annotated[int, "longest context in tokens", Bounds(1)] = 4096
    warm_start_steps: Annotated[
        int, "supervised training steps on random legal actions; 0 keeps the weights random", Bounds(0)
    ] = 600
    warm_start_tokens: Annotated[int, "tokens of random play to learn from", Bounds(1)] = 131_072
    warm_start_batch: Annotated[int, "tokens per supervised step, but at least an episode", Bounds(1)] = 2048
    warm_start_learning_rate: Annotated[float, "learning rate of the warm start", Bounds(above=0)] = 3e-3
    random_calls: Annotated[
        float,
        "probability of a tool call in random play, if the environment has tools",
        Bounds(0, 1),
    ] = 0.5
    corpus_episodes: Annotated[int, "random episodes per environment for the tokenizer", Bounds(1)] = 200
    seed: Annotated[int, "seed of the weights and the random play"] = 0

    def __post_init__(self) -> None:
        if not self.env:
            raise expected("env", self.env, "at least one environment id")
        check_options(self)
        if self.hidden_size % 32:
            raise expected("hidden_size", self.hidden_size, "a multiple of 32")

    def to_dict(self) -> dict[str, Any]:
        """Return the options as JSON-serializable data."""
        return {**asdict(self), "env": list(self.env)}
