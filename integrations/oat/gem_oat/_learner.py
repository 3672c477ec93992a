"""`Learner`: Oat's learner, with the advantages of gem_core."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from oat.algorithms.ppo import PPOLearner
from oat.algorithms.ppo_multiturn import PPOMultiTurnLearner
from oat.utils.ops import masked_sum

from gem_core._tasks import evaluation_tasks
from gem_core._util.files import write_atomically
from gem_core.advantages import ReturnStats, returns
from gem_core.advantages._inputs import checked_advantages
from gem_core.errors import UnsupportedTrainer
from gem_core.rollout import Episode
from gem_core.rollout._sources import SourceLedger, split_by_source
from gem_core.tasks import EnvChoice
from gem_core.trainers import batch_metrics
from gem_core.trainers._failures import evaluation_logs, pack_outline
from gem_core.trainers._interface import expect_listed
from gem_oat import _SUPPORTED
from gem_oat._args import Args, dataset_rows
from gem_oat._rows import Collected, TurnRow
from gem_oat._tasks import COUNTERS, Progress, progress_of, task_order, task_prompts

expect_listed(_SUPPORTED, "oat")


class Learner(PPOLearner):  # type: ignore[misc]
    """Learns from the turns that actors collected; see `gem_oat._rows.TurnRow`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.args.rollout_options()  # imports the user's modules

    def _init(self, args: Args, actors: list[Any]) -> None:
        self._choice = args.choose_estimator()
        self._collected: list[Collected] = []
        self._stats = ReturnStats()
        self._ledger = SourceLedger()
        self._computed = False  # whether Oat has asked for the advantages of this update
        self._done = progress_of(args)
        super()._init(args, actors)
        if args.length_norm_constant is not None:
            divisor = args.length_norm_constant
            self.masked_aggregator = functools.partial(masked_sum, constant_normalizer=divisor)
        if args.resume_dir:
            self.strategy.load_ckpt(self.model.model, args.resume_dir, args.resume_tag)
            args.resume_dir = ""  # otherwise Oat would load the checkpoint again, and only into its learners
            self.__dict__.update(self._done.counters, steps=self._done.steps)
            self._broadcast_to_vllm()

    def prepare_data(self, strategy: Any, tokenizer: Any) -> None:
        """Load tasks instead of prompts, the same on all ranks; `task_order` distributes them."""
        args: Args = self.args
        self.prompts_dataset = task_prompts(args.sources, dataset_rows(args), args.seed)
        order = task_order(args, dist.get_rank(), len(self.prompts_dataset), self._done)
        self.prompts_dataloader = strategy.setup_dataloader(
            self.prompts_dataset, args.rollout_batch_size_per_device, sampler=order
        )
        self.eval_prompts_dataset = evaluation_tasks(args.eval_sources, args.max_eval, repeat=args.eval_n)
        self.eval_prompts_dataloader = None  # `evaluate` distributes the tasks

    def process_feedback_data(self, data_list: Sequence[TurnRow] | Sequence[Sequence[TurnRow]]) -> None:
        """Keep the rows, and once per actor the statistics and outlines that came with them."""
        if self.steps <= self._done.steps:  # Oat counts from 1 when it resumes
            self.steps += self._done.steps
        rows = [row for part in data_list for row in ([part] if isinstance(part, TurnRow) else part)]
        self._started = int(rows[0].info["actor/started_tasks"])
        # Oat takes the largest number of each row, which is a return or an advantage, and with a critic it
        # counts episodes.
        self.actor_info["actor/avg_reward"] = fmean(row.reward for row in rows)
        self.prompt_consumed += self.args.rollout_batch_size_per_device - len(data_list)
        super().process_feedback_data(data_list)
        collected = rows[0].collected
        assert collected is not None
        if dist.get_rank(self._same_actor_group) == 0:  # learners that share an actor share its turns
            self._collected.append(collected)

    def compute_monte_carlo_advantages(
        self, rewards: torch.Tensor, response_masks: torch.Tensor
    ) -> torch.Tensor:
        """Return the advantage of each row; see `gem_oat._rows.turn_values` for what `rewards` holds.

        Args:
            rewards: Values of shape (rows, tokens), 0 except on the last response token.
            response_masks: Mask of shape (rows, tokens), 1 on response tokens.

        Returns:
            Advantages, float32 of shape (rows,).
        """
        self._computed = True
        values = rewards.sum(-1, keepdim=True)
        if not self._choice.estimator.uses_stats:
            return values[:, 0]
        collected = ReturnStats().merge(*(part.stats for part in self._collected))
        lengths: dict[str, Any] = {}
        if "lengths" in self._choice.needs:
            lengths["lengths"] = response_masks.sum(-1, keepdim=True)
        result = self._choice.compute(
            values,
            torch.ones_like(values),
            stats=collected if self._choice.scope == "collected" else None,
            process_group=dist.group.WORLD,
            **lengths,
        )
        self._stats = result.stats
        advantages: torch.Tensor = result.advantages[:, 0]
        return advantages

    def learn(self, learning_round: int) -> dict[str, float]:
        """Run one update; return Oat's metrics and the common metrics of gem_core.

        Raises:
            UnsupportedTrainer: Oat has updated the model without asking for the advantages of gem_core.
        """
        info: dict[str, float] = super().learn(learning_round)
        if not self._computed:
            raise UnsupportedTrainer("gem_oat: Oat has updated the model with its own advantages")
        info.update(self._gem_metrics())
        for name, reward in (("zero", 0), ("one", 1)):  # Oat counts returns or advantages
            info[f"train/all_{name}_rewards_count"] = float(
                sum(row.reward == reward for row in self.pi_buffer)
            )
        self._collected, self._computed = [], False
        return info

    def _gem_metrics(self) -> dict[str, float]:
        """Return the metrics of all episodes on all ranks, the same on each: Oat averages them over ranks.

        Raises:
            EnvError: All episodes of an environment are lost; see `SourceLedger`.
        """
        collected = ReturnStats().merge(*(part.stats for part in self._collected))
        episodes = [episode for part in self._collected for episode in part.episodes]
        ranks: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, (episodes, collected.to_wire(), self._started))
        self._tasks = [started for _, _, started in ranks][:: self.args.num_gpus_per_actor]
        stats = self._stats
        if not self._choice.estimator.uses_stats:
            stats = ReturnStats().merge(*(ReturnStats.from_wire(wire) for _, wire, _ in ranks))
        everything = [episode for episodes, _, _ in ranks for episode in episodes]
        source_metrics = self._ledger.close_step(f"step {self.steps}", *split_by_source(everything))
        return batch_metrics(everything, stats) | source_metrics

    def eval_and_log(self, train_info: dict[str, float], eval: bool = False, save: bool = False) -> None:
        """Evaluate, save, and log as Oat does, and add the progress to a checkpoint."""
        super().eval_and_log(train_info, eval, save)
        checkpoint = Path(self.save_path, "checkpoints", f"step_{self.steps:05}")
        if self.strategy.is_rank_0() and checkpoint.is_dir():
            steps = self.prompt_consumed // self.args.rollout_batch_size_per_device
            counters = {name: getattr(self, name) for name in COUNTERS}
            Progress(steps, self._tasks, counters).write(checkpoint)

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
            lines = (pack_outline(episode) + "\n" for _, episode in played)
            write_atomically(Path(self.save_path, "eval_results", f"{steps}.jsonl"), lines)
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
                played.append((EnvChoice.of(task).label, episode))
        return played


class CriticLearner(Learner, PPOMultiTurnLearner):  # type: ignore[misc]
    """Learns with a critic of turns: Oat's multi-turn PPO, with the advantages of ``--estimator gae``."""

    def _init(self, args: Args, actors: list[Any]) -> None:
        super()._init(args, actors)
        # Oat reads the value of a state at its first token, where a causal model has seen no other token.
        self.critic.module.register_forward_hook(lambda critic, states, values: values.flip(-1))

    def compute_advantages(self, rewards: Any, values: Any, *unused: Any) -> tuple[Any, Any]:
        """Return the advantages of the turns of an episode, and the targets of the critic.

        Args:
            rewards: Floats of shape (turns,).
            values: Floats of shape (turns + 1,): the critic's values of the states in which the turns were
                chosen, and an additional last one, which is ignored, because the value after the last turn is
                0.
            unused: The ends of episodes, and gamma and lambda, which the estimator already has.

        Returns:
            Two float32 arrays of shape (turns,).
        """
        self._computed = True
        choice, values = self._choice, values[:-1]
        (targets,) = returns([rewards], choice.gamma)
        given = [np.array(rewards)], [np.array(values)]  # copies, which the estimator may change
        computed = choice.estimator(given[0], values=given[1], gamma=choice.gamma, **choice.options)
        (advantages,) = checked_advantages(choice.name, computed, [len(rewards)])
        if choice.estimator.critic_learns == "advantage":
            targets = advantages + values
        return advantages.astype(np.float32), targets.astype(np.float32)
