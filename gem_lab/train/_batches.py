"""Episodes as rows of tokens, and a model's scores of these tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from transformers import DynamicCache

from gem_chat._vision import ImageProcessor
from gem_chat._vision_model import image_inputs
from gem_core.errors import ConfigError
from gem_core.rollout import Episode, Row
from gem_core.rollout._rows import RowSplit
from gem_lab._engines.sampling import cache_layers, full_attention

_MIN_SAVED = 128
"""Minimum number of tokens that sharing a prompt must save, because it adds a forward pass."""


@dataclass
class Batch:
    """Rows of tokens, right-padded; every tensor has shape (rows, tokens).

    Attributes:
        token_ids: Tokens, int64.
        attention_mask: 1 on tokens and 0 on padding, int64.
        response_mask: 1.0 on response tokens and 0.0 elsewhere, float32.
        turn_ids: Index of the turn within the batch on response tokens and -1 elsewhere, int64.
        logprobs: Log-probabilities reported by the sampler on response tokens and 0.0 elsewhere, float32.
        advantages: Advantage of the turn on its response tokens and 0.0 elsewhere, float32.
        images: Data URLs of the images of each row; their placeholders are in `token_ids`.
        image_processor: Converts the images to model inputs; None if there are no images.
    """

    token_ids: torch.Tensor
    attention_mask: torch.Tensor
    response_mask: torch.Tensor
    turn_ids: torch.Tensor
    logprobs: torch.Tensor
    advantages: torch.Tensor
    images: list[tuple[str, ...]]
    image_processor: ImageProcessor | None = None

    def __len__(self) -> int:
        return len(self.token_ids)

    def select(self, rows: Sequence[int]) -> Batch:
        """Return a batch of the given rows, without columns that are padding in all of them."""
        width = int(self.attention_mask[rows].sum(1).max())
        cut = self._with(lambda tensor: tensor[rows, :width])
        return replace(cut, images=[self.images[row] for row in rows])

    def to(self, device: Any) -> Batch:
        """Return the same batch on another device."""
        return self._with(lambda tensor: tensor.to(device))

    def seen_by(self, model: Any) -> dict[str, torch.Tensor]:
        """Return the image inputs of a vision-language model; empty if no row has an image.

        Raises:
            ConfigError: A row has images, but the batch was created without `image_processor`.
        """
        if not any(self.images):
            return {}
        if self.image_processor is None:
            raise ConfigError("the episodes hold images; pass the context's image_processor to make_batch")
        return image_inputs(model, self.image_processor, self.token_ids, self.attention_mask, self.images)

    def with_advantages(self, episodes: Sequence[Episode]) -> Batch:
        """Return the same batch with the current advantages of the turns.

        Args:
            episodes: Trainable episodes of the batch, in the same order.
        """
        per_turn = [turn.advantage or 0.0 for episode in episodes for turn in episode.turns]
        # Turn ids index this list; -1, outside of responses, selects the 0 at its end.
        return replace(self, advantages=torch.tensor([*per_turn, 0.0], dtype=torch.float32)[self.turn_ids])

    def chunks(self, max_tokens: int) -> Iterator[Batch]:
        """Yield batches of the rows that `row_chunks` yields."""
        for rows in self.row_chunks(max_tokens):
            yield self.select(rows)

    def row_chunks(self, max_tokens: int) -> Iterator[list[int]]:
        """Yield lists of rows with at most `max_tokens` tokens including padding, but at least one row."""
        lengths = self.attention_mask.sum(1).tolist()
        rows: list[int] = []
        for row in sorted(range(len(self)), key=lambda row: lengths[row]):
            if rows and lengths[row] * (len(rows) + 1) > max_tokens:
                yield rows
                rows = []
            rows.append(row)
        if rows:
            yield rows

    def _with(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
        """Return the batch with `change` applied to every tensor."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = {name: change(value) for name, value in values.items() if isinstance(value, torch.Tensor)}
        return Batch(**values | changed)


class TokenScores(NamedTuple):
    """Results of a forward pass for every token, of shape (rows, tokens); column 0 is 0."""

    logprobs: torch.Tensor
    """Log-probability of each token given the tokens before it, float32."""
    entropy: torch.Tensor | None
    """Entropy in nats of the distribution from which the token was drawn; None if not requested."""
    distribution: torch.Tensor
    """Log-probabilities of the whole vocabulary at each response token, of shape (response tokens,
    vocabulary), with the tokens ordered by row."""
    hidden: torch.Tensor | None
    """Last hidden state of each token but the last column, of shape (rows, tokens - 1, width); None if not
    requested."""


def make_batch(
    episodes: Iterable[Episode], *, rows: RowSplit = "auto", image_processor: ImageProcessor | None = None
) -> Batch:
    """Lay out the trainable episodes as rows, on the CPU.

    Args:
        episodes: Episodes; untrainable ones are skipped. A turn without an advantage counts as 0.
        rows: How to split the episodes into rows; see `Episode.rows`. Both give the same gradient.
        image_processor: `AppendContext.image_processor` of the context, for episodes with images.

    Returns:
        The batch, with rows in the order of the episodes.
    """
    trainable = [episode for episode in episodes if episode.trainable]
    laid_out: list[Row] = []
    turn_ids: list[list[int]] = []
    turns = 0
    for episode in trainable:
        for row in episode.rows(rows):
            laid_out.append(row)
            turn_ids.append([turns + row.turns[turn] if turn >= 0 else -1 for turn in row.turn_ids])
        turns += len(episode.turns)
    lengths = np.array([len(row) for row in laid_out], dtype=np.int64)
    width = int(lengths.max(initial=0))
    inside = np.arange(width) < lengths[:, None]

    def stack(columns: Iterable[Sequence[float]], fill: float, dtype: type) -> torch.Tensor:
        padded: npt.NDArray[Any] = np.full(inside.shape, fill, dtype)
        padded[inside] = np.fromiter(chain.from_iterable(columns), dtype, int(lengths.sum()))
        return torch.from_numpy(padded)

    turn_ids_tensor = stack(turn_ids, -1, np.int64)
    return Batch(
        token_ids=stack((row.token_ids for row in laid_out), 0, np.int64),
        attention_mask=torch.from_numpy(inside).long(),
        response_mask=(turn_ids_tensor >= 0).float(),
        turn_ids=turn_ids_tensor,
        logprobs=stack((row.logprobs_or_zeros() for row in laid_out), 0.0, np.float32),
        advantages=torch.zeros(inside.shape),
        images=[row.images for row in laid_out],
        image_processor=image_processor,
    ).with_advantages(trainable)


def score_tokens(
    model: Any,
    batch: Batch,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    hidden: bool = False,
    share_prompt: bool = False,
) -> TokenScores:
    """Run one forward pass over the batch, with gradients unless the caller disabled them.

    The vocabulary layer is applied only at the positions before response tokens.

    Args:
        model: Causal language model.
        batch: The rows, on the device of the model.
        temperature: Sampling temperature, by which the logits are divided.
        entropy: Whether to compute `TokenScores.entropy`.
        hidden: Whether to return `TokenScores.hidden`.
        share_prompt: Whether to process the tokens with which all rows begin only once. The results are equal
            up to rounding.
    """
    start = _shared_length(model, batch) if share_prompt else 0
    targets = batch.response_mask[:, 1:] > 0
    inputs = batch._with(lambda tensor: tensor[:, :-1])  # nothing is predicted from the last column
    # A token is drawn from the logits at the position before it. Selecting positions before the
    # vocabulary layer rather than after it works for every architecture and saves most of the cost,
    # because few tokens of a long episode are responses.
    selected = targets[:, start:]
    head = model.get_output_embeddings()
    handle = head.register_forward_pre_hook(lambda _, given: (given[0][selected][None],))
    arguments: dict[str, Any] = {"use_cache": False, **inputs.seen_by(model)}
    states = []
    try:
        if start:
            selected, rest = targets[:1, :start], selected  # no response token: no logits
            output = model(
                input_ids=inputs.token_ids[:1, :start], use_cache=True, output_hidden_states=hidden
            )
            selected = rest
            arguments = {"use_cache": True, "past_key_values": _expanded(output.past_key_values, len(batch))}
            if hidden:
                states.append(output.hidden_states[-1].expand(len(batch), -1, -1))
        output = model(
            input_ids=inputs.token_ids[:, start:],
            attention_mask=inputs.attention_mask,
            output_hidden_states=hidden,
            **arguments,
        )
    finally:
        handle.remove()
    if hidden:
        states.append(output.hidden_states[-1])
    distribution = (output.logits[0].float() / temperature).log_softmax(-1)
    chosen = distribution.gather(-1, batch.token_ids[:, 1:][targets][:, None]).squeeze(-1)

    def place(values: torch.Tensor) -> torch.Tensor:
        tokens = values.new_zeros(batch.token_ids.shape)
        tokens[:, 1:] = values.new_zeros(targets.shape).masked_scatter(targets, values)
        return tokens

    return TokenScores(
        place(chosen),
        place(-(distribution.exp() * distribution).sum(-1)) if entropy else None,
        distribution,
        torch.cat(states, dim=1) if hidden else None,
    )


def _shared_length(model: Any, batch: Batch) -> int:
    """Return the number of columns to process once; 0 if that would not save work."""
    if any(batch.images) or not full_attention(model.config):
        return 0
    different = (batch.token_ids != batch.token_ids[:1]).any(0)
    # The last column before a response stays in the rows, because the response is drawn from its logits.
    ends = different | (batch.response_mask > 0).any(0) | (batch.attention_mask == 0).any(0)
    start = int(ends.nonzero()[0]) - 1 if bool(ends.any()) else 0
    return start if start > 1 and start * (len(batch) - 1) >= _MIN_SAVED else 0


def _expanded(cache: Any, rows: int) -> DynamicCache:
    """Return a cache in which each of `rows` rows has the keys and values of the only row of `cache`."""
    expanded = DynamicCache()
    for index, layer in enumerate(cache_layers(cache)):
        keys, values = (states.expand(rows, -1, -1, -1) for states in layer)
        expanded.update(keys, values, index)
    return expanded


def compute_logprobs(model: Any, batch: Batch, *, temperature: float = 1.0) -> torch.Tensor:
    """Return the log-probability of every response token, of shape (rows, tokens), and 0 elsewhere."""
    return score_tokens(model, batch, temperature=temperature).logprobs


def policy_gradient(
    model: Any,
    episodes: Iterable[Episode],
    *,
    temperature: float = 1.0,
    rows: RowSplit = "auto",
    max_tokens: int = 16384,
    image_processor: ImageProcessor | None = None,
) -> dict[str, torch.Tensor]:
    """Return the gradient of ``-(1/N) * sum_k A_k * logp_k`` over all response tokens of the episodes.

    Advantages are read from `Turn.advantage`. The `.grad` fields of the model are unchanged.

    Args:
        model: Causal language model.
        episodes: Episodes; untrainable ones are skipped.
        temperature: Sampling temperature.
        rows: As in `make_batch`.
        max_tokens: Maximum number of tokens per forward pass, padding included.
        image_processor: As in `make_batch`.

    Returns:
        Maps the name of each parameter that requires a gradient to its gradient.
    """
    batch = make_batch(episodes, rows=rows, image_processor=image_processor)
    tokens = float(batch.response_mask.sum())
    parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
    total = {name: torch.zeros_like(value) for name, value in parameters.items()}
    for part in batch.chunks(max_tokens):
        part = part.to(model.device)
        logprobs = compute_logprobs(model, part, temperature=temperature)
        loss = -(part.advantages * logprobs * part.response_mask).sum() / tokens
        gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        for name, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                total[name] += gradient
    return total
