"""The objective of the reference trainer, exactly.

For trainable episodes with response tokens y_k (k runs over all response tokens of the batch, N of
them), log-probabilities logp_k under the current weights, old_logp_k under the weights that sampled
and the advantage A_k of the token's turn, one minibatch adds

    token-mean   loss = -(1/N) * sum_k A_k * ratio_k
    turn-mean    loss = -(1/M) * sum_turns mean_{k in turn} A_k * ratio_k        (M turns)

with ratio_k = exp(logp_k - old_logp_k), clipped as in PPO when `clip` is given. While the weights
are those that sampled, ratio_k = 1 and the gradient is that of -(1/N) * sum_k A_k * logp_k: the
gradient that every trainer plugin is compared with (`policy_gradient`). Prompt and observation
tokens, pads and untrainable episodes contribute nothing, neither to the sum nor to N. Log-probs are
those of the distribution that was sampled from: logits divided by the temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import torch

from gem_core.errors import ConfigError
from gem_core.rollout.rows import rows_of
from gem_core.rollout.trajectory import Episode, Row
from gem_core.rollout.vision import ImageProcessor
from gem_core.rollout.vision_model import image_inputs

LossScale: TypeAlias = Literal["token-mean", "turn-mean"]
Rows: TypeAlias = Literal["auto", "episode", "turn"]


@dataclass
class Batch:
    """Rows of tokens, right-padded; every tensor has shape (rows, tokens).

    Attributes:
        token_ids: int64.
        attention_mask: int64, 1 on tokens, 0 on padding.
        response_mask: float32, 1.0 on response tokens, 0.0 elsewhere.
        turn_ids: int64, number of the turn within the batch on response tokens, -1 elsewhere.
        logprobs: float32, what the sampler reported, 0.0 elsewhere.
        advantages: float32, the turn's advantage on its response tokens, 0.0 elsewhere.
        images: Data URLs of the images of each row, whose places are in `token_ids`.
        image_processor: Makes model inputs of them; None where there are none.
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
        """The given rows, without columns that are padding in all of them."""
        width = int(self.attention_mask[rows].sum(1).max())
        cut = self._with(lambda tensor: tensor[rows, :width])
        return replace(cut, images=[self.images[row] for row in rows])

    def to(self, device: Any) -> Batch:
        """The same batch on another device."""
        return self._with(lambda tensor: tensor.to(device))

    def seen_by(self, model: Any) -> dict[str, torch.Tensor]:
        """What a vision-language model is given beside the tokens; nothing where no row has an image.

        Raises:
            ConfigError: There are images, and the batch was made without `image_processor`.
        """
        if not any(self.images):
            return {}
        if self.image_processor is None:
            raise ConfigError("the episodes hold images; give make_batch the context's image_processor")
        return image_inputs(model, self.image_processor, self.token_ids, self.attention_mask, self.images)

    def with_advantages(self, episodes: Sequence[Episode]) -> Batch:
        """Return the same batch with the advantages that the turns have now.

        Args:
            episodes: The trainable episodes the batch was made of, in the same order.
        """
        of_turns = [turn.advantage or 0.0 for episode in episodes for turn in episode.turns]
        # The number of a turn is its index here; -1, off the responses, is the 0 at the end.
        return replace(self, advantages=torch.tensor([*of_turns, 0.0], dtype=torch.float32)[self.turn_ids])

    def chunks(self, max_tokens: int) -> Iterator[Batch]:
        """The parts that `row_chunks` names."""
        for rows in self.row_chunks(max_tokens):
            yield self.select(rows)

    def row_chunks(self, max_tokens: int) -> Iterator[list[int]]:
        """Rows in parts of at most `max_tokens` tokens, padding counted, but at least one row each."""
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
        """The same batch with every tensor changed."""
        held: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = {name: change(value) for name, value in held.items() if isinstance(value, torch.Tensor)}
        return Batch(**held | changed)


class TokenScores(NamedTuple):
    """What one forward pass says about every token; shape (rows, tokens), column 0 is 0."""

    logprobs: torch.Tensor
    """Of each token given those before it, float32."""
    entropy: torch.Tensor | None
    """Of the distribution the token was drawn from, in nats; None when not asked for."""
    distribution: torch.Tensor
    """Log-probabilities of the whole vocabulary in front of each response token, (response tokens,
    vocabulary), rows in order."""
    hidden: torch.Tensor | None
    """Last hidden state per token, (rows, tokens, width); None when not asked for."""


def make_batch(
    episodes: Iterable[Episode], *, rows: Rows = "auto", image_processor: ImageProcessor | None = None
) -> Batch:
    """Lay out the trainable episodes as rows, on the CPU.

    Args:
        episodes: Episodes; those that are not trainable are skipped. A turn without an advantage counts as
            one with advantage 0.
        rows: "episode" for one row per episode, "turn" for one row per turn, "auto" for episode rows
            wherever the context mode allows them. All give the same gradient.
        image_processor: `AppendContext.image_processor` of the context, for episodes with images.
    """
    trainable = [episode for episode in episodes if episode.trainable]
    laid_out: list[Row] = []
    turn_ids: list[list[int]] = []
    turns = 0
    for episode in trainable:
        kind = ("episode" if episode.context_mode == "append" else "turn") if rows == "auto" else rows
        for row in rows_of(episode, kind):
            first = turns + row.turns.start
            laid_out.append(row)
            turn_ids.append([first + turn if turn >= 0 else -1 for turn in row.turn_ids])
        turns += len(episode.turns)
    width = max(map(len, laid_out), default=0)

    def stack(columns: Iterable[Sequence[float]], fill: float, dtype: torch.dtype) -> torch.Tensor:
        padded = [[*column, *[fill] * (width - len(column))] for column in columns]
        return torch.tensor(padded, dtype=dtype).reshape(len(laid_out), width)

    lengths = torch.tensor([len(row) for row in laid_out])
    turn_ids_tensor = stack(turn_ids, -1, torch.int64)
    return Batch(
        token_ids=stack((row.token_ids for row in laid_out), 0, torch.int64),
        attention_mask=(torch.arange(width)[None] < lengths[:, None]).long().reshape(len(laid_out), width),
        response_mask=(turn_ids_tensor >= 0).float(),
        turn_ids=turn_ids_tensor,
        logprobs=stack((row.logprobs_or_zeros() for row in laid_out), 0.0, torch.float32),
        advantages=torch.zeros(len(laid_out), width),
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
) -> TokenScores:
    """One forward pass over the batch, with gradients unless the caller switched them off.

    Only the positions before a response token go through the vocabulary layer.
    """
    targets = batch.response_mask[:, 1:] > 0
    # The logits before a token are those that it was drawn from. Picking the positions in front of
    # the vocabulary layer, and not behind it, works for every architecture and saves most of the
    # cost: few tokens of a long episode are responses.
    head = model.get_output_embeddings()
    handle = head.register_forward_pre_hook(lambda _, inputs: (inputs[0][:, :-1][targets][None],))
    try:
        output = model(
            input_ids=batch.token_ids,
            attention_mask=batch.attention_mask,
            use_cache=False,
            output_hidden_states=hidden,
            **batch.seen_by(model),
        )
    finally:
        handle.remove()
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
        output.hidden_states[-1] if hidden else None,
    )


def compute_logprobs(model: Any, batch: Batch, *, temperature: float = 1.0) -> torch.Tensor:
    """Log-probability of every response token, (rows, tokens), 0 elsewhere."""
    return score_tokens(model, batch, temperature=temperature).logprobs


def policy_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    turn_ids: torch.Tensor | None = None,
    scale: LossScale = "token-mean",
    clip: float | None = None,
    denominator: float | None = None,
) -> torch.Tensor:
    """The policy loss of the module's docstring, a scalar.

    Args:
        logprobs: Under the current weights, (rows, tokens).
        old_logprobs: Under the weights that sampled; no gradient flows into them.
        advantages: Per token.
        mask: 1 on response tokens.
        turn_ids: Needed for "turn-mean": the turn of each response token, -1 elsewhere.
        scale: "token-mean" or "turn-mean".
        clip: PPO's epsilon; None takes the ratio as it is.
        denominator: N (or M) of the whole minibatch when this is only a part of it; None counts
            the tokens (or turns) given.
    """
    ratio = (logprobs - old_logprobs.detach()).exp()
    gain = advantages * ratio
    if clip is not None:
        gain = torch.minimum(gain, advantages * ratio.clamp(1 - clip, 1 + clip))
    weights = token_weights(mask, turn_ids, scale)
    total = weights.sum() if denominator is None else denominator
    return -(gain * weights).sum() / total


def token_weights(mask: torch.Tensor, turn_ids: torch.Tensor | None, scale: LossScale) -> torch.Tensor:
    """Weight of each token before the division: 1, or 1 / (length of its turn) for "turn-mean"."""
    if scale == "token-mean":
        return mask
    if turn_ids is None:
        raise ValueError("turn-mean needs turn_ids")
    keys = turn_ids.clamp(min=0)
    lengths = mask.new_zeros(int(keys.max()) + 1).index_add(0, keys.flatten(), mask.flatten())
    return mask / lengths[keys].clamp(min=1)


def policy_gradient(
    model: Any,
    episodes: Iterable[Episode],
    *,
    temperature: float = 1.0,
    rows: Rows = "auto",
    max_tokens: int = 16384,
    image_processor: ImageProcessor | None = None,
) -> dict[str, torch.Tensor]:
    """Gradient of ``-(1/N) * sum_k A_k * logp_k`` over all response tokens of the episodes.

    Advantages are read from `Turn.advantage`. The model's own `.grad` fields are left alone.

    Returns:
        Parameter name to gradient, for the parameters that need one.
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
