"""Training of one set of weights on episodes: advantages, loss, and optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain, compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from gem_chat.chat_templates import read_template
from gem_chat.options import make_context
from gem_chat.stop_ids import engine_stop_ids, response_stops
from gem_chat.vision import tokenizer_of
from gem_core._util.seeds import derive_rng
from gem_core.advantages import returns
from gem_core.rollout import Episode
from gem_core.rollout.estimator_inputs import EpisodeTurns
from gem_core.rollout.trajectory import trainable_turn_rewards
from gem_lab.engines.loading import context_limit, load_model, load_processor, pick_device
from gem_lab.engines.sampling import BatchingPolicy
from gem_lab.train.config import TrainConfig
from gem_lab.train.objective import Batch, make_batch, policy_loss, score_tokens, token_weights


class _Weights(NamedTuple):
    """Weights of the parts of the loss at one step."""

    policy: float
    entropy: float
    kl: float


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
        if config.chat_template is not None:  # the checkpoints will have it, too
            self.tokenizer.chat_template = read_template(config.chat_template, self.tokenizer)
        self.context = make_context(config, self.processor, stop_ids=engine_stop_ids(self.tokenizer))
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
            step: Number of the training step, from 1.
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
        return {
            "optimizer": self.optimizer.state_dict(),
            "critic": self.critic.state_dict() if self.critic else None,
            "value_model": None if self.value_model is None else self.value_model.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of `state`."""
        self.optimizer.load_state_dict(state["optimizer"])
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])
        if self.value_model is not None:
            self.value_model.load_state_dict(state["value_model"])

    # -- advantages ---------------------------------------------------------------------------

    def _set_advantages(
        self, episodes: Sequence[Episode], batch: Batch
    ) -> tuple[dict[str, float], torch.Tensor]:
        """Set `Turn.advantage` of every turn, and return metrics and the critic's target for each turn."""
        config, choice = self.config, self.config.choice
        values = self._values(episodes, batch) if config.needs_critic else []
        of_kept: dict[str, Any] = {"values": values} if values else {}
        if "baselines" in choice.needs:
            of_kept["baselines"] = [episode.metadata["baseline"] for episode in episodes]
        kept = [not (choice.truncation == "mask" and episode.truncated) for episode in episodes]
        played = [EpisodeTurns.of(episode, choice.needs) for episode in episodes]
        advantages, stats = choice.compute_turns(
            played,
            [episode.metadata["group"] for episode in episodes],
            **{name: [*compress(of_episodes, kept)] for name, of_episodes in of_kept.items()},
        )
        for episode, of_turns in zip(episodes, advantages, strict=True):
            for turn, advantage in zip(episode.turns, of_turns, strict=True):
                turn.advantage = 0.0 if config.zero_advantages else float(advantage)
        metrics = stats.metrics()
        turn_returns = returns(trainable_turn_rewards(episodes), config.gamma)
        if values and (variance := np.concatenate(turn_returns).var()):
            errors = [target - of_turns for target, of_turns in zip(turn_returns, values, strict=True)]
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

    # -- update -------------------------------------------------------------------------------

    def _update(self, step: int, batch: Batch, targets: torch.Tensor) -> dict[str, float]:
        config = self.config
        self._set_learning_rate(step)
        left = 1 - (step - 1) / config.steps
        weighted = _Weights(1.0, config.entropy * left, config.kl * left)
        if step <= config.critic_warmup:
            weighted = _Weights(0.0, 0.0, 0.0)
        updates = config.epochs * config.minibatches
        sums: dict[str, float] = {"train/loss": 0.0, "train/entropy": 0.0, "train/grad_norm": 0.0}
        self.model.train()
        for epoch in range(config.epochs):
            order = list(range(len(batch)))
            if updates > 1:
                derive_rng(config.seed, "update", step, epoch, sep="/").shuffle(order)
            for number in range(config.minibatches):
                rows = order[number :: config.minibatches]
                if not rows:
                    continue
                minibatch = batch.select(rows)
                weights = token_weights(minibatch.response_mask, minibatch.turn_ids, config.loss_scale)
                tokens = float(minibatch.response_mask.sum())
                turns = minibatch.turn_ids[minibatch.turn_ids >= 0].unique().numel()
                self.optimizer.zero_grad(set_to_none=True)
                for part in minibatch.chunks(config.max_tokens_per_pass):
                    part = part.to(self.model.device)
                    loss, entropy = self._part_loss(
                        part, targets, float(weights.sum()), tokens, turns, weighted, updates > 1
                    )
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
        self,
        part: Batch,
        targets: torch.Tensor,
        denominator: float,
        tokens: float,
        turns: int,
        weighted: _Weights,
        several_updates: bool,
    ) -> tuple[torch.Tensor, float]:
        """Return the loss of a part of a minibatch, and the part's share of the mean entropy.

        `tokens` and `turns` count the whole minibatch.
        """
        config = self.config
        scores = score_tokens(
            self.model,
            part,
            temperature=config.temperature,
            entropy=True,
            hidden=self.critic is not None and self.value_model is None,
            share_prompt=True,
        )
        assert scores.entropy is not None
        loss = policy_loss(
            scores.logprobs,
            # A single update per step is on-policy, so the ratio is exactly 1, regardless of rounding in
            # the sampler.
            part.logprobs if several_updates else scores.logprobs.detach(),
            part.advantages,
            part.response_mask,
            turn_ids=part.turn_ids,
            scale=config.loss_scale,
            clip=config.clip if several_updates else None,
            denominator=denominator,
        )
        entropy = scores.entropy.sum() / tokens
        if weighted.entropy:
            loss = loss - weighted.entropy * entropy
        if self.reference is not None and weighted.policy:
            with torch.no_grad():
                first = score_tokens(
                    self.reference, part, temperature=config.temperature, share_prompt=True
                ).distribution
            gap = (scores.distribution.exp() * (scores.distribution - first)).sum() / tokens
            loss = loss + weighted.kl * gap
        if self.critic is not None:
            hidden = scores.hidden
            if self.value_model is not None:
                hidden = score_tokens(self.value_model, part, hidden=True, share_prompt=True).hidden
            if not weighted.policy:  # only the critic learns
                loss = torch.zeros_like(loss)
                hidden = hidden.detach() if self.value_model is None and hidden is not None else hidden
            values, numbers = self._turn_values(part, hidden)
            errors = (values - targets.to(values.device)[numbers]).square().sum()
            loss = loss + config.value_weight * errors / max(1, turns)
        return loss, entropy.item()

    def _set_learning_rate(self, step: int) -> None:
        config = self.config
        share = min(1.0, step / config.warmup_steps) if config.warmup_steps else 1.0
        if config.learning_rate_schedule == "linear":
            share *= 1 - (1 - config.learning_rate_end) * (step - 1) / max(1, config.steps - 1)
        for group in self.optimizer.param_groups:
            group["lr"] = config.peak_learning_rate * share
