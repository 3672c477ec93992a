"""The training loop in one process, on CPU or CUDA: roll out, compute advantages, update, record.

    outcome = train(TrainConfig(env=["game:GuessTheNumber-v0-easy"], gamma=0.9, out="runs/guess"))
    outcome.mean("after", "gem/success")

This file is the algorithm: `Trainer` is the loop, `Learner` computes advantages and updates a model, and
`policy_loss` is the objective. A step depends only on the seed of the run, the index of the step, and the
state after the previous step, so a killed run resumes exactly from its last checkpoint.

Let k run over the N response tokens of the trainable episodes of a minibatch, with log-probability logp_k
under the current weights, log-probability old_logp_k under the weights that sampled the token, and advantage
A_k of the token's turn. The loss of the minibatch is

    token-mean   loss = -(1/N) * sum_k A_k * ratio_k
    turn-mean    loss = -(1/M) * sum_turns mean_{k in turn} A_k * ratio_k        (M turns)

with ratio_k = exp(logp_k - old_logp_k), clipped as in PPO if `clip` is not None. While the weights equal the
sampling weights, ratio_k = 1, and the gradient equals the gradient of -(1/N) * sum_k A_k * logp_k, which is
the reference for every trainer plugin (`policy_gradient`). Prompt tokens, observation tokens, padding, and
untrainable episodes contribute neither to the sum nor to N. Log-probabilities refer to the sampling
distribution, whose logits are divided by the temperature.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from functools import partial
from itertools import chain, compress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gem_chat._chat_templates import read_template
from gem_chat._failures import describe_failures, nothing_trainable
from gem_chat._options import make_context
from gem_chat._stop_ids import engine_stop_ids, response_stops
from gem_chat._vision import tokenizer_of
from gem_core._tasks import evaluation_tasks
from gem_core._util.seeds import derive_rng, derive_seed
from gem_core.advantages import returns, with_threads
from gem_core.errors import EnvError
from gem_core.rollout import Episode, episode_metrics, trainable_turn_rewards
from gem_core.rollout._estimator_inputs import EpisodeTurns
from gem_core.rollout._metrics import evaluation_metrics
from gem_core.rollout._sources import SourceLedger, split_by_source
from gem_core.tasks import TaskRow
from gem_core.trainers._estimators import threads_of
from gem_lab._arguments import check_type
from gem_lab._cut_turns import CutTurns
from gem_lab._engines.loading import context_limit, load_model, load_processor, pick_device
from gem_lab._engines.sampling import BatchingPolicy
from gem_lab.train._batches import Batch, make_batch, score_tokens
from gem_lab.train._checkpoint import agent_folder, list_checkpoints, state_errors_named
from gem_lab.train._config import TINY, LossScale, TrainConfig
from gem_lab.train._models import prepare_model
from gem_lab.train._process import tune_process
from gem_lab.train._records import EVALUATION, Progress, RunRecords, learner_of
from gem_lab.train._report import TrainOutcome, TrainReporter, write_report
from gem_lab.train._rollouts import Players, Rollouts, require_environments, training_tasks
from gem_lab.train._sinks import require_packages

logger = logging.getLogger(__name__)

_SMALL = 1_000_000
"""Number of parameters below which one thread is faster per CPU second."""


def train(config: TrainConfig, reporter: TrainReporter | None = None) -> TrainOutcome:
    """Train a model, and evaluate it before and after training.

    The folder `config.out` holds the results: ``metrics.jsonl`` (one line per step), ``evaluation.json``,
    ``evaluations.jsonl`` (the results of each evaluation seed), ``curve.png``, ``episodes.txt``,
    ``traces.jsonl``, ``config.json``, and ``checkpoints/``.

    Args:
        config: Options of the run.
        reporter: Observer that is notified of the progress; None for no observer.

    Returns:
        Metrics of every step and of both evaluations, and the last checkpoint.

    Raises:
        ConfigError: The folder cannot be written, is removed during the run, or another run is using it, or
            a limit does not fit the model.
        ModelError: The model or its tokenizer cannot be loaded.
        CheckpointError: A checkpoint cannot be read or written, or does not belong to this run.
        DataError: The evaluations of the interrupted run are damaged.
        TraceError: Its traces are damaged.
        OSError: A file of the run cannot be written; the error names it.
        EnvError: All episodes of a step, of one of its environments (`SourceLedger`), or of an environment's
            evaluation before training were untrainable; the state before that step has been saved.
        MissingDependency: A package that the run needs is not installed.
    """
    check_type("config", config, TrainConfig, "such as TrainConfig(out='run', env=['game:Wordle-v0'])")
    with contextlib.ExitStack() as resources:
        return Trainer(config, reporter or TrainReporter(), resources).run()


class Trainer:
    """One training run, started by `train`, which closes everything in `resources`."""

    def __init__(self, config: TrainConfig, reporter: TrainReporter, resources: contextlib.ExitStack) -> None:
        self.config = config
        self.reporter = reporter
        resources.callback(reporter.close)
        self.records = RunRecords(config, resources)
        require_packages(config)
        pick_device(config.device)
        require_environments(config)
        tune_process(config, resources)
        checkpoint, state = self.records.newest()
        self.learners = {
            agent: Learner(
                config, prepare_model(config, model, reporter), checkpoint and agent_folder(checkpoint, agent)
            )
            for agent, model in {"": config.model, **config.agent_models}.items()
        }
        """Learners by agent; the entry "" plays and learns for all agents without separate weights."""
        if not config.threads and all(learner.size < _SMALL for learner in self.learners.values()):
            torch.set_num_threads(1)  # threads would spend more time waiting for each other than computing
        limits = [learner.max_total_tokens for learner in self.learners.values()]
        shortest = min((limit for limit in limits if limit is not None), default=None)
        rollouts = Rollouts(config, self._players("check"), shortest)
        self.rollouts = resources.enter_context(contextlib.closing(rollouts))
        self.cut_turns: CutTurns | None = None
        if config.model != TINY and config.max_tokens_per_turn == TrainConfig.max_tokens_per_turn:
            self.cut_turns = CutTurns(config.max_tokens_per_turn, "max_tokens_per_turn")
        self.progress = Progress()
        self.ledger = SourceLedger()
        if checkpoint is not None:
            with state_errors_named(checkpoint):
                self._restore(state)
        decoders = {agent: learner.tokenizer.decode for agent, learner in self.learners.items()}
        self.sinks = self.records.begin(self.progress, decoders)

    def run(self) -> TrainOutcome:
        """Evaluate, train to the last step, evaluate again, and write the report."""
        config, progress = self.config, self.progress
        first: list[Episode] = []
        if progress.step == 0:
            progress.before, first = self._evaluate("before")
        else:
            self.reporter.note(f"resumed from step {progress.step}")
        self.reporter.start(config.steps, progress.step)
        saved = progress.step
        while progress.step < config.steps:
            try:
                metrics, episodes = self._step(progress.step + 1)
            except EnvError:
                if saved != progress.step:
                    self._save()
                raise
            progress.step += 1
            progress.history.append(metrics)
            self.sinks.write(metrics)
            self.reporter.step(metrics)
            last = progress.step == config.steps
            if config.trace_every and progress.step % config.trace_every == 0:
                self.records.trace(episodes[: config.trace_episodes])
            if config.eval_every and progress.step % config.eval_every == 0 and not last:
                self._evaluate("during")
            if progress.step % config.save_every == 0 or last:
                self._save()
                saved = progress.step
        self.reporter.stop()
        after, final = self._evaluate("after")
        folder = self.records.folder
        newest = list_checkpoints(folder)[-1]
        outcome = TrainOutcome(folder, newest, progress.history, progress.before, after)
        write_report(outcome, config, final)
        self.reporter.finish(outcome, first, final)
        return outcome

    def _step(self, step: int) -> tuple[dict[str, float], list[Episode]]:
        """Play the episodes of a step, and update each learner on its own; return metrics and episodes."""
        config = self.config
        began = time.perf_counter()
        tasks = training_tasks(config, step)
        episodes = self._play(tasks, self._players("train"), f"step {step}", step)
        if "baselines" in config.choice.needs:
            self._set_baselines(step, tasks, episodes)
        rolled_out = time.perf_counter()
        if self.cut_turns is not None:
            self.cut_turns.add(*episodes)
        metrics: dict[str, float] = {"step": step}
        metrics |= self.ledger.close_step(f"step {step}", *split_by_source(episodes))
        for agent, learner in self.learners.items():
            mine = [episode for episode in episodes if learner_of(episode, self.learners) == agent]
            values = episode_metrics(mine)
            if trained := [episode for episode in mine if self._has_part(episode)]:
                values |= learner.learn(step, trained)
            metrics |= {f"{agent}/{key}" if agent else key: value for key, value in values.items()}
        metrics["time/rollout"] = rolled_out - began
        metrics["time/update"] = time.perf_counter() - rolled_out
        return metrics, episodes

    def _set_baselines(self, step: int, tasks: Sequence[TaskRow], episodes: Sequence[Episode]) -> None:
        """Play one greedy episode per task, whose return is the baseline of the episodes of the task.

        Episodes of a task whose greedy episode fails have no baseline and are left out of the update.

        Raises:
            EnvError: All greedy episodes failed.
        """
        first = {task["index"]: task for task in tasks}
        players = self._players("greedy", greedy=True)
        played = self._play([*first.values()], players, f"greedy episodes of step {step}", step)
        baselines = {one.metadata["group"]: one.total_reward for one in played if one.trainable}
        for episode in episodes:
            if episode.metadata["group"] in baselines:
                episode.metadata["baseline"] = baselines[episode.metadata["group"]]

    def _has_part(self, episode: Episode) -> bool:
        """Return whether the update includes an episode."""
        needs_baseline = "baselines" in self.config.choice.needs
        return episode.trainable and (not needs_baseline or "baseline" in episode.metadata)

    def _play(
        self, tasks: Sequence[TaskRow], players: Players, name: str, step: int, *, may_fail: bool = False
    ) -> list[Episode]:
        """Play tasks; with `may_fail`, the run continues even if no episode could be played."""
        episodes = self.rollouts.play(tasks, players, name=name)
        if failed := [episode for episode in episodes if not episode.trainable]:
            if len(failed) == len(episodes) and not may_fail:
                raise nothing_trainable(episodes, name)
            logger.warning("%s: %s", name, describe_failures(episodes))
        for episode in episodes:
            episode.metadata |= {"step": step, "gamma": self.config.gamma}
        return episodes

    def _players(self, purpose: str, *, greedy: bool = False) -> Players:
        """Return the players with the current weights; `purpose` separates their random numbers."""
        seed = derive_seed(self.config.seed, purpose, sep="/")
        return {
            agent: (learner.policy(seed, greedy=greedy), learner.context)
            for agent, learner in self.learners.items()
        }

    def _evaluate(self, when: str) -> tuple[dict[str, dict[str, float]], list[Episode]]:
        """Play the evaluation seeds of every environment with the sampled policy.

        `when` is "before", "during", or "after" training.
        """
        config, step = self.config, self.progress.step
        results: dict[str, dict[str, float]] = {}
        played: list[Episode] = []
        sources = config.eval_sources if config.eval_episodes else ()
        # An environment with few held-out items has fewer tasks than requested.
        tasks_by_source = [(source, evaluation_tasks([source], config.eval_episodes)) for source in sources]
        if tasks_by_source:
            count = sum(len(tasks) for _, tasks in tasks_by_source)
            self.reporter.note(f"evaluation {when} training: {count} episodes")
        for source, tasks in tasks_by_source:
            # The name is the same before and after training, and so are the random numbers; only the policy
            # differs.
            name, may_fail = f"{EVALUATION} of {source.label}", when != "before"
            episodes = self._play(tasks, self._players("eval"), name, step, may_fail=may_fail)
            results[source.label] = evaluation_metrics(episodes)
            played += episodes
            self.records.trace(episodes[: config.trace_episodes])
            self.records.evaluation(step, source.label, episodes)
        if when != "during":
            before = {"before": self.progress.before or results}
            self.records.evaluations(before | ({"after": results} if when == "after" else {}))
        return results, played

    def _save(self) -> None:
        models = {agent: (learner.model, learner.processor) for agent, learner in self.learners.items()}
        states = {agent: learner.state() for agent, learner in self.learners.items()}
        state = {"learners": states, "torch_rng": torch.get_rng_state()}
        self.records.save(self.progress, models, state)

    def _restore(self, state: dict[str, Any]) -> None:
        for agent, learner in self.learners.items():
            learner.restore(state["learners"][agent])
        torch.set_rng_state(state["torch_rng"])
        self.progress = Progress(state["step"], state["history"], state["before"])
        self.ledger.restore(self.progress.history)


class Learner:
    """A model with its tokenizer and optimizer and, if needed, a critic and a copy of the initial weights.

    Args:
        config: Options of the run.
        source: Folder or name of the initial weights.
        checkpoint: Folder of the weights to continue with; None to start from the initial weights.

    Raises:
        ModelError: The model or its tokenizer cannot be loaded.
        ConfigError: A limit does not fit the model.
    """

    def __init__(self, config: TrainConfig, source: str, checkpoint: Path | None) -> None:
        self.config = config
        device = pick_device(config.device)
        self.processor = load_processor(source)
        self.tokenizer = tokenizer_of(self.processor)
        self.context = make_context(config, self.processor, stop_ids=engine_stop_ids(self.tokenizer))
        if config.chat_template is not None:  # the checkpoints will have it, too
            self.tokenizer.chat_template = read_template(config.chat_template, self.tokenizer)
        self._stop_ids = response_stops(self.context, self.tokenizer).all
        load = partial(load_model, device=device, dtype=config.dtype, autocast=config.autocast)
        self.model = load(str(checkpoint or source))
        self.max_total_tokens = context_limit(self.model, config.max_total_tokens)
        self.reference = load(source) if config.kl else None
        self.critic: torch.nn.Module | None = None
        self.value_model: Any = None
        """Model on whose hidden states a separate critic works; None if it shares the policy's."""
        if config.needs_critic:
            if config.critic == "model":
                self.value_model = load(source)
            self.critic = torch.nn.Linear(self.model.config.get_text_config().hidden_size, 1).to(device)
            torch.nn.init.zeros_(self.critic.weight)
        head = [*self.critic.parameters()] if self.critic else []
        # Gradients are clipped per list, so that a separate critic does not shrink the steps of the policy.
        self.parameters = [[*self.model.parameters(), *head]]
        if self.value_model is not None:
            self.parameters = [[*self.model.parameters()], [*self.value_model.parameters(), *head]]
        self.optimizer = torch.optim.AdamW(
            [*chain(*self.parameters)],
            lr=config.peak_learning_rate,
            betas=(0.9, config.adam_beta2),
            weight_decay=config.weight_decay,
            fused=True,
        )

    @property
    def size(self) -> int:
        """Number of parameters of the model."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def policy(self, seed: str, *, greedy: bool = False) -> BatchingPolicy:
        """Return a policy that samples with the current weights.

        Args:
            seed: Determines the random numbers, together with the id of each request.
            greedy: Whether to always take the most likely token.
        """
        pad = self.tokenizer.pad_token_id
        return BatchingPolicy(
            self.model,
            eos_token_ids=self._stop_ids,
            pad_token_id=min(self._stop_ids) if pad is None else pad,
            temperature=self.config.temperature,
            top_k=int(greedy),
            seed=seed,
            max_batch=self.config.concurrency,
            image_processor=self.context.image_processor,
        )

    def learn(self, step: int, episodes: Sequence[Episode]) -> dict[str, float]:
        """Set the advantages of the episodes, update the weights, and return metrics.

        Args:
            step: Index of the training step, from 1.
            episodes: Trainable episodes, at least one.

        Returns:
            Metrics of the advantages and of the update.
        """
        batch = make_batch(episodes, image_processor=self.context.image_processor)
        metrics, targets = self._set_advantages(episodes, batch)
        metrics["train/tokens"] = float(batch.attention_mask.sum()) / len(episodes)
        return metrics | self._update(step, batch.with_advantages(episodes), targets)

    def state(self) -> dict[str, Any]:
        """Return the state to restore in addition to the weights."""
        return {name: part.state_dict() for name, part in self._stateful().items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of `state`."""
        for name, part in self._stateful().items():
            part.load_state_dict(state[name])

    def _stateful(self) -> dict[str, Any]:
        parts = {"optimizer": self.optimizer, "critic": self.critic, "value_model": self.value_model}
        return {name: part for name, part in parts.items() if part is not None}

    def _set_advantages(
        self, episodes: Sequence[Episode], batch: Batch
    ) -> tuple[dict[str, float], torch.Tensor]:
        """Set `Turn.advantage` of every turn, and return metrics and the critic's target for each turn."""
        config, choice = self.config, self.config.choice
        values = self._values(episodes, batch) if config.needs_critic else []
        inputs: dict[str, Any] = {"values": values} if values else {}
        if "baselines" in choice.needs:
            inputs["baselines"] = [episode.metadata["baseline"] for episode in episodes]
        kept = [not (choice.truncation == "mask" and episode.truncated) for episode in episodes]
        played = [EpisodeTurns.of(episode, choice.needs) for episode in episodes]
        advantages, stats = choice.compute_turns(
            played,
            [episode.metadata["group"] for episode in episodes],
            **{name: [*compress(per_episode, kept)] for name, per_episode in inputs.items()},
        )
        for episode, turn_advantages in zip(episodes, advantages, strict=True):
            for turn, advantage in zip(episode.turns, turn_advantages, strict=True):
                turn.advantage = 0.0 if config.zero_advantages else float(advantage)
        metrics = stats.metrics()
        rewards = with_threads(trainable_turn_rewards(episodes), threads_of(played))
        turn_returns = returns(rewards, config.gamma)
        if values and (variance := np.concatenate(turn_returns).var()):
            errors = [target - value for target, value in zip(turn_returns, values, strict=True)]
            metrics["train/explained_variance"] = float(1 - np.concatenate(errors).var() / variance)
        targets = np.concatenate(turn_returns)
        if choice.estimator.critic_learns == "advantage":
            targets = np.concatenate(advantages) + np.concatenate(values)
        return metrics, torch.tensor(targets, dtype=torch.float32)

    @torch.no_grad()
    def _values(self, episodes: Sequence[Episode], batch: Batch) -> list[list[float]]:
        """Return the critic's value of the state before each turn, by episode."""
        values = torch.zeros(int(batch.turn_ids.max()) + 1)
        for part in batch.chunks(self.config.max_tokens_per_pass):
            part = part.to(self.model.device)
            network = self.model if self.value_model is None else self.value_model
            hidden = score_tokens(network, part, hidden=True, share_prompt=True).hidden
            predicted, turns = self._turn_values(part, hidden)
            values[turns.cpu()] = predicted.cpu()
        remaining = iter(values.tolist())
        return [[next(remaining) for _ in episode.turns] for episode in episodes]

    def _turn_values(self, part: Batch, hidden: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the critic's value at the token before each turn, and the indices of these turns."""
        assert hidden is not None
        assert self.critic is not None
        before = (part.turn_ids[:, 1:] >= 0) & (part.turn_ids[:, 1:] != part.turn_ids[:, :-1])
        return self.critic(hidden[before].float()).squeeze(-1), part.turn_ids[:, 1:][before]

    def _update(self, step: int, batch: Batch, targets: torch.Tensor) -> dict[str, float]:
        """Take the optimizer steps of a training step, and return means over them."""
        config = self.config
        self._set_learning_rate(step)
        updates = config.epochs * config.minibatches
        sums: dict[str, float] = {"train/loss": 0.0, "train/entropy": 0.0, "train/grad_norm": 0.0}
        self.model.train()
        for epoch in range(config.epochs):
            order = list(range(len(batch)))
            if updates > 1:
                derive_rng(config.seed, "update", step, epoch, sep="/").shuffle(order)
            for first in range(min(config.minibatches, len(order))):
                minibatch = batch.select(order[first :: config.minibatches])
                self.optimizer.zero_grad(set_to_none=True)
                for part in minibatch.chunks(config.max_tokens_per_pass):
                    loss, entropy = self._part_loss(part.to(self.model.device), minibatch, targets, step)
                    loss.backward()
                    sums["train/loss"] += loss.item() / updates
                    sums["train/entropy"] += entropy / updates
                norm, *_ = [
                    torch.nn.utils.clip_grad_norm_(together, config.max_grad_norm)
                    for together in self.parameters
                ]
                self.optimizer.step()
                sums["train/grad_norm"] += float(norm) / updates
        self.model.eval()
        sums["train/learning_rate"] = self.optimizer.param_groups[0]["lr"]
        return sums

    def _part_loss(
        self, part: Batch, minibatch: Batch, targets: torch.Tensor, step: int
    ) -> tuple[torch.Tensor, float]:
        """Return the loss of a part of a minibatch, and the part's share of the mean entropy."""
        config = self.config
        tokens = float(minibatch.response_mask.sum())
        weights = token_weights(minibatch.response_mask, minibatch.turn_ids, config.loss_scale)
        left = 1 - (step - 1) / config.steps  # of the weights that are annealed
        shared = self.critic is not None and self.value_model is None
        score = partial(score_tokens, batch=part, share_prompt=True)
        scores = score(self.model, temperature=config.temperature, entropy=True, hidden=shared)
        assert scores.entropy is not None
        # A single update per step is on-policy, so the ratio is exactly 1, regardless of rounding in the
        # sampler.
        several = config.epochs * config.minibatches > 1
        loss = policy_loss(
            scores.logprobs,
            part.logprobs if several else scores.logprobs.detach(),
            part.advantages,
            part.response_mask,
            turn_ids=part.turn_ids,
            scale=config.loss_scale,
            clip=config.clip if several else None,
            denominator=float(weights.sum()),
        )
        entropy = scores.entropy.sum() / tokens
        critic_only = step <= config.critic_warmup
        if config.entropy and not critic_only:
            loss = loss - config.entropy * left * entropy
        if self.reference is not None and not critic_only:
            with torch.no_grad():
                first = score(self.reference, temperature=config.temperature).distribution
            gap = (scores.distribution.exp() * (scores.distribution - first)).sum() / tokens
            loss = loss + config.kl * left * gap
        if self.critic is not None:
            hidden = scores.hidden if shared else score(self.value_model, hidden=True).hidden
            if critic_only:
                loss = torch.zeros_like(loss)
                hidden = hidden.detach() if shared and hidden is not None else hidden
            values, turn_ids = self._turn_values(part, hidden)
            errors = (values - targets.to(values.device)[turn_ids]).square().sum()
            turns = minibatch.turn_ids[minibatch.turn_ids >= 0].unique().numel()
            loss = loss + config.value_weight * errors / max(1, turns)
        return loss, entropy.item()

    def _set_learning_rate(self, step: int) -> None:
        config = self.config
        share = min(1.0, step / config.warmup_steps) if config.warmup_steps else 1.0
        if config.learning_rate_schedule == "linear":
            share *= 1 - (1 - config.learning_rate_end) * (step - 1) / max(1, config.steps - 1)
        for group in self.optimizer.param_groups:
            group["lr"] = config.peak_learning_rate * share


def policy_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    turn_ids: torch.Tensor | None = None,
    scale: LossScale = "token-mean",
    clip: float | None = None,
    denominator: float | None = None,
) -> torch.Tensor:
    """Return the policy loss that the module's docstring defines, a scalar.

    Args:
        logprobs: Log-probabilities under the current weights, of shape (rows, tokens), like all tensors here.
        old_logprobs: Log-probabilities under the sampling weights; no gradient flows into them.
        advantages: Advantage of each token.
        mask: 1 on response tokens and 0 elsewhere.
        turn_ids: Turn of each response token and -1 elsewhere; required for "turn-mean".
        scale: "token-mean" or "turn-mean".
        clip: PPO's epsilon; None for no clipping.
        denominator: N (or M) of the whole minibatch, if the rows are only a part of it. None counts the
            tokens (or turns) of the rows.
    """
    ratio = (logprobs - old_logprobs.detach()).exp()
    gain = advantages * ratio
    if clip is not None:
        gain = torch.minimum(gain, advantages * ratio.clamp(1 - clip, 1 + clip))
    weights = token_weights(mask, turn_ids, scale)
    total = weights.sum() if denominator is None else denominator
    return -(gain * weights).sum() / total


def token_weights(mask: torch.Tensor, turn_ids: torch.Tensor | None, scale: LossScale) -> torch.Tensor:
    """Return the weight of each token before the division: 1, or 1 / (length of its turn) for "turn-mean"."""
    if scale == "token-mean":
        return mask
    if turn_ids is None:
        raise ValueError("turn-mean needs turn_ids")
    keys = turn_ids.clamp(min=0)
    lengths = mask.new_zeros(int(keys.max()) + 1).index_add(0, keys.flatten(), mask.flatten())
    return mask / lengths[keys].clamp(min=1)
