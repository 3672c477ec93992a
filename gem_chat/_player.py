"""Play episodes inside a trainer's worker."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Collection, Mapping
from typing import Any

from gem_chat._options import make_context
from gem_chat._stop_ids import engine_stop_ids, response_stops
from gem_chat._vision import processor_or_tokenizer
from gem_core._util.forks import ForkSafeLock
from gem_core._util.threads import set_env_threads
from gem_core.errors import ConfigError
from gem_core.rollout import Context, EnvPool, Episode, Policy, RolloutOptions, TraceWriter
from gem_core.tasks import TaskRow
from gem_core.trainers._options import option_at

logger = logging.getLogger(__name__)


class EpisodePlayer:
    """State shared by all episodes of a worker.

        player = EpisodePlayer(options, tokenizer)
        episode = await player.play(task, policy, split="train", max_tokens_per_turn=512)

    Args:
        options: Options of the rollout.
        tokenizer: Tokenizer of the model.
        processor: Processor of a model that accepts images; any other object is ignored.
        template_kwargs: Variables for the chat template.

    Attributes:
        options: Options of the rollout.
        context: Context shared by all episodes.
        stop_ids: Tokens that end a response.
        extra_stop_id: Stop token after an answer that an inference engine does not apply by default; None if
            it applies all.
    """

    def __init__(
        self,
        options: RolloutOptions,
        tokenizer: Any,
        *,
        processor: Any = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.options = options
        self._tokenizer = tokenizer
        self.context = make_context(
            options, processor_or_tokenizer(processor, tokenizer), template_kwargs, engine_stop_ids(tokenizer)
        )
        stops = response_stops(self.context, tokenizer)
        self.stop_ids, self.extra_stop_id, self._call_stop_id = stops.all, stops.extra, stops.call
        self._envs = EnvPool(options.wrappers, max_envs=options.max_concurrent_envs)
        if options.env_threads is not None:
            set_env_threads(options.env_threads)
        self._traces = _shared_writers(options, tokenizer)

    def require_engine_stops(self, known: Collection[int], remedy: str) -> None:
        """Reject a chat template that ends a turn with a token at which the engine does not stop.

        Use it for an engine to which the plugin cannot pass `extra_stop_id`.

        Args:
            known: Tokens at which the engine stops in addition to its default ones.
            remedy: Change that the user has to make, for the message.

        Raises:
            ConfigError: The engine does not stop at `extra_stop_id`.
        """
        extra = self.extra_stop_id
        if extra is not None and extra not in known:
            raise ConfigError(
                f"the chat template ends a turn with {self._tokenizer.decode([extra])!r} (token {extra}), at "
                f"which the engine does not stop; {remedy}"
            )
        if (call := self._call_stop_id) is not None and call not in known:
            logger.warning(
                "the chat template ends calls of tools with %r (token %d), at which the engine does not "
                "stop; for tools, add it to eos_token_id in the model's generation_config.json",
                self._tokenizer.decode([call]), call,
            )  # fmt: skip

    def engine_options(self, sampling_params: Any) -> dict[str, Any]:
        """Return the sampling parameters for these episodes: the trainer's own, plus those that they require.

        The additional ones make the engine stop where the chat template ends a turn, whatever stop tokens it
        reads from the model's files, and keep it from sampling a placeholder of images or other media.

        Args:
            sampling_params: The trainer's sampling parameters, a mapping or an object such as vLLM's. They
                stay unchanged; their stop tokens and biases are included in the result.
        """
        stops = option_at(sampling_params, "stop_token_ids", ())
        options: dict[str, Any] = {"stop_token_ids": sorted({*stops, *self.stop_ids})}
        if self.context.image_processor is not None:  # a sampled placeholder would have no image
            biases = option_at(sampling_params, "logit_bias", {})
            forbidden = dict.fromkeys(self.context.image_processor.placeholders, -100.0)
            options["logit_bias"] = {**biases, **forbidden}
        return options

    async def play(
        self,
        task: TaskRow,
        policy: Policy,
        *,
        split: str,
        metadata: Mapping[str, Any],
        context: Context | None = None,
        max_turns: int | None = None,
        max_tokens_per_turn: int | None = None,
        **arguments: Any,
    ) -> Episode:
        """Play the episode of a task, and write its trace if traces are enabled.

        Args:
            task: Task to play.
            policy: Policy that samples the responses.
            split: Name of the trace file.
            metadata: Metadata of the episode, in addition to the split.
            context: Context of this episode; None uses the shared one.
            max_turns: Overrides the option of the same name; None uses the option.
            max_tokens_per_turn: Overrides the option of the same name; None uses the option.
            arguments: Further arguments of `EnvPool.play`.
        """
        changes = {"max_turns": max_turns, "max_tokens_per_turn": max_tokens_per_turn}
        limits = self.options.limits(**{name: value for name, value in changes.items() if value is not None})
        episode = await self._envs.play(
            task, policy, context or self.context, limits, metadata={**metadata, "split": split}, **arguments
        )
        if self._traces:
            with _writing:
                self._traces[split].write(episode)
        return episode


_writers: dict[str, dict[str, TraceWriter]] = {}
"""Trace writers by folder and split, shared by all players of the process, each perhaps in its own thread."""
_writing = ForkSafeLock()


def _shared_writers(options: RolloutOptions, tokenizer: Any) -> dict[str, TraceWriter]:
    if options.traces is None:
        return {}
    folder = os.path.abspath(options.traces)
    with _writing:
        if folder not in _writers:
            # The writers decode in the thread of any player, and a tokenizer is not thread-safe.
            _writers[folder] = options.trace_writers(copy.deepcopy(tokenizer))
        return _writers[folder]
