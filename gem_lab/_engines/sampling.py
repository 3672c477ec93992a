"""Batched sampling from a causal LM: one forward pass serves many episodes.

`BatchingPolicy` is the `Policy` of the reference trainer. Each running episode awaits `generate`. All pending
requests are sampled in one left-padded batch, and the KV cache of each episode is kept, so the cost of a turn
depends on its new tokens only. Equal sequences share a row, and rows leave the batch as responses end.
Random numbers are drawn per request, not per batch: a request gives the same response in any batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from transformers import DynamicCache

from gem_chat._vision import ImageProcessor
from gem_chat._vision_model import image_inputs
from gem_core._util.seeds import derive_int
from gem_core.rollout import Generation
from gem_core.rollout._turn import FinishReason
from gem_lab._engines.batching import Batcher
from gem_lab._engines.draws import Draws

_MASKED = float("-inf")


class _Prefix(NamedTuple):
    """Tokens of an episode whose keys and values are kept, in one row of those of a batch."""

    token_ids: list[int]
    layers: list[tuple[torch.Tensor, torch.Tensor]]
    """Per layer: keys and values of the whole batch, each (rows, heads, tokens, head size). Rows are padded
    on the left, and the prefixes of the batch share the tensors."""
    row: int


class _Columns(NamedTuple):
    """Layout of a batch: [left padding, cached tokens][left padding, new tokens][response ...]."""

    past: int
    """Number of columns for cached tokens."""
    width: int
    """Number of columns for new tokens."""
    cached: list[int]
    """Number of cached tokens by row."""


@dataclass
class _Request:
    prompt_ids: list[int]
    max_tokens: int
    request_id: str
    draw: str
    images: tuple[str, ...] = ()
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: FinishReason = "length"


class BatchingPolicy:
    """Samples the pending requests of all running episodes in one batch.

    Args:
        model: A Hugging Face causal LM. It is in evaluation mode while it samples.
        eos_token_ids: Ids that end a response; the sampled one is part of the response.
        pad_token_id: Id for padding; any valid id, because padding is masked.
        temperature: Sampling temperature, by which the logits are divided; above 0.
        top_p: Nucleus sampling: sample from the smallest set of tokens with this probability; 1 keeps all.
        top_k: Number of most likely tokens to sample from; 0 keeps all tokens.
        seed: Random seed; with the name of the request (`Draws`) it determines a response.
        max_batch: Maximum number of rows in one forward pass.
        image_processor: The context's `image_processor`, for a vision-language model; None means text only.
        reuse_prefix: Whether to keep each episode's KV cache between turns. It occupies memory until
            `forget`.

    Log-probabilities are computed under the distribution that was sampled from, after temperature, top_k, and
    top_p.
    """

    def __init__(
        self,
        model: Any,
        *,
        eos_token_ids: Iterable[int],
        pad_token_id: int,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int | str = 0,
        max_batch: int = 512,
        reuse_prefix: bool = True,
        image_processor: ImageProcessor | None = None,
    ) -> None:
        self.model = model
        self.eos_token_ids = frozenset(eos_token_ids)
        self.pad_token_id = pad_token_id
        self.temperature = temperature
        self.top_p = top_p
        self.top_k = top_k
        self.seed = seed
        self.max_batch = max_batch
        self.reuse_prefix = reuse_prefix and full_attention(model.config)
        self.image_processor = image_processor
        self._batcher = Batcher(self._sample_all)
        self._prefixes: dict[str, _Prefix] = {}
        self._draws = Draws()

    @property
    def takes_images(self) -> bool:
        """Whether the policy takes images."""
        return self.image_processor is not None

    async def generate(
        self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str, images: Sequence[str] = ()
    ) -> Generation:
        """Sample one response; see `gem_core.rollout.Policy`."""
        draw = self._draws.name(request_id, len(prompt_ids))
        return await self._batcher(_Request(list(prompt_ids), max_tokens, request_id, draw, tuple(images)))

    def forget(self) -> None:
        """Drop the KV caches; required after the weights changed or the episodes ended."""
        self._prefixes.clear()
        self._draws.clear()

    def forget_request(self, request_id: str) -> None:
        """Drop the KV cache of an episode that has ended."""
        self._prefixes.pop(request_id, None)
        self._draws.forget(request_id)

    async def _sample_all(self, requests: list[_Request]) -> list[Generation | Exception]:
        results: dict[int, Generation | Exception] = {}
        # Rows of similar length share a batch, so that little of it is padding.
        order = sorted(range(len(requests)), key=lambda index: len(requests[index].prompt_ids))
        for start in range(0, len(order), self.max_batch):
            indices = order[start : start + self.max_batch]
            batch = [requests[index] for index in indices]
            try:
                self.sample(batch)
            except Exception as error:
                results |= dict.fromkeys(indices, error)
            else:
                for index, request in zip(indices, batch, strict=True):
                    results[index] = Generation(request.token_ids, request.logprobs, request.finish_reason)
        return [results[index] for index in range(len(requests))]

    # -- one batch ----------------------------------------------------------------------------

    @torch.inference_mode()
    def sample(self, requests: list[_Request]) -> None:
        """Sample one response for each request, in one batch."""
        training = self.model.training
        self.model.eval()
        try:
            self._sample(requests)
        finally:
            self.model.train(training)

    def _sample(self, requests: list[_Request]) -> None:
        device = self.model.device
        # Equal sequences share a row: equal prompts, such as the first prompts of a group, and responses to
        # them while they are equal.
        prompts: dict[tuple[tuple[int, ...], tuple[str, ...]], int] = {}
        unique: list[_Request] = []
        rows = []
        for request in requests:
            row = prompts.setdefault((tuple(request.prompt_ids), request.images), len(prompts))
            rows.append(row)
            if row == len(unique):
                unique.append(request)
        prefixes = [self._prefix(request) for request in unique]
        cached = [0 if prefix is None else len(prefix.token_ids) for prefix in prefixes]
        past = max(cached)
        new_ids = [request.prompt_ids[length:] for request, length in zip(unique, cached, strict=True)]
        width = max(map(len, new_ids))
        ids = torch.tensor([[self.pad_token_id] * (width - len(new)) + new for new in new_ids])
        mask = torch.tensor(
            [
                [0] * (past - length) + [1] * length + [0] * (width - len(new)) + [1] * len(new)
                for new, length in zip(new_ids, cached, strict=True)
            ]
        )
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, past:]
        ids, mask, positions = ids.to(device), mask.to(device), positions.to(device)
        seen, positions = self._look(unique, ids, mask[:, past:], positions)
        output = self._forward(ids, mask, positions, self._join(prefixes, past), **seen)
        columns = _Columns(past, width, cached)
        streams = self._streams(requests)
        running = requests
        ended: list[tuple[_Request, int]] = []  # with their rows
        while True:
            cache, logits = output.past_key_values, output.logits[:, -1]
            if rows != list(range(len(logits))):
                logits = logits[torch.tensor(rows, device=device)]
            uniforms = torch.from_numpy(_uniforms(streams, len(running[0].token_ids))).to(device)
            tokens, logprobs = self._draw(logits, uniforms)
            kept: list[int] = []
            children: dict[tuple[int, int], int] = {}  # by row and next token
            child_of = []
            for index, (request, row, token, logprob) in enumerate(
                zip(running, rows, tokens.tolist(), logprobs.tolist(), strict=True)
            ):
                request.token_ids.append(token)
                request.logprobs.append(logprob)
                if token in self.eos_token_ids:
                    request.finish_reason = "stop"
                elif len(request.token_ids) < request.max_tokens:
                    kept.append(index)
                    child_of.append(children.setdefault((row, token), len(children)))
                    continue
                ended.append((request, row))
            if not kept:
                break
            streams, running = streams[kept], [running[index] for index in kept]
            parents = [row for row, _ in children]
            ids = torch.tensor([[token] for _, token in children], device=device)
            at = torch.tensor(parents, device=device)
            if len(set(parents)) < len(parents) or len(parents) <= len(mask) // 2:
                self._keep(ended, cache, columns)
                ended = []
                cache.reorder_cache(at)
                mask, positions = mask[at], positions[..., at, -1:] + 1
                columns = columns._replace(cached=[columns.cached[row] for row in parents])
                rows = child_of
            else:  # the rows of ended responses continue with padding, at the same position
                tokens_of_rows = ids.new_full((len(mask), 1), self.pad_token_id)
                tokens_of_rows[at] = ids
                step = ids.new_zeros(len(mask), 1)
                step[at] = 1
                ids, positions = tokens_of_rows, positions[..., -1:] + step
                rows = [parents[child] for child in child_of]
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
            output = self._forward(ids, mask, positions, cache)
        self._keep(ended, cache, columns)

    def _streams(self, requests: list[_Request]) -> npt.NDArray[np.uint64]:
        """Return the key of each request's random numbers."""
        keys = [derive_int(self.seed, request.draw, sep="/", bits=64) for request in requests]
        return np.array(keys, dtype=np.uint64)

    def _forward(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: Any, **seen: torch.Tensor
    ) -> Any:
        return self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
            **seen,
        )

    def _look(
        self, requests: list[_Request], ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Return the model inputs for the images of a batch, and the positions including images."""
        rows = [row for row, request in enumerate(requests) if request.images]
        if not rows or self.image_processor is None:
            return {}, positions
        images = [requests[row].images for row in rows]
        seen = image_inputs(self.model, self.image_processor, ids[rows], mask[rows], images)
        positions = positions[None].repeat(3, 1, 1)
        positions[:, rows] = seen.pop("position_ids")
        return seen, positions

    def _draw(self, logits: torch.Tensor, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Sample a token per row by inverse transform of one uniform number; return it and its log-prob."""
        logits = logits.float() / self.temperature
        if self.top_k and self.top_k < logits.shape[-1]:
            smallest = logits.topk(self.top_k, dim=-1).values[:, -1:]
            logits = logits.masked_fill(logits < smallest, _MASKED)
        if self.top_p < 1:
            ordered, order = logits.softmax(-1).sort(dim=-1, descending=True)
            beyond = ordered.cumsum(-1) - ordered >= self.top_p
            logits = logits.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), _MASKED)
        logprobs = logits.log_softmax(-1)
        cumulative = logprobs.double().exp().cumsum(-1)
        targets = uniforms[:, None] * cumulative[:, -1:]
        tokens = torch.searchsorted(cumulative, targets, right=True).squeeze(1)
        tokens = tokens.clamp(max=logits.shape[-1] - 1)
        return tokens, logprobs.gather(1, tokens[:, None]).squeeze(1)

    # -- prefix cache -------------------------------------------------------------------------

    def _prefix(self, request: _Request) -> _Prefix | None:
        prefix = self._prefixes.get(request.request_id)
        if prefix is None or request.images:  # positions with images do not count tokens
            return None
        length = len(prefix.token_ids)
        if length < len(request.prompt_ids) and request.prompt_ids[:length] == prefix.token_ids:
            return prefix
        return None  # the context was rebuilt: start over

    def _join(self, prefixes: list[_Prefix | None], past: int) -> DynamicCache:
        """Stack the keys and values of the episodes, left-padded to `past` columns."""
        cache = DynamicCache()
        batches: dict[int, tuple[list[tuple[torch.Tensor, torch.Tensor]], list[int], list[int]]] = {}
        for row, prefix in enumerate(prefixes):
            if prefix is not None:
                _, target_rows, source_rows = batches.setdefault(id(prefix.layers), (prefix.layers, [], []))
                target_rows.append(row)
                source_rows.append(prefix.row)

        def stack(layer: int, part: int) -> torch.Tensor:
            blocks = [
                (layers[layer][part], target_rows, source_rows)
                for layers, target_rows, source_rows in batches.values()
            ]
            first = blocks[0][0]
            joined = first.new_zeros((len(prefixes), first.shape[1], past, first.shape[3]))
            for block, target_rows, source_rows in blocks:
                width = min(past, block.shape[2])  # only padding of these rows is cut off
                joined[target_rows, :, past - width :] = block[source_rows, :, block.shape[2] - width :]
            return joined

        layer_count = max((len(layers) for layers, _, _ in batches.values()), default=0)
        for layer in range(layer_count):
            cache.update(stack(layer, 0), stack(layer, 1), layer)
        return cache

    def _keep(self, ended: list[tuple[_Request, int]], cache: Any, columns: _Columns) -> None:
        """Keep the keys and values of ended responses, given with their rows, for the next turns."""
        if not self.reuse_prefix or not ended:
            return
        places: dict[tuple[int, int], int] = {}  # by row and length
        kept: list[tuple[int, int, int, int]] = []
        block: list[tuple[torch.Tensor, torch.Tensor]] = []
        for request, row in ended:
            # The model has not processed the last sampled token.
            token_ids = [*request.prompt_ids, *request.token_ids[:-1]]
            place = places.setdefault((row, len(token_ids)), len(places))
            if place == len(kept):
                kept.append((row, columns.cached[row], len(token_ids), len(request.token_ids) - 1))
            self._prefixes[request.request_id] = _Prefix(token_ids, block, place)
        layers = cache_layers(cache)
        rows, cached, lengths, responses = torch.tensor(kept, device=layers[0][0].device).T[..., None]
        # From the right: the response, the prompt's new tokens, and, beyond their padding, the cached ones.
        back = torch.arange(int(lengths.max()), 0, -1, device=rows.device)
        new = lengths - cached
        index = torch.where(
            back <= new, columns.past + columns.width + responses - back, columns.past + new - back
        ).clamp(min=0)

        def pick(states: torch.Tensor) -> torch.Tensor:
            return states.transpose(1, 2)[rows, index].transpose(1, 2)

        block += [(pick(keys), pick(values)) for keys, values in layers]


def _uniforms(streams: npt.NDArray[np.uint64], position: int) -> npt.NDArray[np.float64]:
    """Return a random number in [0, 1) of each stream, by SplitMix64, whose state is a counter.

    Args:
        streams: Keys of the streams.
        position: Index of the random number in each stream.
    """
    bits = streams + np.uint64((position + 1) * 0x9E3779B97F4A7C15 % 2**64)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    uniforms: npt.NDArray[np.float64] = ((bits ^ (bits >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
    return uniforms


def cache_layers(cache: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the keys and values per layer, for the cache classes of transformers 4 and 5."""
    if hasattr(cache, "layers"):
        return [(layer.keys, layer.values) for layer in cache.layers]
    return list(zip(cache.key_cache, cache.value_cache, strict=True))


def full_attention(config: Any) -> bool:
    """Return whether every layer attends to the whole context, which makes a joined cache exact."""
    text = config.get_text_config()
    kinds = getattr(text, "layer_types", None)
    if kinds is None:  # every layer is the same, such as Mistral's with a sliding window
        return all(getattr(text, name, None) is None for name in ("sliding_window", "attention_chunk_size"))
    return set(kinds) == {"full_attention"}
