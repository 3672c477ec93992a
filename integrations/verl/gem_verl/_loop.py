"""The agent loop ``gem``: plays one episode for each sample, with verl's server manager as the policy.

An episode becomes one row (prompt, response part with mask and log-probs, a reward on the last token of each
turn), or one row per turn. A failed episode leaves no row in training (see `gem_verl._failures`). In
validation, it leaves a masked row that counts in ``gem/error_rate`` only.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any
from uuid import uuid4

import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register

from gem_chat import EpisodePlayer
from gem_core._images import open_image
from gem_core.advantages._declaration import Need
from gem_core.errors import UnsupportedTrainer
from gem_core.rollout import Episode, Generation, episode_metrics
from gem_core.rollout._metrics import HARNESS_METRICS, METRICS
from gem_core.rollout._policy import inferred_finish
from gem_core.rollout._rows import RowSplit
from gem_core.tasks import EnvChoice, TaskRow
from gem_core.trainers import pack_facts
from gem_core.trainers._interface import expect_listed
from gem_verl import _SUPPORTED, _failures
from gem_verl._options import MANAGER, V1_ONLY, needs_of, read_options
from gem_verl._rows import AGENT_NAME, task_of

expect_listed(_SUPPORTED, "loop")


class GemOutput(AgentLoopOutput):  # type: ignore[misc]
    """A row with a reward for each of its response tokens instead of verl's single score."""

    token_rewards: list[float]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that verl stores."""
        output: dict[str, Any] = super().as_dict()
        output["rm_scores"] = torch.tensor(output.pop("token_rewards"), dtype=torch.float32)
        return output


class ServerPolicy:
    """verl's inference servers as a `gem_core.rollout.Policy`.

    Args:
        client: verl's server manager.
        sampling_params: Sampling parameters of every turn.
        stop_ids: Tokens that end a response, in addition to those in ``stop_token_ids``.
    """

    takes_images = True

    def __init__(self, client: Any, sampling_params: Mapping[str, Any], stop_ids: Set[int]) -> None:
        self._client = client
        self._sampling_params = sampling_params
        self._stop_ids = stop_ids | set(sampling_params.get("stop_token_ids") or ())
        self.seconds = 0.0
        self.preempted = -1
        self.extra_fields: dict[str, Any] = {}

    async def generate(
        self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str, images: Sequence[str] = ()
    ) -> Generation:
        """Sample one response; an aborted request returns a response without tokens."""
        start = time.perf_counter()
        inputs = {"image_data": [open_image(url) for url in images]} if images else {}
        output = await self._client.generate(
            request_id=request_id,
            prompt_ids=list(prompt_ids),
            sampling_params={**self._sampling_params, "max_tokens": max_tokens},
            **inputs,
        )
        self.seconds += time.perf_counter() - start
        if output.num_preempted is not None:
            self.preempted = max(self.preempted, 0) + output.num_preempted
        first = self.extra_fields.get("min_global_steps", output.extra_fields.get("min_global_steps"))
        counts = {  # of speculative decoding
            name: count + self.extra_fields.get(name, 0)
            for name, count in output.extra_fields.items()
            if name.startswith("spec_num_")
        }
        self.extra_fields = {**output.extra_fields, **counts, "min_global_steps": first}
        ids = list(output.token_ids)
        # verl's vLLM reports "completed" for both endings, and "length" may be a complete response of that
        # length.
        limit = len(ids) if output.stop_reason == "length" else max_tokens
        finish = inferred_finish(ids, limit, self._stop_ids)
        return Generation(ids, list(output.log_probs) if output.log_probs else None, finish)


_players: dict[int, tuple[Any, EpisodePlayer, tuple[Need, ...]]] = {}
"""Players of this worker, and what the estimator needs, by the `id` of the config, which the value keeps
alive."""


def _player(config: Any, tokenizer: Any, processor: Any) -> tuple[EpisodePlayer, tuple[Need, ...]]:
    if id(config) not in _players:
        kwargs = config.data.get("apply_chat_template_kwargs")
        player = EpisodePlayer(read_options(config), tokenizer, processor=processor, template_kwargs=kwargs)
        _players[id(config)] = config, player, needs_of(config)
    return _players[id(config)][1:]


@register(AGENT_NAME)
class GemAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """Plays the environment named in a row of the dataset."""

    async def run(self, sampling_params: dict[str, Any], **fields: Any) -> list[AgentLoopOutput]:
        """Play one episode and return its rows; an empty list if the episode failed in training.

        Args:
            sampling_params: verl's sampling parameters for training or validation.
            fields: The row, with verl's uid, session_id, and global_steps.

        Raises:
            EnvError: The episode failed in training, and so did all other samples of its prompt.
        """
        group = _failures.group.get()
        if group is None:
            raise UnsupportedTrainer(
                f"the agent loop gem needs {MANAGER}=gem_verl.GemAgentLoopManager and {V1_ONLY}"
            )
        start = time.perf_counter()
        player, needs = _player(self.config, self.tokenizer, self.processor)
        rollout = self.rollout_config
        options: Any = player.options
        sampling_params = {**sampling_params, **player.engine_options(sampling_params)}
        policy = ServerPolicy(self.server_manager, sampling_params, player.stop_ids)
        task, uid, session = task_of(fields), fields.get("uid", ""), int(fields.get("session_id", 0))
        episode = await player.play(
            task,
            policy,
            split="eval" if group.validating else "train",
            metadata={"step": int(fields.get("global_steps", -1)), "group": str(uid), "sample": session},
            max_tokens_per_turn=options.max_tokens_per_turn or rollout.response_length,
            max_total_tokens=context_length(rollout, group.position_limit),
            max_response_tokens=rollout.response_length,
            request_id=_request_id(task, fields) if rollout.full_determinism else uuid4().hex,
        )
        if not episode.trainable:
            await group.leave_out(episode, f"{uid}_{session}")
            if not group.validating:
                return []
        # Step n is sampled with the weights of step n - 1; verl needs this number even if nothing was
        # sampled.
        version = int(fields.get("global_steps", 1)) - 1
        return lay_out(
            episode,
            split=options.rows,
            metrics=AgentLoopMetrics(
                generate_sequences=policy.seconds,
                tool_calls=time.perf_counter() - start - policy.seconds,
                num_preempted=policy.preempted,
            ),
            extra_fields={"min_global_steps": version, "max_global_steps": version, **policy.extra_fields},
            pad_id=self.tokenizer.eos_token_id,
            with_logprobs=bool(sampling_params.get("logprobs")),
            validation=group.validating,
            needs=needs,
            names=METRICS + HARNESS_METRICS if options.harness else METRICS,
        )


def _request_id(task: TaskRow, fields: Mapping[str, Any]) -> str:
    """Return an id that verl uses to choose the server, and that is the same in a repeated run."""
    step, label, session = fields.get("global_steps"), EnvChoice.of(task).label, fields.get("session_id")
    return f"{step}-{label}-{task['seed']}-{task['index']}-{session}"


def context_length(rollout: Any, position_limit: int) -> int:
    """Return the maximum number of tokens, prompt and response together, that rows and servers allow.

    Args:
        rollout: verl's section ``actor_rollout_ref.rollout``.
        position_limit: The model's maximum number of tokens.
    """
    longest: int = rollout.prompt_length + rollout.response_length
    served: int = rollout.max_model_len or position_limit
    return min(longest, served - int(rollout.name == "sglang"))  # SGLang reserves one


def lay_out(
    episode: Episode,
    *,
    split: RowSplit,
    metrics: AgentLoopMetrics,
    extra_fields: dict[str, Any],
    pad_id: int,
    with_logprobs: bool,
    validation: bool = False,
    needs: Collection[Need] = (),
    names: Sequence[str] = METRICS,
) -> list[AgentLoopOutput]:
    """Return the rows of an episode as verl's outputs.

    Args:
        episode: The episode.
        split: How the episode is split into rows; see `Episode.rows`.
        metrics: verl's metrics, the same for all rows.
        extra_fields: Fields reported by the engine; every row gets a copy with GEM's fields.
        pad_id: Token of the row of an episode that is not trainable, which validation needs.
        with_logprobs: Whether verl expects log-probs of the sampling policy.
        validation: Whether to put the whole return on the last row, the only one that verl's validation
            reads, and to omit missing values from its means; in training a missing value counts as 0.
        needs: What the estimator needs.
        names: Names of the metrics, the same for all episodes of a run.
    """
    summary: dict[str, float] = episode_metrics([episode])
    if not validation:
        # A filter of prompt groups accepts only numbers, and considers the values of a group equal if their
        # standard deviation is exactly 0, which holds for equal values in float32, like verl's own scores.
        summary = {name: torch.tensor(summary.get(name, 0.0)).item() for name in names}
    values = {name: summary.get(name) for name in names}
    common = {**extra_fields, "tool_rewards": [], "reward_extra_info": values}
    laid_out = episode.rows(split, pad_id=pad_id)
    if validation and len(laid_out) > 1:
        for row in laid_out:
            row.rewards = [0.0] * len(row)
        laid_out[-1].rewards[-1] = episode.total_reward
    outputs = []
    for row, facts in zip(laid_out, pack_facts(episode, laid_out, needs), strict=True):
        start = row.prompt_length
        images = {"multi_modal_data": {"images": [open_image(url) for url in row.images]}}
        scores = [episode.rewards[turn] for turn in row.turns]
        outputs.append(
            GemOutput(
                **(images if row.images else {}),
                prompt_ids=row.prompt_ids,
                response_ids=row.response_ids,
                response_mask=row.response_mask[start:],
                response_logprobs=row.logprobs_or_zeros()[start:] if with_logprobs else None,
                token_rewards=row.rewards[start:],
                reward_score=episode.total_reward if episode.trainable else 0.0,
                num_turns=2 * len(episode.turns),
                metrics=metrics,
                extra_fields={**common, "turn_scores": scores, "gem": facts},
            )
        )
    return outputs
