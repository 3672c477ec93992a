"""The agent loop ``gem``: one call of gem_core's `run_episode` for each sample.

The policy is verl's server manager. An episode becomes one row (prompt, response part with mask and
log-probs, a reward on the last token of each turn), or one row per turn. A failed episode leaves no row in
training (see `gem_verl.failures`). In validation it leaves a masked row that counts in ``gem/error_rate``
only.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import torch
from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
    register,
)

from gem_core.images import open_image
from gem_core.rollout import (
    Context,
    EnvPool,
    Episode,
    Generation,
    TraceWriter,
    engine_stop_ids,
    episode_metrics,
    extra_stop_id,
    without_tokens,
)
from gem_core.rollout.vision import processor_or_tokenizer
from gem_verl import failures
from gem_verl.options import GemOptions
from gem_verl.rows import AGENT_NAME, task_of

METRICS = (
    "gem/return",
    "gem/success",
    "gem/turns",
    "gem/turns_to_success",
    "gem/truncation_rate",
    "gem/format_error_rate",
    "gem/tool_calls",
    "gem/tool_errors",
    "gem/error_rate",
    "gem/retry_rate",
)
"""What validation reports for each environment, besides verl's own score; `filter_groups` may name one."""

validating: ContextVar[bool] = ContextVar("gem_verl_validating", default=False)
"""Set by the worker: verl does not tell an agent loop."""

position_limit: ContextVar[int | None] = ContextVar("gem_verl_position_limit", default=None)
"""Set by the worker: most tokens of the model, the limit of verl's servers where no other is set."""


class GemOutput(AgentLoopOutput):  # type: ignore[misc]
    """A row with a reward for each of its response tokens instead of verl's single score."""

    token_rewards: list[float]

    def as_dict(self) -> dict[str, Any]:
        """The fields that verl stores."""
        output: dict[str, Any] = super().as_dict()
        output["rm_scores"] = torch.tensor(output.pop("token_rewards"), dtype=torch.float32)
        return output


class ServerPolicy:
    """verl's inference servers as a `gem_core.rollout.Policy`.

    Args:
        client: verl's server manager.
        sampling_params: For every turn; stop tokens of your own, in ``stop_token_ids``, are kept.
        stop_ids: Ids that end a response.
        extra_stop_id: One of them that the engine does not know of; None when it knows all.
    """

    takes_images = True

    def __init__(
        self, client: Any, sampling_params: Mapping[str, Any], stop_ids: set[int], extra_stop_id: int | None
    ) -> None:
        self._client = client
        self._sampling_params = dict(sampling_params)
        own = set(self._sampling_params.get("stop_token_ids") or ())
        self._stop_ids = stop_ids | own
        if extra_stop_id is not None:
            self._sampling_params["stop_token_ids"] = sorted(own | {extra_stop_id})
        self.seconds = 0.0
        self.preempted = -1
        self.extra_fields: dict[str, Any] = {}

    async def generate(
        self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str, images: Sequence[str] = ()
    ) -> Generation:
        """Sample one response; an aborted request gives one without tokens."""
        start = time.perf_counter()
        shown = {"image_data": [open_image(url) for url in images]} if images else {}
        output = await self._client.generate(
            request_id=request_id,
            prompt_ids=list(prompt_ids),
            sampling_params={**self._sampling_params, "max_tokens": max_tokens},
            **shown,
        )
        self.seconds += time.perf_counter() - start
        if output.num_preempted is not None:
            self.preempted = max(self.preempted, 0) + output.num_preempted
        first = self.extra_fields.get("min_global_steps", output.extra_fields.get("min_global_steps"))
        self.extra_fields = {**output.extra_fields, "min_global_steps": first}
        ids = list(output.token_ids)
        # verl's vLLM reports "completed" for both ends, and "length" may stand for a whole response that just
        # fits, so the last token has to tell.
        full = len(ids) >= max_tokens or output.stop_reason == "length"
        cut = bool(ids) and full and ids[-1] not in self._stop_ids
        return Generation(
            ids, list(output.log_probs) if output.log_probs else None, "length" if cut else "stop"
        )


@dataclass
class _Shared:
    """What the episodes of a worker process share."""

    config: Any
    options: GemOptions
    context: Context
    envs: EnvPool
    stop_ids: set[int]
    extra_stop_id: int | None
    traces: dict[str, TraceWriter]

    @classmethod
    def make(cls, config: Any, tokenizer: Any, processor: Any) -> _Shared:
        options = GemOptions.from_config(config)
        context = options.make_context(
            processor_or_tokenizer(processor, tokenizer), config.data.get("apply_chat_template_kwargs")
        )
        extra = extra_stop_id(context, tokenizer)
        stop_ids = engine_stop_ids(tokenizer) | ({extra} if extra is not None else set())
        traces = options.trace_writers(tokenizer)
        return cls(config, options, context, EnvPool(options.wrappers), stop_ids, extra, traces)


_shared: dict[int, _Shared] = {}
"""By the id of the config, which the value keeps alive."""


def _share(config: Any, tokenizer: Any, processor: Any) -> _Shared:
    if id(config) not in _shared:
        _shared[id(config)] = _Shared.make(config, tokenizer, processor)
    return _shared[id(config)]


@register(AGENT_NAME)
class GemAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """Plays the environment that the row of the data set names."""

    async def run(self, sampling_params: dict[str, Any], **fields: Any) -> list[AgentLoopOutput]:
        """Play one episode and lay it out.

        Args:
            sampling_params: verl's, for training or validation.
            fields: The row, with verl's uid, session_id and global_steps.

        Returns:
            The rows of the episode; none for one that failed in training.

        Raises:
            EnvError: The episode failed in training, and so did all other samples of its prompt.
        """
        start = time.perf_counter()
        shared = _share(self.config, self.tokenizer, self.processor)
        options, rollout = shared.options, self.rollout_config
        image_processor = shared.context.image_processor
        if image_processor is not None:  # it stands for an image, and would be one too many
            sampling_params = {**sampling_params, "logit_bias": {image_processor.token_id: -100.0}}
        policy = ServerPolicy(self.server_manager, sampling_params, shared.stop_ids, shared.extra_stop_id)
        split = "eval" if validating.get() else "train"
        episode = await shared.envs.play(
            task_of(fields),
            policy,
            shared.context,
            max_tokens_per_turn=options.max_tokens_per_turn or rollout.response_length,
            max_total_tokens=context_length(rollout),
            max_response_tokens=rollout.response_length,
            **options.play_kwargs(),
            request_id=uuid4().hex,
            metadata={
                "step": int(fields.get("global_steps", -1)),
                "group": str(fields.get("uid", "")),
                "sample": int(fields.get("session_id", 0)),
                "split": split,
            },
        )
        if shared.traces:
            shared.traces[split].write(episode)
        if not episode.trainable and split == "train":
            group = failures.group.get()
            if group is not None:
                await group.leave_out(episode, f"{fields.get('uid')}_{fields.get('session_id')}")
            return []
        # Weights of step n - 1 sample step n; where nothing was sampled verl still wants the number.
        version = int(fields.get("global_steps", 1)) - 1
        extra = {"min_global_steps": version, "max_global_steps": version, **policy.extra_fields}
        metrics = AgentLoopMetrics(
            generate_sequences=policy.seconds,
            tool_calls=time.perf_counter() - start - policy.seconds,
            num_preempted=policy.preempted,
        )
        return lay_out(
            episode,
            row_per_turn=options.row_per_turn,
            metrics=metrics,
            extra_fields=extra,
            pad_id=self.tokenizer.eos_token_id,
            with_logprobs=bool(sampling_params.get("logprobs")),
            validation=split == "eval",
        )


def context_length(rollout: Any) -> int:
    """Most tokens of prompt and response together: those of the rows, and no more than the servers take.

    Args:
        rollout: verl's section ``actor_rollout_ref.rollout``.
    """
    longest: int = rollout.prompt_length + rollout.response_length
    served = rollout.max_model_len or position_limit.get()
    if served is None:
        return longest
    return min(longest, served - 1 if rollout.name == "sglang" else served)  # its server keeps one back


def lay_out(
    episode: Episode,
    *,
    row_per_turn: bool,
    metrics: AgentLoopMetrics,
    extra_fields: dict[str, Any],
    pad_id: int,
    with_logprobs: bool,
    validation: bool = False,
) -> list[AgentLoopOutput]:
    """The rows of an episode.

    Args:
        episode: What was played.
        row_per_turn: One row a turn instead of one row in all.
        metrics: verl's, the same for all rows.
        extra_fields: What the engine reported; every row gets a copy with GEM's fields.
        pad_id: The only token of the row of an episode that is not trainable, which validation needs.
        with_logprobs: Whether verl expects log-probs of the sampling policy.
        validation: Put the whole return on the last row, the only one that verl's validation reads, and
            leave out of its means what an episode has no value for; training counts that as 0.
    """
    summary = episode_metrics([episode])
    missing = None if validation else 0.0  # what filters groups of prompts takes numbers only
    shown = {
        **extra_fields,
        "turn_scores": episode.rewards,
        "tool_rewards": [],
        "reward_extra_info": {name: summary.get(name, missing) for name in METRICS},
    }
    facts = {"episode": without_tokens(episode).to_dict(), "row_per_turn": row_per_turn}

    def row(
        prompt: list[int], response: list[int], mask: list[int], logprobs: list[float] | None,
        rewards: list[float], spans: list[tuple[int, int]], images: Sequence[str] = (),
    ) -> AgentLoopOutput:  # fmt: skip
        pixels = {"multi_modal_data": {"images": [open_image(url) for url in images]}} if images else {}
        return GemOutput(
            **pixels,
            prompt_ids=prompt,
            response_ids=response,
            response_mask=mask,
            response_logprobs=(logprobs or [0.0] * len(response)) if with_logprobs else None,
            token_rewards=rewards,
            reward_score=episode.total_reward if episode.trainable else 0.0,
            num_turns=2 * len(episode.turns),
            metrics=metrics,
            extra_fields={**shown, "gem": {**facts, "spans": spans}},
        )

    if not episode.trainable:
        return [row([pad_id], [pad_id], [0], None, [0.0], [])]
    if not row_per_turn:
        sequence = episode.sequence()
        start = sequence.prompt_length
        spans = [(len(turn.context_ids), len(turn.response_ids)) for turn in episode.turns]
        return [
            row(
                sequence.token_ids[:start],
                sequence.token_ids[start:],
                sequence.response_mask[start:],
                sequence.logprobs[start:] if sequence.logprobs is not None else None,
                sequence.rewards[start:],
                [(0, spans[0][1]), *spans[1:]],
                episode.images(),
            )
        ]
    rewards = episode.rewards
    if validation:
        rewards = [0.0] * (len(rewards) - 1) + [episode.total_reward]
    return [
        row(
            turn.prompt_ids,
            turn.response_ids,
            [1] * len(turn.response_ids),
            turn.logprobs,
            [0.0] * (len(turn.response_ids) - 1) + [reward],
            [(0, len(turn.response_ids))],
            episode.images(turn.turn),
        )
        for turn, reward in zip(episode.transitions(), rewards, strict=True)
    ]


def turn_ids_of(spans: Sequence[tuple[int, int]], width: int) -> list[int]:
    """Turn id of each token of a row, -1 off-response and beyond its end."""
    parts = ([-1] * context + [turn] * response for turn, (context, response) in enumerate(spans))
    ids = list(itertools.chain.from_iterable(parts))
    return ids + [-1] * (width - len(ids))
