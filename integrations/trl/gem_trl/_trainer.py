"""`GemGRPOTrainer`: TRL's GRPOTrainer with GEM's episodes, an advantage per turn, and GEM's metrics."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from accelerate.utils import gather_object
from trl import GRPOConfig, GRPOTrainer

from gem_chat._failures import nothing_trainable
from gem_core._core import Split
from gem_core._util.checks import expected
from gem_core.advantages._tensors import turn_ids_from_mask
from gem_core.errors import ConfigError, EnvError, UnsupportedTrainer
from gem_core.rollout import Episode, Row
from gem_core.rollout._estimator_inputs import EpisodeTurns
from gem_core.rollout._metrics import without_tokens
from gem_core.rollout._sources import SourceLedger
from gem_core.trainers import batch_metrics
from gem_core.trainers._failures import evaluation_logs
from gem_core.trainers._imports import replaced
from gem_core.trainers._weights import row_factors
from gem_trl import _upstream
from gem_trl._config import AVERAGES, GemConfig, check_args
from gem_trl._dataset import A_DATASET, check_dataset, is_task, mix, row_source, source_rows
from gem_trl._playing import Rollout
from gem_trl._rewards import episode_return, on_own_rows, reward_funcs_of

_upstream.check()
DATASETS: dict[str, Split] = {"train_dataset": "train", "eval_dataset": "eval"}
"""Split of the tasks by argument of `GRPOTrainer`."""
DIVISORS = {"grpo": "rows", "sapo": "rows", "dr_grpo": "rows", "luspo": "rows", "bnpo": "micro-batches"}
"""What a ``loss_type`` of TRL takes its mean over, where that is not the tokens of the mask."""
NOT_BESIDE = (
    "gem_trl plays the episodes itself; omit it, or pass reward_funcs to use TRL's own rollouts with an "
    "estimator of gem_core"
)
NO_REWARD = "no reward function returned a reward"
MASKED = "vllm_importance_sampling_mode gives it the weight 0, because its importance ratio is out of range"


class ScoredRow(NamedTuple):
    """A row of a rollout.

    Attributes:
        source: The environment, or the dataset that the row comes from.
        turns: The rewards of its turns; none if the row is not trained on.
        lost: Why the row is not trained on; empty if it is.
        episode: The episode without tokens; None if GEM did not play an environment.
    """

    source: str
    turns: EpisodeTurns
    lost: str
    episode: Episode | None


class GemGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's GRPOTrainer; takes the arguments of that class and `gem`.

    Without `reward_funcs`, the rows of the datasets are tasks (`gem_trl.tasks`), and GEM plays an episode
    for each. With `reward_funcs`, the rows are prompts of your own, TRL runs its own rollouts, with or
    without tools, and the sum of a row's rewards is the reward of its last turn. With `reward_funcs` and some
    rows that are tasks, GEM plays the tasks, answers the prompts in one turn, and calls the reward functions
    with the prompts only.

    `train_dataset` and `eval_dataset` may also be a list of datasets and environments, such as
    ``[questions, "game:GuessTheNumber-v0=0.25"]``: see `gem_trl._dataset.mix`.

    Args:
        args: Arguments of `GRPOTrainer`, by position.
        gem: Options of the rollout and of the estimator; None uses the defaults.
        kwargs: Arguments of `GRPOTrainer`, by name.

    Raises:
        GemError: An option or a task is not supported; no model has been loaded yet.
    """

    def __init__(self, *args: Any, gem: GemConfig | None = None, **kwargs: Any) -> None:
        self.gem = GemConfig.given(gem).checked()
        bound = inspect.signature(GRPOTrainer.__init__).bind(self, *args, **kwargs).arguments
        del bound["self"]
        config = bound.get("args") or GRPOConfig("GRPO")
        kinds: set[bool] = set()
        for name, split in DATASETS.items():
            if bound.get(name) is not None:
                bound[name] = mix(bound[name], name, split, seed=config.seed)
                kinds |= {task for _, task in source_rows(bound[name], name)}
            elif split == "train" and not bound.get("environment_factory"):
                raise expected(name, None, A_DATASET)
            elif split == "eval" and config.eval_strategy not in (None, "no"):
                raise ConfigError(
                    f"eval_strategy={config.eval_strategy.value}: there is no {name}; add one, or omit it"
                )
        own_rows = bool(reward_funcs_of(bound))
        if own_rows and kinds == {True}:
            raise ConfigError("reward_funcs: the rows are tasks, whose reward is the return; omit it")
        played = not own_rows or True in kinds
        if own_rows:
            self.gem.one_row("reward functions score rows")
        several = not own_rows
        self.gem_rollout = Rollout(self.gem, own_rows=own_rows, several_rows=several) if played else None
        self.choice = self.gem.choose_estimator(played=played)
        _check_loss(type(self), config)
        several_rows = several and self.gem.has_several_rows
        check_args(config, self.choice, played=played, own_rows=own_rows, several_rows=several_rows)
        if played:
            for name in ("tools", "environment_factory", "rollout_func"):
                if bound.get(name):
                    raise ConfigError(f"{name}: {NOT_BESIDE}")
            for name, split in DATASETS.items():
                check_dataset(
                    bound.get(name), name, self.gem.wrappers, for_training=split == "train", own_rows=own_rows
                )
            bound |= _with_episode_return(bound, config)
            bound["rollout_func"] = self.gem_rollout
        self._evaluated: list[ScoredRow] = []
        self._evaluation: tuple[str, int | None] = ("eval", None)
        self._ledger: SourceLedger | None = None
        if self.choice.name != "grpo":  # for the model card
            self._name = f"{self.choice.name}, an estimator of gem-core"
            self._tag_names = ["trl", "gem-core", self.choice.name]
            self._paper: dict[str, str] = {}
        super().__init__(**bound)
        if played and not self.use_vllm and getattr(self.accelerator.state, "fsdp_plugin", None) is not None:
            raise ConfigError("FSDP: the sampler needs whole weights in each process; use DDP or vLLM")

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        training = self.model.training
        argument = "train_dataset" if training else "eval_dataset"
        sources = [row_source(row, argument) for row in inputs]
        if self.gem_rollout is None and any(is_task(row.get("prompt")) for row in inputs):
            raise ConfigError(
                f"{argument}: a stream with tasks and prompts of your own must begin with a task; its first "
                "row decides what plays the rows"
            )
        output: dict[str, torch.Tensor] = super()._generate_and_score_completions(inputs)
        mask = output["completion_mask"] * output.get("tool_mask", 1)
        placed: list[tuple[int, Sequence[int]]]  # the episode of each row, and its turns
        if self.gem_rollout is None:
            turn_ids = turn_ids_from_mask(mask)
            placed = [(n, range(int(row_ids.max()) + 1)) for n, row_ids in enumerate(turn_ids)]
        else:
            turn_ids = _turn_ids([row for _, row in self.gem_rollout.rows], mask)
            placed = [(episode, row.turns) for episode, row in self.gem_rollout.rows]
        rows = self._score(sources, turn_ids.cpu(), output.get("importance_sampling_ratio"))
        every_row: list[ScoredRow] = gather_object(rows)
        samples = self.num_generations if training else self.num_generations_eval
        groups = [number // samples for number in range(len(every_row))]  # as in TRL's own advantages
        advantages, stats = self.choice.compute_turns([row.turns for row in every_row], groups)
        if any(row.lost for row in every_row):
            kept = torch.tensor([n >= 0 and not rows[n].lost for n, _ in placed], device=mask.device)
            mask = mask * kept[:, None]
            output["tool_mask"] = mask
            output["num_items_in_batch"] = self.accelerator.gather(mask.sum()).sum()
        first = self.accelerator.process_index * len(rows)
        values = torch.zeros(mask.shape)
        for row, ((number, turns), factor) in enumerate(
            zip(placed, self._factors(mask, placed), strict=True)
        ):
            if number >= 0 and len(episode_advantages := advantages[first + number]):
                scaled = [episode_advantages[turn] * factor for turn in turns]
                values[row] = torch.tensor([*scaled, 0.0])[turn_ids[row].cpu()]  # -1 takes the last value
        output["advantages"] = values.to(mask.device)
        self._log_advantages([float(per_turn.mean()) if len(per_turn) else 0.0 for per_turn in advantages])
        if not training:
            self._evaluated += every_row
            return output
        step = f"step {self.state.global_step + 1}"
        played = [row.episode for row in every_row if row.episode is not None]
        if not any(row.turns.rewards for row in every_row):
            if any(episode.trainable for episode in played) or not played:
                raise EnvError(f"{step}: no row is trained on: {every_row[0].lost}")
            raise nothing_trainable(played, step)
        for name, value in (batch_metrics(played, stats) | self._count_sources(step, every_row)).items():
            self._metrics["train"][name].append(value)
        return output

    def _score(
        self, sources: Sequence[str], turn_ids: torch.Tensor, ratio: torch.Tensor | None
    ) -> list[ScoredRow]:
        """Return the episodes of this process with their rewards.

        Args:
            sources: Source of each row.
            turn_ids: Index of the turn of each token, -1 outside of responses.
            ratio: TRL's importance ratio, (rows, tokens) or (rows, 1); None without vLLM's correction.
        """
        scores = self._own_scores(len(sources))
        rows = []
        for number, (source, score) in enumerate(zip(sources, scores, strict=True)):
            outline, lost = None, NO_REWARD if math.isnan(score) else ""
            if self.gem_rollout is None:
                row_ids = turn_ids[number]
                lengths = torch.bincount(row_ids[row_ids >= 0]).tolist()
                turns = EpisodeTurns([0.0] * (len(lengths) - 1) + [score] * bool(lengths), lengths, source)
            else:
                episode = self.gem_rollout.episodes[number]
                if self.gem_rollout.tasks[number] is not None:
                    outline, lost = without_tokens(episode), ""
                elif episode.trainable and not lost:
                    episode = replace(episode, env_id=source, turns=[replace(episode.turns[0], reward=score)])
                if not episode.trainable:
                    lost = episode.error or "it has no turn"
                turns = EpisodeTurns.of(episode, self.choice.needs)
            if ratio is not None and ratio.shape[1] == 1 and not ratio[number].any():
                lost = lost or MASKED
            rows.append(ScoredRow(source, EpisodeTurns([], []) if lost else turns, lost, outline))
        return rows

    def _factors(self, mask: torch.Tensor, placed: Sequence[tuple[int, Any]]) -> list[float]:
        """Return the factor of each row of this process; see `gem_core.trainers._weights`."""
        rank, average = self.accelerator.process_index, AVERAGES.get(self.loss_type, "tokens")
        own = zip(placed, mask.sum(1).tolist(), strict=True)
        every = gather_object([((rank, episode), int(length)) for (episode, _), length in own])
        factors = row_factors(average, [length for _, length in every], [episode for episode, _ in every])
        return factors[rank * len(placed) : (rank + 1) * len(placed)]

    def _count_sources(self, step: str, rows: Sequence[ScoredRow]) -> dict[str, float]:
        """Return the metrics of each source; raise an `EnvError` if a source has lost all of its rows."""
        if self._ledger is None:
            self._ledger = SourceLedger()
            self._ledger.restore(self.state.log_history)
        trained = [row.source for row in rows if not row.lost]
        lost = [(row.source, row.lost) for row in rows if row.lost]
        return self._ledger.close_step(step, trained, lost, filled=len(lost))

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
        if self.gem_rollout is not None:  # a reward model scores all rows
            is_task = gather_object([task is not None for task in self.gem_rollout.tasks])
            scores[torch.tensor(is_task), :-1] = torch.nan
        self._scores = scores
        return scores

    def _own_scores(self, count: int) -> list[float]:
        """Return the weighted sum of the rewards of each row of this process; NaN for a row without one."""
        scores = (self._scores * self.reward_weights.to(self._scores.device)).nansum(1)
        scores[self._scores.isnan().all(1)] = torch.nan
        first = self.accelerator.process_index * count
        return scores[first : first + count].tolist()  # type: ignore[no-any-return]

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
            rows = self._evaluated[:size]  # at the end, ranks repeat episodes to have equally many
            played = [(row.source, row.episode) for row in rows if row.episode is not None]
            self._evaluated = []
            logs.update(evaluation_logs([("", episode) for _, episode in played], f"{prefix}_{{metric}}"))
            logs.update(evaluation_logs(played, f"{prefix}_{{env}}/{{metric}}"))
        super().log(logs, start_time)


def _with_episode_return(bound: Mapping[str, Any], config: GRPOConfig) -> dict[str, Any]:
    """Return the arguments of `GRPOTrainer` in which the return of an episode is a further reward."""
    funcs = reward_funcs_of(bound)
    if funcs and len(weights := config.reward_weights or funcs) != len(funcs):
        raise ConfigError(f"reward_weights={weights}: expected one for each of {len(funcs)} reward functions")
    changed: dict[str, Any] = {"reward_funcs": [*map(on_own_rows, funcs), episode_return]}
    if config.reward_weights is not None:
        changed["args"] = copy.copy(config)
        changed["args"].reward_weights = [*config.reward_weights, 1.0]
    if (classes := bound.get("reward_processing_classes")) is not None:
        changed["reward_processing_classes"] = [*(classes if isinstance(classes, list) else [classes]), None]
    return changed


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


def _turn_ids(rows: Sequence[Row], mask: torch.Tensor) -> torch.Tensor:
    """Return the turn of each completion token within its row, -1 outside of responses.

    Raises:
        ConfigError: The mask of the loss does not cover exactly the responses.
    """
    turn_ids = [row.turn_ids[row.prompt_length :] for row in rows]
    ids = torch.tensor([row_ids + [-1] * (mask.shape[1] - len(row_ids)) for row_ids in turn_ids])
    if not torch.equal(ids >= 0, mask.cpu() != 0):
        raise ConfigError("TRL's mask of the loss does not cover exactly the responses of the episodes")
    return ids
