"""Batched sampling from a causal LM: one forward pass serves many episodes.

`BatchingPolicy` is the `Policy` of the reference trainer. Each running episode awaits `generate`. All pending
requests are sampled in one left-padded batch, and the KV cache of each episode is kept, so the cost of a turn
depends on its new tokens only. Equal prompts are processed once, and rows leave the batch as responses end.
Random numbers are drawn per request, not per batch: a request gives the same response in any batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from transformers import DynamicCache

from gem_core._util.seeds import derive_rng
from gem_core.engines.batching import Batcher
from gem_core.rollout.policy import Generation
from gem_core.rollout.trajectory import FinishReason
from gem_core.rollout.vision import ImageProcessor
from gem_core.rollout.vision_model import image_inputs

_MASKED = float("-inf")


class _Prefix(NamedTuple):
    """The tokens of an episode in the KV cache: one row of the keys and values of a batch."""

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
        seed: Random seed; with request id and prompt length it determines a response.
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

    @property
    def takes_images(self) -> bool:
        """Whether the policy takes images."""
        return self.image_processor is not None

    async def generate(
        self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str, images: Sequence[str] = ()
    ) -> Generation:
        """Sample one response; see `gem_core.rollout.Policy`."""
        return await self._batcher(_Request(list(prompt_ids), max_tokens, request_id, tuple(images)))

    def forget(self) -> None:
        """Drop the KV caches; required after the weights changed or the episodes ended."""
        self._prefixes.clear()

    def forget_request(self, request_id: str) -> None:
        """Drop the KV cache of an episode that has ended."""
        self._prefixes.pop(request_id, None)

    async def _sample_all(self, requests: list[_Request]) -> list[Generation | Exception]:
        results: dict[int, Generation | Exception] = {}
        # Rows of similar length share a batch, so that little of it is padding.
        order = sorted(range(len(requests)), key=lambda number: len(requests[number].prompt_ids))
        for start in range(0, len(order), self.max_batch):
            numbers = order[start : start + self.max_batch]
            batch = [requests[number] for number in numbers]
            try:
                self.sample(batch)
            except Exception as error:
                results |= dict.fromkeys(numbers, error)
            else:
                for number, request in zip(numbers, batch, strict=True):
                    results[number] = Generation(request.token_ids, request.logprobs, request.finish_reason)
        return [results[number] for number in range(len(requests))]

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
        # Equal prompts, such as the first prompts of a group, are processed once.
        prompts: dict[tuple[tuple[int, ...], tuple[str, ...]], int] = {}
        unique: list[_Request] = []
        prompt_of = []
        for request in requests:
            prompt = prompts.setdefault((tuple(request.prompt_ids), request.images), len(prompts))
            prompt_of.append(prompt)
            if prompt == len(unique):
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
        cache, logits = output.past_key_values, output.logits[:, -1]
        if len(unique) < len(requests):
            copies = torch.tensor(prompt_of, device=device)
            cache.reorder_cache(copies)
            logits, mask, positions = logits[copies], mask[copies], positions[..., copies, :]

        columns = _Columns(past, width, [cached[prompt] for prompt in prompt_of])
        rows = requests
        generators = [
            derive_rng(self.seed, request.request_id, len(request.prompt_ids), sep="/")
            for request in requests
        ]
        running = list(range(len(rows)))
        while True:
            uniforms = [0.0] * len(rows)
            for row in running:
                uniforms[row] = generators[row].random()
            tokens, logprobs = self._draw(logits, torch.tensor(uniforms, dtype=torch.float64, device=device))
            sampled, sampled_logprobs = tokens.tolist(), logprobs.tolist()
            previous, running = running, []
            for row in previous:
                request, token = rows[row], sampled[row]
                request.token_ids.append(token)
                request.logprobs.append(sampled_logprobs[row])
                if token in self.eos_token_ids:
                    request.finish_reason = "stop"
                elif len(request.token_ids) < request.max_tokens:
                    running.append(row)
            if not running:
                break
            ids = tokens[:, None]
            step = positions.new_zeros(len(rows), 1)
            step[previous] = 1  # finished rows stay within the model's positions
            positions = positions[..., -1:] + step
            if len(running) <= len(rows) // 2:  # continue without the finished rows
                finished = sorted(set(range(len(rows))) - set(running))
                self._keep(rows, finished, cache, columns)
                left = torch.tensor(running, device=device)
                cache.reorder_cache(left)
                ids, mask, positions = ids[left], mask[left], positions[..., left, :]
                rows, generators = [rows[row] for row in running], [generators[row] for row in running]
                columns = columns._replace(cached=[columns.cached[row] for row in running])
                running = list(range(len(rows)))
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
            output = self._forward(ids, mask, positions, cache)
            cache, logits = output.past_key_values, output.logits[:, -1]
        self._keep(rows, range(len(rows)), cache, columns)

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
                _, here, there = batches.setdefault(id(prefix.layers), (prefix.layers, [], []))
                here.append(row)
                there.append(prefix.row)

        def stack(layer: int, part: int) -> torch.Tensor:
            blocks = [(layers[layer][part], here, there) for layers, here, there in batches.values()]
            first = blocks[0][0]
            joined = first.new_zeros((len(prefixes), first.shape[1], past, first.shape[3]))
            for block, here, there in blocks:
                width = min(past, block.shape[2])  # only padding of these rows is cut off
                joined[here, :, past - width :] = block[there, :, block.shape[2] - width :]
            return joined

        layer_count = max((len(layers) for layers, _, _ in batches.values()), default=0)
        for layer in range(layer_count):
            cache.update(stack(layer, 0), stack(layer, 1), layer)
        return cache

    def _keep(self, requests: list[_Request], rows: Sequence[int], cache: Any, columns: _Columns) -> None:
        """Keep the keys and values of these rows of the batch for the next turns of their episodes."""
        if not self.reuse_prefix:
            return
        layers = cache_layers(cache)
        past, width = columns.past, columns.width
        kept = []
        for row in rows:
            request, cached = requests[row], columns.cached[row]
            new_length = len(request.prompt_ids) - cached
            # The model has not processed the last sampled token yet, unless other rows continued.
            response = min(len(request.token_ids), layers[0][0].shape[2] - past - width)
            kept.append(
                [
                    *range(past - cached, past),
                    *range(past + width - new_length, past + width + response),
                ]
            )
        longest = max(map(len, kept))
        device = layers[0][0].device
        index = torch.tensor([[0] * (longest - len(some)) + some for some in kept], device=device)
        which = torch.tensor(rows, device=device)[:, None]

        def pick(states: torch.Tensor) -> torch.Tensor:
            return states.transpose(1, 2)[which, index].transpose(1, 2)

        block = [(pick(keys), pick(values)) for keys, values in layers]
        for number, (row, some) in enumerate(zip(rows, kept, strict=True)):
            request = requests[row]
            token_ids = (request.prompt_ids + request.token_ids)[: len(some)]
            self._prefixes[request.request_id] = _Prefix(token_ids, block, number)


def cache_layers(cache: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the keys and values per layer, for the cache classes of transformers 4 and 5."""
    if hasattr(cache, "layers"):
        return [(layer.keys, layer.values) for layer in cache.layers]
    return list(zip(cache.key_cache, cache.value_cache, strict=True))


def full_attention(config: Any) -> bool:
    """Return whether every layer attends to the whole context, which makes a joined cache exact."""
    kinds = getattr(config.get_text_config(), "layer_types", None) or ["full_attention"]
    return set(kinds) == {"full_attention"}
