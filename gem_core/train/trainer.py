"""The training loop: roll out, give credit, update, write down. One process, CPU or CUDA.

    outcome = train(TrainConfig(env=["game:GuessTheNumber-v0-easy"], out="runs/guess"))
    outcome.mean("after", "gem/success")

A step is a function of the run's seed, the step's number and the state in the last checkpoint, so
a run that was killed goes on as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import torch

from gem_core.advantages import ReturnStats, returns
from gem_core.advantages.registry import get_estimator
from gem_core.errors import CheckpointError, EnvError
from gem_core.eval.play import evaluation_tasks
from gem_core.eval.summary import evaluation_metrics
from gem_core.rollout import AppendContext, Episode, TraceWriter, episode_metrics, read_traces
from gem_core.rollout.models import context_limit, load_model, load_processor, pick_device
from gem_core.rollout.sampler import BatchingPolicy
from gem_core.rollout.trajectory import trainable_turn_rewards
from gem_core.rollout.vision import tokenizer_of
from gem_core.tasks import TaskRow
from gem_core.train.checkpoint import (
    drop_checkpoints,
    list_checkpoints,
    load_state,
    remove_unfinished,
    save_checkpoint,
    write_text,
)
from gem_core.train.config import TrainConfig
from gem_core.train.models import prepare_model
from gem_core.train.objective import Batch, make_batch, policy_loss, score_tokens, token_weights
from gem_core.train.report import Outcome, Reporter, write_report
from gem_core.train.rollouts import Rollouts, training_tasks
from gem_core.train.sinks import MetricSinks, require_packages

logger = logging.getLogger(__name__)

TRACES_NAME = "traces.jsonl"
_EVALUATION = "evaluation"


def train(config: TrainConfig, reporter: Reporter | None = None) -> Outcome:
    """Train, evaluate before and after, and leave a folder with everything there is to see.

    The folder `config.out` holds ``metrics.jsonl`` (one line a step), ``evaluation.json``,
    ``curve.png``, ``episodes.txt``, ``traces.jsonl``, ``config.json`` and ``checkpoints/``.

    Args:
        config: Checked already; see `TrainConfig`.
        reporter: Told what happens while it happens; None tells nobody.

    Raises:
        ConfigError: The folder cannot be written, or a limit does not fit the model.
        ModelError: The model or its tokenizer cannot be loaded.
        CheckpointError: A checkpoint cannot be written or does not belong to this run.
        EnvError: Every episode of a step failed; the state before that step has been saved.
        MissingDependency: A package that the run would need later is not installed.
    """
    with contextlib.ExitStack() as resources:
        return Trainer(config, reporter or Reporter(), resources).run()


class _Weights(NamedTuple):
    """Of the regularisers, at one step."""

    entropy: float
    kl: float


@dataclass
class Progress:
    """What a checkpoint holds besides weights; plain data."""

    step: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    """One dict per step."""
    before: dict[str, dict[str, float]] = field(default_factory=dict)
    """Evaluation of the first weights: environment id to metrics."""


class Trainer:
    """One run; `train` is the way in, and closes what is put in `resources`."""

    def __init__(self, config: TrainConfig, reporter: Reporter, resources: contextlib.ExitStack) -> None:
        self.config = config
        self.reporter = reporter
        resources.callback(reporter.close)
        self.folder = config.prepare_folder()
        remove_unfinished(self.folder)
        require_packages(config)
        if config.threads:
            torch.set_num_threads(config.threads)
        torch.manual_seed(config.seed)
        checkpoints = list_checkpoints(self.folder) if config.resume else []
        state = load_state(checkpoints[-1]) if checkpoints else None
        if state is not None:
            changed = config.differences(state["config"])
            if changed:
                raise CheckpointError(
                    f"{checkpoints[-1]} was written with other options ({', '.join(changed)}); "
                    "use them again, another folder, or --no-resume"
                )
        device = pick_device(config.device)
        source = prepare_model(config, reporter)
        self.processor = load_processor(source)
        self.tokenizer = tokenizer_of(self.processor)
        self.context = AppendContext(self.processor)
        self.model = load_model(str(checkpoints[-1]) if checkpoints else source, device, config.dtype)
        limit = context_limit(self.model, config.max_total_tokens)
        self.rollouts = resources.enter_context(contextlib.closing(Rollouts(config, self.context, limit)))
        self.reference = load_model(source, device, config.dtype) if config.kl else None
        self.critic: torch.nn.Module | None = None
        if config.needs_critic:
            self.critic = torch.nn.Linear(self.model.config.get_text_config().hidden_size, 1).to(device)
            torch.nn.init.zeros_(self.critic.weight)
        self.parameters = [*self.model.parameters(), *(self.critic.parameters() if self.critic else ())]
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=config.learning_rate,
            betas=(0.9, config.adam_beta2),
            weight_decay=config.weight_decay,
        )
        self.progress = Progress()
        if state is not None:
            self._restore(state)
        else:  # those of a run that is replaced would be taken for this one's
            drop_checkpoints(self.folder)
        write_text(self.folder / "config.json", json.dumps(config.to_dict(), indent=2) + "\n")
        self._keep_traces_of_the_past()
        sinks = MetricSinks(config, self.folder, self.progress.history)
        self.sinks = resources.enter_context(contextlib.closing(sinks))

    # -- the run ------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Evaluate, train to the last step, evaluate again, write the report."""
        config, progress = self.config, self.progress
        if progress.step == 0:
            progress.before, first = self._evaluate("before")
        else:
            first = []
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
            if config.trace_every and progress.step % config.trace_every == 0:
                self._trace(episodes[: config.trace_episodes])
            if progress.step % config.save_every == 0 or progress.step == config.steps:
                self._save()
                saved = progress.step
        self.reporter.stop()
        after, last = self._evaluate("after")
        outcome = Outcome(
            folder=self.folder,
            checkpoint=list_checkpoints(self.folder)[-1],
            history=progress.history,
            before=progress.before,
            after=after,
        )
        write_report(outcome, config, last)
        self.reporter.finish(outcome, first, last)
        return outcome

    def _step(self, step: int) -> tuple[dict[str, float], list[Episode]]:
        config = self.config
        began = time.perf_counter()
        tasks = training_tasks(config, step)
        episodes = self._play(tasks, self._policy(f"{config.seed}/train"), f"step {step}", step)
        rolled_out = time.perf_counter()
        metrics: dict[str, float] = {"step": step, **episode_metrics(episodes)}
        trained = [episode for episode in episodes if episode.trainable]
        pictures = self.context.pictures
        credit, targets = self._give_credit(trained, make_batch(trained, pictures=pictures))
        metrics |= credit
        metrics |= self._update(step, make_batch(trained, pictures=pictures), targets)
        metrics["time/rollout"] = rolled_out - began
        metrics["time/update"] = time.perf_counter() - rolled_out
        return metrics, episodes

    def _play(self, tasks: Sequence[TaskRow], policy: BatchingPolicy, name: str, step: int) -> list[Episode]:
        episodes = self.rollouts.play(tasks, policy, name=name)
        failed = [episode for episode in episodes if not episode.trainable]
        if failed:
            error = next((episode.error for episode in failed if episode.error), "no turn was taken")
            if len(failed) == len(episodes):
                raise EnvError(
                    f"{name}: all {len(episodes)} episodes failed, so there is nothing to learn from; "
                    f"the first error: {error}"
                )
            logger.warning("%s: %d of %d episodes failed; the first error: %s",
                           name, len(failed), len(episodes), error)  # fmt: skip
        for episode in episodes:
            episode.metadata |= {"step": step, "gamma": self.config.gamma}
        return episodes

    # -- credit -------------------------------------------------------------------------------

    def _give_credit(
        self, episodes: Sequence[Episode], batch: Batch
    ) -> tuple[dict[str, float], torch.Tensor]:
        """Set `Turn.advantage` of every turn; returns metrics and the critic's target per turn."""
        config = self.config
        rewards = trainable_turn_rewards(episodes)
        stats = ReturnStats.from_returns(returns(rewards, config.gamma))
        metrics = stats.metrics()
        estimator = get_estimator(config.estimator)
        needs: dict[str, Any] = {}
        if config.needs_groups:
            needs["group_ids"] = [episode.metadata["group"] for episode in episodes]
        values: list[list[float]] = []
        if config.needs_critic:
            values = needs["values"] = self._values(episodes, batch)
            needs["lam"] = config.lam
        advantages = estimator.reference()(rewards, gamma=config.gamma, **needs)
        for episode, credit in zip(episodes, advantages, strict=True):
            for turn, advantage in zip(episode.turns, credit, strict=True):
                turn.advantage = 0.0 if config.zero_advantages else float(advantage)
        targets = [
            advantage + value
            for credit, predicted in zip(advantages, values, strict=bool(values))
            for advantage, value in zip(credit, predicted, strict=True)
        ]
        return metrics, torch.tensor(targets, dtype=torch.float32)

    @torch.no_grad()
    def _values(self, episodes: Sequence[Episode], batch: Batch) -> list[list[float]]:
        """The critic's value of the state before each turn, per episode."""
        values = torch.zeros(int(batch.turn_ids.max()) + 1)
        for part in batch.chunks(self.config.max_tokens_per_pass):
            part = part.to(self.model.device)
            hidden = score_tokens(self.model, part, hidden=True).hidden
            predicted, turns = self._turn_values(part, hidden)
            values[turns.cpu()] = predicted.cpu()
        remaining = iter(values.tolist())
        return [[next(remaining) for _ in episode.turns] for episode in episodes]

    def _turn_values(self, part: Batch, hidden: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Critic's values at the token before each turn's first one, and the numbers of those turns."""
        assert hidden is not None
        assert self.critic is not None
        before = (part.turn_ids[:, 1:] >= 0) & (part.turn_ids[:, 1:] != part.turn_ids[:, :-1])
        return self.critic(hidden[:, :-1][before].float()).squeeze(-1), part.turn_ids[:, 1:][before]

    # -- update -------------------------------------------------------------------------------

    def _update(self, step: int, batch: Batch, targets: torch.Tensor) -> dict[str, float]:
        config = self.config
        self._set_learning_rate(step)
        left = 1 - (step - 1) / config.steps
        regular = _Weights(config.entropy * left, config.kl * left)
        updates = config.epochs * config.minibatches
        sums: dict[str, float] = {"train/loss": 0.0, "train/entropy": 0.0, "train/grad_norm": 0.0}
        self.model.train()
        for epoch in range(config.epochs):
            order = list(range(len(batch)))
            if updates > 1:
                Random(f"{config.seed}/update/{step}/{epoch}").shuffle(order)
            for number in range(config.minibatches):
                rows = order[number :: config.minibatches]
                if not rows:
                    continue
                minibatch = batch.select(rows)
                weights = token_weights(minibatch.response_mask, minibatch.turn_ids, config.loss_scale)
                tokens = float(minibatch.response_mask.sum())
                self.optimizer.zero_grad(set_to_none=True)
                for part in minibatch.chunks(config.max_tokens_per_pass):
                    part = part.to(self.model.device)
                    loss, entropy = self._part_loss(
                        part, targets, float(weights.sum()), tokens, regular, updates > 1
                    )
                    loss.backward()
                    sums["train/loss"] += loss.item() / updates
                    sums["train/entropy"] += entropy / updates
                norm = torch.nn.utils.clip_grad_norm_(self.parameters, config.max_grad_norm)
                self.optimizer.step()
                sums["train/grad_norm"] += float(norm) / updates
        self.model.eval()
        sums["train/lr"] = self.optimizer.param_groups[0]["lr"]
        return sums

    def _part_loss(
        self,
        part: Batch,
        targets: torch.Tensor,
        denominator: float,
        tokens: float,
        regular: _Weights,
        several_updates: bool,
    ) -> tuple[torch.Tensor, float]:
        """Loss of a part of a minibatch, and its share of the mean entropy per token."""
        config = self.config
        scores = score_tokens(
            self.model,
            part,
            temperature=config.temperature,
            entropy=True,
            hidden=self.critic is not None,
        )
        assert scores.entropy is not None
        loss = policy_loss(
            scores.logprobs,
            # One update a step is on policy: the ratio is 1 by definition, whatever the rounding
            # of the sampler.
            part.logprobs if several_updates else scores.logprobs.detach(),
            part.advantages,
            part.response_mask,
            turn_ids=part.turn_ids,
            scale=config.loss_scale,
            clip=config.clip if several_updates else None,
            denominator=denominator,
        )
        entropy = scores.entropy.sum() / tokens
        if regular.entropy:
            loss = loss - regular.entropy * entropy
        if self.reference is not None:
            with torch.no_grad():
                first = score_tokens(self.reference, part, temperature=config.temperature).distribution
            gap = (scores.distribution.exp() * (scores.distribution - first)).sum() / tokens
            loss = loss + regular.kl * gap
        if self.critic is not None:
            values, turns = self._turn_values(part, scores.hidden)
            errors = (values - targets.to(values.device)[turns]).square().sum()
            loss = loss + config.value_weight * errors / max(1, len(targets))
        return loss, entropy.item()

    def _set_learning_rate(self, step: int) -> None:
        config = self.config
        share = min(1.0, step / config.warmup_steps) if config.warmup_steps else 1.0
        if config.lr_schedule == "linear":
            share *= 1 - (1 - config.lr_end) * (step - 1) / max(1, config.steps - 1)
        for group in self.optimizer.param_groups:
            group["lr"] = config.learning_rate * share

    # -- evaluation and records ---------------------------------------------------------------

    def _policy(self, seed: str) -> BatchingPolicy:
        ends = {self.tokenizer.eos_token_id, self.context.end_of_turn_id} - {None}
        pad = self.tokenizer.pad_token_id
        return BatchingPolicy(
            self.model,
            eos_token_ids=ends,
            pad_token_id=next(iter(ends)) if pad is None else pad,
            temperature=self.config.temperature,
            seed=seed,
            max_batch=self.config.max_batch,
            pictures=self.context.pictures,
        )

    def _evaluate(self, when: str) -> tuple[dict[str, dict[str, float]], list[Episode]]:
        """Play the held-out seeds of every environment with the sampled policy."""
        config = self.config
        results: dict[str, dict[str, float]] = {}
        played: list[Episode] = []
        if config.eval_episodes:
            self.reporter.note(f"evaluation {when} training: {config.eval_episodes} held-out seeds")
        for source in config.eval_sources if config.eval_episodes else ():
            tasks = evaluation_tasks(source, config.eval_episodes)
            # The same name and so the same random numbers before and after: what differs is the policy.
            name = f"{_EVALUATION} of {source.label}"
            episodes = self._play(tasks, self._policy(f"{config.seed}/eval"), name, self.progress.step)
            results[source.label] = evaluation_metrics(episodes)
            played += episodes
            self._trace(episodes[: config.trace_episodes])
        recorded = {"before": self.progress.before or results}
        if when == "after":
            recorded["after"] = results
        write_text(self.folder / "evaluation.json", json.dumps(recorded, indent=2) + "\n")
        return results, played

    def _trace(self, episodes: Sequence[Episode], file: str = TRACES_NAME) -> None:
        with TraceWriter(self.folder / file, decode=self.tokenizer.decode) as traces:
            for episode in episodes:
                traces.write(episode)

    def _keep_traces_of_the_past(self) -> None:
        """Drop the traces of steps and evaluations that the resumed run will do again."""
        path, rewritten = self.folder / TRACES_NAME, f".{TRACES_NAME}.{os.getpid()}"
        if not path.exists():
            return
        done = self.progress.step
        kept = []
        for episode in read_traces(path) if done else ():
            step, evaluation = episode.metadata["step"], episode.metadata["request"].startswith(_EVALUATION)
            if step == 0 or step < done or (step == done and not evaluation):
                kept.append(episode)
        try:
            self._trace(kept, rewritten)
            os.replace(self.folder / rewritten, path)
        finally:
            (self.folder / rewritten).unlink(missing_ok=True)

    # -- checkpoints --------------------------------------------------------------------------

    def _save(self) -> None:
        progress = self.progress
        save_checkpoint(
            self.folder,
            progress.step,
            self.model,
            self.processor,
            {
                "config": self.config.to_dict(),
                "optimizer": self.optimizer.state_dict(),
                "critic": self.critic.state_dict() if self.critic else None,
                "torch_rng": torch.get_rng_state(),
                "history": progress.history,
                "before": progress.before,
            },
            self.config.keep_checkpoints,
        )

    def _restore(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])
        torch.set_rng_state(state["torch_rng"])
        self.progress = Progress(state["step"], state["history"], state["before"])
