"""`Learner`: Oat's learner, with the advantages of gem_core."""

from __future__ import annotations

import functools
import json
import os
import time
from typing import Any

import torch
import torch.distributed as dist
from oat.algorithms.ppo import PPOLearner
from oat.utils.ops import masked_sum

from gem_core._util.files import write_atomically
from gem_core.advantages import ReturnStats
from gem_core.rollout import Episode, episode_metrics
from gem_core.tasks import EnvChoice
from gem_core.trainers.failures import evaluation_logs, pack_outline
from gem_core.trainers.options import import_modules
from gem_core.trainers.tasks import evaluation_tasks
from gem_oat import upstream
from gem_oat.args import Args, dataset_rows
from gem_oat.dataset import TaskDataset
from gem_oat.rows import Collected, TurnRow

upstream.check()


class Learner(PPOLearner):  # type: ignore[misc]
    """Learns from the turns that actors collected; see `gem_oat.rows.TurnRow`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        import_modules(self.args.modules, "--modules")

    def _init(self, args: Args, actors: list[Any]) -> None:
        self._choice = args.choose_estimator()
        self._collected: list[Collected] = []
        self._stats = ReturnStats()
        super()._init(args, actors)
        if args.critic_type == "drgrpo" and args.length_norm_constant is not None:
            self.masked_aggregator = functools.partial(
                masked_sum, constant_normalizer=args.length_norm_constant
            )

    def prepare_data(self, strategy: Any, tokenizer: Any) -> None:
        """Load tasks instead of prompts, the same on all ranks; Oat's sampler distributes them."""
        args: Args = self.args
        self.prompts_dataset = TaskDataset(args.sources, dataset_rows(args), args.seed)
        self.prompts_dataloader = strategy.setup_dataloader(
            self.prompts_dataset, args.rollout_batch_size_per_device, shuffle=False
        )
        self.eval_prompts_dataset = evaluation_tasks(args.eval_sources, args.max_eval, repeat=args.eval_n)
        self.eval_prompts_dataloader = None  # `evaluate` distributes the tasks

    def process_feedback_data(self, data_list: list[TurnRow]) -> None:
        """Keep the rows, and what was collected with them once per actor."""
        super().process_feedback_data(data_list)
        collected = data_list[0].collected
        assert collected is not None
        if dist.get_rank(self._same_actor_group) == 0:  # learners that share an actor share its turns
            self._collected.append(collected)

    def compute_monte_carlo_advantages(
        self, rewards: torch.Tensor, response_masks: torch.Tensor
    ) -> torch.Tensor:
        """Return the advantage of each row; see `gem_oat.rows.turn_values` for what `rewards` holds.

        Args:
            rewards: Values of shape (rows, tokens), 0 except on the last response token.
            response_masks: Mask of shape (rows, tokens); not needed because a row is a turn.

        Returns:
            Advantages, float32 of shape (rows,).
        """
        values = rewards.sum(-1, keepdim=True)
        collected = ReturnStats().merge(*(part.stats for part in self._collected))
        if not self._choice.estimator.uses_stats:
            self._stats = collected
            return values[:, 0]
        result = self._choice.compute(
            values,
            torch.ones_like(values),
            stats=collected if self._choice.scope == "collected" else None,
            process_group=dist.group.WORLD,
        )
        self._stats = result.stats
        advantages: torch.Tensor = result.advantages[:, 0]
        return advantages

    def learn(self, learning_round: int) -> dict[str, float]:
        """Run one update; return Oat's metrics and the common metrics of gem_core."""
        info: dict[str, float] = super().learn(learning_round)
        info.update(self._gem_metrics())
        self._collected = []
        return info

    def _gem_metrics(self) -> dict[str, float]:
        """Return the metrics of all episodes on all ranks, the same on each: Oat averages them over ranks."""
        own = ([episode for part in self._collected for episode in part.episodes], self._stats.to_wire())
        ranks: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, own)
        stats = self._stats
        if not self._choice.estimator.uses_stats:
            stats = ReturnStats().merge(*(ReturnStats.from_wire(wire) for _, wire in ranks))
        return {
            **episode_metrics(episode for episodes, _ in ranks for episode in episodes),
            **stats.metrics(),
        }

    def evaluate(self, dataloader: Any, steps: int) -> dict[str, float]:
        """Play the evaluation tasks on the actors of this machine.

        Args:
            dataloader: Ignored.
            steps: Name of the file under ``eval_results``.

        Returns:
            The common metrics per environment, such as ``eval/<environment>/gem/success``.
        """
        start = time.perf_counter()
        self._pre_evaluate()
        box: list[dict[str, float]] = [{}]
        if self.strategy.is_rank_0():
            played = self._play_evaluation()
            folder = os.path.join(self.save_path, "eval_results")
            os.makedirs(folder, exist_ok=True)
            lines = (pack_outline(episode) + "\n" for _, episode in played)
            write_atomically(os.path.join(folder, f"{steps}.jsonl"), lines)
            box[0] = evaluation_logs(played, "eval/{env}/{metric}")
        # Learners that share rank 0's actor wait here, on the CPU. The others (by default, all of them) wait
        # in the broadcast, on their GPUs, where Oat's limit is one hour.
        dist.barrier(group=self._same_actor_group)
        dist.broadcast_object_list(box, src=0)
        self._post_evaluate()
        return {**box[0], "eval/elapse": time.perf_counter() - start}

    def _play_evaluation(self) -> list[tuple[str, Episode]]:
        """Return the episodes, each with the name of its environment."""
        tasks, actors = self.eval_prompts_dataset, self.actors[: len(self.eval_prompts_dataset)]
        shares = [tasks[number :: len(actors)] for number in range(len(actors))]
        handles = [
            actor.futures.evaluate([json.dumps(task) for task in share])
            for actor, share in zip(actors, shares, strict=True)
        ]
        played = []
        for share, handle in zip(shares, handles, strict=True):
            episodes = self.collector.ipc_client.deserialize_ipc(handle.result())
            for task, episode in zip(share, episodes, strict=True):
                label = EnvChoice(task["env_id"], task["env_kwargs"]).label
                played.append((label, episode))
        return played
