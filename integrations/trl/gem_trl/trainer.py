"""`GemGRPOTrainer`: TRL's GRPOTrainer with GEM's episodes, an advantage per turn, and GEM's metrics."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate.utils import gather_object
from trl import GRPOConfig, GRPOTrainer

from gem_core.advantages.tensors import turn_ids_from_mask
from gem_core.errors import ConfigError, UnsupportedTrainer
from gem_core.rollout import Episode, nothing_trainable, rows_of, without_tokens
from gem_core.tasks import EnvChoice
from gem_core.trainers.estimators import EpisodeTurns
from gem_core.trainers.failures import batch_metrics, evaluation_logs
from gem_core.trainers.imports import replaced
from gem_trl import upstream
from gem_trl.config import GemConfig, check_args
from gem_trl.dataset import check_dataset, episode_return
from gem_trl.playing import Rollout

upstream.check()
DIVISORS = {"grpo": "rows", "sapo": "rows", "dr_grpo": "rows", "luspo": "rows", "bnpo": "micro-batches"}
"""What a ``loss_type`` of TRL takes its mean over, where that is not the tokens of the mask."""
NOT_BESIDE = (
    "gem_trl plays the episodes itself; omit it, or pass reward_funcs to use TRL's own rollouts with an "
    "estimator of gem_core"
)


class GemGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's GRPOTrainer; takes the arguments of that class and `gem`.

    Without `reward_funcs`, the rows of the datasets are tasks (`gem_trl.tasks`), and GEM plays an episode
    for each. With `reward_funcs`, TRL runs its own rollouts, with or without tools, and the sum of a row's
    rewards is the reward of its last turn.

    Args:
        args: Arguments of `GRPOTrainer`, by position.
        gem: Options of the rollout and of the estimator; None uses the defaults.
        kwargs: Arguments of `GRPOTrainer`, by name.

    Raises:
        GemError: An option or a task is not supported; no model has been loaded yet.
    """

    def __init__(self, *args: Any, gem: GemConfig | None = None, **kwargs: Any) -> None:
        self.gem = (gem or GemConfig()).checked()
        bound = inspect.signature(GRPOTrainer.__init__).bind(self, *args, **kwargs).arguments
        del bound["self"]
        self.gem_rollout = None if bound.get("reward_funcs") else Rollout(self.gem)
        played = self.gem_rollout is not None
        self._choice = self.gem.choose_estimator(played=played)
        config = bound.get("args") or GRPOConfig("GRPO")
        _check_loss(type(self), config)
        check_args(config, self._choice, played=played)
        if played:
            for name in ("tools", "environment_factory", "rollout_func"):
                if bound.get(name):
                    raise ConfigError(f"{name}: {NOT_BESIDE}")
            check_dataset(bound.get("train_dataset"), "train_dataset", self.gem.wrappers, for_training=True)
            check_dataset(bound.get("eval_dataset"), "eval_dataset", self.gem.wrappers, for_training=False)
            bound |= {"reward_funcs": episode_return, "rollout_func": self.gem_rollout}
        elif '"env_id"' in str(next(iter(bound.get("train_dataset") or [{}]))):
            raise ConfigError("reward_funcs: the rows are tasks, whose reward is the return; omit it")
        self._evaluated: list[tuple[str, Episode]] = []
        self._evaluation: tuple[str, int | None] = ("eval", None)
        super().__init__(**bound)
        if played and not self.use_vllm and getattr(self.accelerator.state, "fsdp_plugin", None) is not None:
            raise ConfigError("FSDP: the sampler needs whole weights in each process; use DDP or vLLM")

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        output: dict[str, torch.Tensor] = super()._generate_and_score_completions(inputs)
        training = self.model.training
        mask = output["completion_mask"] * output.get("tool_mask", 1)
        if self.gem_rollout is None:
            turn_ids = turn_ids_from_mask(mask)
            turns, outlines = self._scored_turns(turn_ids.cpu()), []
        else:
            episodes = self.gem_rollout.episodes
            turn_ids = _turn_ids(episodes, mask)
            turns = [EpisodeTurns.of(episode, self._choice.needs) for episode in episodes]
            labels = [EnvChoice.of(task).label for task in self.gem_rollout.tasks]
            outlines = list(zip(labels, map(without_tokens, episodes), strict=True))
        every_turns, played = gather_object(turns), gather_object(outlines)
        samples = self.num_generations if training else self.num_generations_eval
        groups = [number // samples for number in range(len(every_turns))]  # as in TRL's own advantages
        advantages, stats = self._choice.compute_turns(every_turns, groups)
        first = self.accelerator.process_index * len(turns)
        values = torch.zeros(mask.shape)
        for row, of_turns in enumerate(advantages[first : first + len(turns)]):
            values[row] = torch.tensor([*of_turns, 0.0])[turn_ids[row].cpu()]  # -1 takes the last value
        output["advantages"] = values.to(mask.device)
        self._log_advantages([float(of_turns.mean()) if len(of_turns) else 0.0 for of_turns in advantages])
        if not training:
            self._evaluated += played
            return output
        episodes = [episode for _, episode in played]
        if episodes and not stats.count:
            raise nothing_trainable(episodes, f"step {self.state.global_step + 1}")
        for name, value in batch_metrics(episodes, stats).items():
            self._metrics["train"][name].append(value)
        return output

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """Compute TRL's loss, with a mean over rows or micro-batches taken over the played ones only.

        The policy term is linear in the advantages, and the KL term in `beta`; both are scaled.
        """
        scale = self._counted_per_played(inputs)
        scaled = {**inputs, "advantages": inputs["advantages"] * scale}
        with replaced(self, "beta", self.beta * scale):
            return super()._compute_loss(model, scaled)  # type: ignore[no-any-return]

    def _counted_per_played(self, inputs: Mapping[str, Any]) -> float:
        """Return the divisor of the loss, in rows or micro-batches, over the number of played ones.

        As TRL counts the tokens of a token mean, this counts over the whole rollout, on all ranks.
        """
        counted = DIVISORS.get(self.loss_type)
        if counted is None:
            return 1.0
        batches = self._buffered_inputs if self.model.training else [inputs]
        masks = [batch["completion_mask"] * batch.get("tool_mask", 1) for batch in batches]
        played = torch.cat([mask.any(1) if counted == "rows" else mask.any()[None] for mask in masks])
        total = self.accelerator.reduce(torch.stack([torch.ones_like(played).sum(), played.sum()]), "sum")
        return float(total[0] / total[1].clamp(min=1)) if total[1] else 1.0

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        scores: torch.Tensor = super()._calculate_rewards(*args, **kwargs)
        self._scores = scores
        return scores

    def _scored_turns(self, turn_ids: torch.Tensor) -> list[EpisodeTurns]:
        """Return the turns of rows that TRL generated, with the whole reward on the last turn of a row."""
        scores = (self._scores * self.reward_weights.to(self._scores.device)).nansum(1)
        scores[self._scores.isnan().all(1)] = torch.nan  # no function scored the row
        first = self.accelerator.process_index * len(turn_ids)
        turns = []
        for row, score in zip(turn_ids, scores[first : first + len(turn_ids)].tolist(), strict=True):
            lengths = [] if math.isnan(score) else torch.bincount(row[row >= 0]).tolist()
            turns.append(EpisodeTurns([0.0] * (len(lengths) - 1) + [score] * bool(lengths), lengths))
        return turns

    def _log_advantages(self, means: Sequence[float]) -> None:
        """Show the mean over the turns of an episode in TRL's table of completions."""
        log = self._logs["advantages"]
        for _ in range(min(len(log), len(means))):
            log.pop()
        log.extend(means)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Evaluate, and add the common metrics of all episodes and of each environment's episodes."""
        named = isinstance(eval_dataset, str)
        dataset = self.eval_dataset[eval_dataset] if named else eval_dataset or self.eval_dataset
        size = len(dataset) * self.num_generations_eval if hasattr(dataset, "__len__") else None
        self._evaluated, self._evaluation = [], (metric_key_prefix, size)
        return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)  # type: ignore[no-any-return]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log metrics, including those of GEM at the end of an evaluation."""
        prefix, size = self._evaluation
        if self._evaluated and f"{prefix}_runtime" in logs:
            played = self._evaluated[:size]  # at the end, ranks repeat episodes to have equally many
            self._evaluated = []
            logs.update(evaluation_logs([("", episode) for _, episode in played], f"{prefix}_{{metric}}"))
            logs.update(evaluation_logs(played, f"{prefix}_{{env}}/{{metric}}"))
        super().log(logs, start_time)


def _check_loss(cls: type, config: GRPOConfig) -> None:
    """Reject a subclass that uses another loss of TRL, which may not accept an advantage per token."""
    if config.use_liger_kernel and hasattr(cls, "compute_liger_loss"):  # below 1.14
        raise ConfigError("use_liger_kernel=True: the loss of Liger does not accept an advantage per token")
    for base in cls.__mro__:
        if base is GRPOTrainer:
            return
        if base.__module__.startswith("trl.") and "_compute_loss" in vars(base):
            raise UnsupportedTrainer(
                f"gem_trl: the loss of {base.__name__} may not accept an advantage per token"
            )


def _turn_ids(episodes: Sequence[Episode], mask: torch.Tensor) -> torch.Tensor:
    """Return the turn of each completion token, -1 outside of responses.

    Raises:
        ConfigError: The mask of the loss does not cover exactly the responses.
    """
    rows = [rows_of(episode, pad_id=0)[0] for episode in episodes]
    turn_ids = [row.turn_ids[row.prompt_length :] for row in rows]
    ids = torch.tensor([of_row + [-1] * (mask.shape[1] - len(of_row)) for of_row in turn_ids])
    if not torch.equal(ids >= 0, mask.cpu() != 0):
        raise ConfigError("TRL's mask of the loss does not cover exactly the responses of the episodes")
    return ids
