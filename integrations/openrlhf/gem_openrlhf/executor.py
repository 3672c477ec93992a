"""The agent of OpenRLHF's rollout workers: one call of gem_core's `run_episode` for each sample."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from openrlhf.utils.agent import AgentExecutorBase

from gem_core.errors import ConfigError
from gem_core.images import open_image
from gem_core.rollout import EnvPool, Episode, Generation, extra_stop_id
from gem_core.rollout.vision import ImageProcessor, processor_or_tokenizer, tokenizer_of
from gem_core.tasks import EVAL_SEEDS, TaskRow
from gem_openrlhf.labels import played_label, task_of
from gem_openrlhf.options import GemOptions


class EnginePolicy:
    """OpenRLHF's vLLM worker as a `gem_core.rollout.Policy`.

    Args:
        engine: The worker, with ``async generate(token_ids, sampling_params)``.
        sampling_params: vLLM's, for every turn; never changed, because OpenRLHF gives the same object
            to all samples of a prompt.
        stop_id: An id that ends a response and that the engine does not know of; None when it knows
            all.
        placeholder_id: What stands for images, and is never sampled; None for a model that sees none.
    """

    takes_images = True

    def __init__(
        self, engine: Any, sampling_params: Any, stop_id: int | None, placeholder_id: int | None = None
    ) -> None:
        self._engine = engine
        self._params = copy.deepcopy(sampling_params)
        # OpenRLHF asks for one token at least. vLLM then holds the end-of-turn token back at first, which is
        # another distribution than the one whose probabilities the loss takes.
        self._params.min_tokens = 0
        if stop_id is not None:
            self._params.stop_token_ids = [*(self._params.stop_token_ids or []), stop_id]
        if placeholder_id is not None:  # it stands for an image, and would be one too many
            self._params.logit_bias = {**(self._params.logit_bias or {}), placeholder_id: -100.0}
        self.extra_stop_id = stop_id

    async def generate(
        self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str, images: Sequence[str] = ()
    ) -> Generation:
        """Sample one response; `images` are the images in the prompt, in order."""
        params = copy.deepcopy(self._params)
        params.max_tokens = max_tokens
        shown = {"multi_modal_data": {"image": [open_image(url) for url in images]}} if images else {}
        sample = (await self._engine.generate(list(prompt_ids), params, **shown)).outputs[0]
        ids = list(sample.token_ids)
        logprobs = None
        if sample.logprobs is not None:
            logprobs = [step[token].logprob for token, step in zip(ids, sample.logprobs, strict=True)]
        return Generation(ids, logprobs, "stop" if sample.finish_reason == "stop" else "length")


class GemExecutor(AgentExecutorBase):  # type: ignore[misc]
    """Plays the environment that a row's label names.

    For an agent file of your own, where the options are to stand in Python:

        class AgentExecutor(GemExecutor):
            def __init__(self) -> None:
                super().__init__({"max_turns": 8})

    Args:
        options: As in `GemOptions`; None takes those of the command line.

    Raises:
        ConfigError: An option that cannot be honoured.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options = GemOptions.from_environment() if options is None else GemOptions.load(options)
        self._envs = EnvPool(self.options.wrappers)
        self._shared: _Shared | None = None

    async def execute(
        self,
        prompt: str,
        label: str,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = None,
        **unused: Any,
    ) -> dict[str, Any]:
        """Play one episode.

        Args:
            prompt: The row's input; OpenRLHF's evaluation finds the row by it.
            label: The row's task, as `labels.openrlhf_row` writes it.
            sampling_params: vLLM's; ``max_tokens``, which is ``--rollout.max_new_tokens``, limits each
                response.
            max_length: ``--data.max_len``, the most tokens of the whole row.
            hf_tokenizer: The model's.
            llm_engine: See `EnginePolicy`.
            images: None; the images of an episode come from its environment.
            unused: What other versions pass.

        Returns:
            What OpenRLHF makes a training sample of; see `lay_out`.

        Raises:
            ConfigError: The row names no task, or has images.
        """
        if images:
            raise ConfigError("this row has images, but the images of an episode come from its environment")
        if self._shared is None:
            self._shared = _Shared(self.options, hf_tokenizer)
        task = task_of(label)
        per_turn = self.options.max_tokens_per_turn or sampling_params.max_tokens or max_length
        split = "eval" if task["seed"] in EVAL_SEEDS else "train"
        episode = await self._envs.play(
            task,
            EnginePolicy(
                llm_engine,
                sampling_params,
                self._shared.extra_stop_id,
                self._shared.placeholder_id,
            ),
            self._shared.context,
            self.options.limits(max_tokens_per_turn=min(per_turn, max_length)),
            max_total_tokens=max_length,
            metadata={"split": split, "group": task["index"]},
        )
        if self._shared.traces:
            self._shared.traces[split].write(episode)
        return lay_out(
            episode, task, prompt, pad_id=tokenizer_of(hf_tokenizer).eos_token_id,
            with_logprobs=sampling_params.logprobs is not None, image_processor=self._shared.image_processor,
        )  # fmt: skip


class _Shared:
    """What the episodes of a worker share once its tokenizer, or its processor, is there."""

    def __init__(self, options: GemOptions, given: Any) -> None:
        tokenizer = tokenizer_of(given)
        self.context = options.context_for(processor_or_tokenizer(given, tokenizer))
        self.image_processor = self.context.image_processor
        self.placeholder_id = None if self.image_processor is None else self.image_processor.token_id
        self.extra_stop_id = extra_stop_id(self.context, tokenizer)
        self.traces = options.trace_writers(tokenizer)


def lay_out(
    episode: Episode,
    task: TaskRow,
    prompt: str,
    *,
    pad_id: int,
    with_logprobs: bool,
    image_processor: ImageProcessor | None = None,
) -> dict[str, Any]:
    """An episode as OpenRLHF's sample: one row of tokens with the ranges that were sampled.

    An episode that is not trainable is a row without such a range: it has a place in the batch because
    OpenRLHF expects one row for each sample, and `gem_openrlhf.failures` keeps it out of everything else.

    Args:
        episode: What was played.
        task: Of the row.
        prompt: The row's input.
        pad_id: The tokens of a row that stands for an episode which is not trainable.
        with_logprobs: Whether OpenRLHF expects log-probs of the sampling policy.
        image_processor: Makes the model's inputs of the images; None for a model that sees none.
    """
    tokens, logprobs, spans = [pad_id, pad_id], None, []
    if episode.trainable:
        sequence = episode.sequence()
        tokens, logprobs = sequence.token_ids, sequence.logprobs
        start = 0
        for turn in episode.turns:
            start += len(turn.context_ids)
            spans.append((start, start + len(turn.response_ids)))
            start += len(turn.response_ids)
    cut = episode.stop_reason == "token_budget" or any(t.finish_reason == "length" for t in episode.turns)
    return {
        "prompt": prompt,
        "label": played_label(task, episode, spans),
        "images": None,
        "mm_train_inputs": pixels(episode, image_processor) if image_processor and spans else None,
        "reward": episode.total_reward if episode.trainable else 0.0,
        "scores": float(episode.success and episode.trainable),
        "observation_tokens": tokens,
        "action_ranges": spans,
        "rollout_log_probs": (logprobs or [0.0] * len(tokens)) if with_logprobs else None,
        "truncated": cut,
        "extra_logs": {},
    }


def pixels(episode: Episode, image_processor: ImageProcessor) -> dict[str, Any] | None:
    """What the actor's model is given of the images of a row, in the order of their places.

    Returns:
        Tensors ``pixel_values`` (patches, width) and ``image_grid_thw`` (images, 3); None without images.
    """
    import torch

    of_each = [image_processor.features(url) for url in episode.images()]
    if not of_each:
        return None
    return {name: torch.cat([torch.as_tensor(one[name]) for one in of_each]) for name in of_each[0]}
