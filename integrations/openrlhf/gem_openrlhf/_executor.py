"""The agent of OpenRLHF's rollout workers: plays one episode for each sample."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from openrlhf.utils.agent import AgentExecutorBase

from gem_chat import EpisodePlayer
from gem_chat._vision import ImageProcessor, tokenizer_of
from gem_core._images import open_image
from gem_core.advantages._declaration import Need
from gem_core.errors import ConfigError
from gem_core.rollout import Episode, Generation, Row
from gem_core.rollout._rows import RowSplit
from gem_core.tasks import EVAL_SEEDS, EnvChoice, TaskRow
from gem_core.trainers import expect
from gem_lab._engines.vllm import vllm_generation
from gem_openrlhf import _SUPPORTED, _hooks
from gem_openrlhf._labels import ROWS, OwnLabel, names_task, played_label, task_of
from gem_openrlhf._options import ONE_ROW, GemOptions
from gem_openrlhf._own_rows import SingleTurnExecutor, play_own

expect(
    _SUPPORTED, AgentExecutorBase, "execute", "self", "prompt", "label", "sampling_params", "max_length",
    "hf_tokenizer", "llm_engine", exact=False,
)  # fmt: skip


class EnginePolicy:
    """OpenRLHF's vLLM worker as a `gem_core.rollout.Policy`.

    Args:
        engine: The worker, with ``async generate(token_ids, sampling_params)``.
        sampling_params: vLLM's sampling parameters of every turn. They are never changed, because OpenRLHF
            passes the same object for all samples of a prompt.
        changes: Sampling parameters with other values.
    """

    takes_images = True

    def __init__(self, engine: Any, sampling_params: Any, changes: Mapping[str, Any]) -> None:
        self._engine = engine
        self._params = copy.deepcopy(sampling_params)
        # OpenRLHF asks for at least one token. vLLM then suppresses the end-of-turn token as the first token,
        # so the response comes from a different distribution than the one that the loss uses.
        for name, value in {"min_tokens": 0, **changes}.items():
            setattr(self._params, name, value)

    async def generate(
        self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str, images: Sequence[str] = ()
    ) -> Generation:
        """Sample one response; `images` are the images of the prompt, in order."""
        params = copy.deepcopy(self._params)
        params.max_tokens = max_tokens
        inputs = {"multi_modal_data": {"image": [open_image(url) for url in images]}} if images else {}
        output = await self._engine.generate(list(prompt_ids), params, **inputs)
        return vllm_generation(output, params.stop_token_ids)


class GemExecutor(AgentExecutorBase):  # type: ignore[misc]
    """Plays the environment named in the label of a row, and leaves rows that name none to another agent.

    Your own agent file can set the options in Python:

        class AgentExecutor(GemExecutor):
            def __init__(self) -> None:
                super().__init__({"max_turns": 8})

    Args:
        options: Fields of `GemOptions`. None uses the options of the command line.
        others: Agent for the rows whose label names no task. None uses OpenRLHF's single-turn agent with the
            option `remote_url`; without that option, such rows are errors.

    Raises:
        ConfigError: An option is not supported.
    """

    def __init__(
        self, options: Mapping[str, Any] | None = None, others: AgentExecutorBase | None = None
    ) -> None:
        self.options = GemOptions.from_environment() if options is None else GemOptions.load(options)
        trainer_options = GemOptions.from_environment()  # whatever `options` is
        self._needs = trainer_options.needs
        self._several_rows = trainer_options.takes_rows and _hooks.is_set_up()
        if not self._several_rows:
            self.options.reject_rows(f"{ONE_ROW}, and pass this option to gem_openrlhf.train_ppo_ray")
        self._player: EpisodePlayer | None = None
        if others is None and self.options.remote_url:
            others = SingleTurnExecutor(self.options.remote_url.split(","))
        self._others = others

    async def execute(
        self,
        prompt: str,
        label: str | OwnLabel,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = None,
        **unused: Any,
    ) -> dict[str, Any]:
        """Play one episode and return it as OpenRLHF's sample; see `lay_out` and `own_rows.play_own`.

        Args:
            prompt: Input of the row; OpenRLHF's evaluation uses it to find the row.
            label: Task of the row, as written by `labels.openrlhf_row`, or any other label.
            sampling_params: vLLM's sampling parameters; ``max_tokens``, set by
                ``--rollout.max_new_tokens``, limits each response.
            max_length: Maximum number of tokens of the whole row (``--data.max_len``).
            hf_tokenizer: Tokenizer or processor of the model.
            llm_engine: See `EnginePolicy`.
            images: Images of the row. A task has none, because its images come from its environment.
            unused: Arguments that other versions of OpenRLHF pass.

        Raises:
            ConfigError: The row has no label, or names no task although no other agent was given, or it is a
                task with images.
        """
        tokenizer = tokenizer_of(hf_tokenizer)
        if self._others is not None and label is not None and not names_task(label):
            return await play_own(
                self._others,
                label,
                pad_id=tokenizer.eos_token_id,
                prompt=prompt,
                sampling_params=sampling_params,
                max_length=max_length,
                hf_tokenizer=hf_tokenizer,
                llm_engine=llm_engine,
                images=images,
            )
        if images:
            raise ConfigError("this row has images, but the images of an episode come from its environment")
        if self._player is None:
            self._player = EpisodePlayer(self.options, tokenizer, processor=hf_tokenizer)
        player, task = self._player, task_of(label)
        per_turn = self.options.max_tokens_per_turn or sampling_params.max_tokens or max_length
        episode = await player.play(
            task,
            EnginePolicy(llm_engine, sampling_params, player.engine_options(sampling_params)),
            split="eval" if task["seed"] in EVAL_SEEDS else "train",
            metadata={"group": task["index"]},
            max_tokens_per_turn=min(per_turn, max_length),
            max_total_tokens=max_length,
        )
        return lay_out(
            episode,
            task,
            prompt,
            pad_id=tokenizer.eos_token_id,
            with_logprobs=sampling_params.logprobs is not None,
            image_processor=player.context.image_processor,
            needs=self._needs,
            split=self.options.rows if self._several_rows else None,
        )


def lay_out(
    episode: Episode,
    task: TaskRow,
    prompt: str,
    *,
    pad_id: int,
    with_logprobs: bool,
    image_processor: ImageProcessor | None = None,
    needs: Collection[Need] = (),
    split: RowSplit | None = None,
) -> dict[str, Any]:
    """Return an episode as OpenRLHF's sample: one row of tokens with the ranges that were sampled.

    OpenRLHF expects one row for each sample. An episode that is not trainable becomes a row without such a
    range; `gem_openrlhf._failures` keeps it out of everything else. Further rows of an episode are in the
    sample's `ROWS`, in the same form; see `gem_openrlhf._rows`.

    Args:
        episode: The episode.
        task: Task of the row.
        prompt: Input of the row.
        pad_id: Token of the row of an episode that is not trainable.
        with_logprobs: Whether OpenRLHF expects log-probs of the sampling policy.
        image_processor: Turns images into inputs of the model; None for a model without images.
        needs: What the estimator needs.
        split: How the episode is split into rows; None if the trainer takes one row per episode.

    Raises:
        ConfigError: The episode has several rows, and the trainer takes one.
    """
    rows = [episode.only_row(pad_id)] if split is None else episode.rows(split, pad_id=pad_id)
    total = episode.total_reward if episode.trainable else 0.0
    cut = episode.stop_reason == "token_budget" or any(t.finish_reason == "length" for t in episode.turns)
    source = EnvChoice.of(task).label

    def sample(row: Row) -> dict[str, Any]:
        features = image_processor.features_of(row.images) if image_processor and row.images else {}
        return {
            "prompt": prompt,
            "label": played_label(source, episode if row is rows[0] else None, row, needs),
            "images": None,
            "mm_train_inputs": {name: torch.as_tensor(part) for name, part in features.items()} or None,
            "reward": total,
            "scores": total,  # what dynamic filtering compares
            "observation_tokens": row.token_ids,
            "action_ranges": row.spans,
            "rollout_log_probs": row.logprobs_or_zeros() if with_logprobs else None,
            "truncated": cut,
            "extra_logs": {},
        }

    first, *further = map(sample, rows)
    return {**first, ROWS: further}
