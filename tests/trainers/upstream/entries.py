"""The trainers' own estimators: where they are, which of ours they match, and by what they differ.

The table of docs/concepts/upstream.md is drawn from `ENTRIES`. In each trainer's session, a test compares
every entry with the upstream function: with its changes our estimator is equal, and without any one of them
it is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gem_lab.exam._certificates import BIASED, UNBIASED, VANISHING
from tests.trainers.upstream.batches import Batch, random_batch

VERSIONS = {
    "verl": "0.9.1",
    "openrlhf": "0.11.2",
    "oat": "0.2.4",
    "rl2": "0.0.2",
    "roll": "8eb27cc2",
    "trl": "1.16.0",
}
"""Version of each trainer whose code was read and called; ROLL has no releases, so its commit."""

TITLES = {"verl": "verl", "openrlhf": "OpenRLHF", "oat": "Oat", "rl2": "RL2", "roll": "ROLL", "trl": "TRL"}

WHITEN = {"ddof": 1, "root_eps": 1e-8}

TEXTS = {
    "ddof": "sample standard deviation (`ddof = {}`)",
    "eps": "`eps = {:.3g}`",
    "root_eps": "`eps = {:.0e}` under the root of the variance",
    "alone": "a group of one keeps its score",
    "groups": "one group for the whole batch",
    "rewards": "only the sum of the rewards, on the last turn",
    "step": {
        "token": "every response token is a step",
        "position": "every token is a step, including the environment's",
        "position without values": "every token is a step, with the value 0 on the environment's",
    },
    "whiten": "advantages normalized over the response tokens at the end ({})",
    "factor": "multiplied by episodes / episodes with a score other than 0",
    "scores_std": "divided by the standard deviation of all scores of the batch (`ddof = 1`, `eps = {:.0e}`)",
    "whiten_episodes": "normalized over the episodes of the batch (`ddof = 1`, `eps = {:.0e}`)",
    "episodes": "the mean and standard deviation of scores count an episode once per turn",
    "states": "equal states are compared across groups",
}
"""What each change is, by its name in `batches.ours`."""


@dataclass(frozen=True)
class Entry:
    """One estimator of a trainer.

    Attributes:
        trainer: Key of `VERSIONS`.
        name: Its name in the trainer, with options if it has several forms.
        where: File and function.
        ours: Name of our estimator; None if there is none.
        changes: Changes to our estimator that make it equal, see `TEXTS`.
        gamma: Discount in the comparison; 1 for an estimator without a discount.
        sizes: "ragged" if groups may have any size, "several" if not 1, "fixed" if all have one size.
        turns: Largest number of turns of an episode.
        needs: Inputs of the exam besides group ids and lengths.
        note: Remark for the table.
    """

    trainer: str
    name: str
    where: str
    ours: str | None
    changes: Mapping[str, Any] = field(default_factory=dict)
    gamma: float = 1.0
    sizes: Literal["ragged", "several", "fixed"] = "fixed"
    turns: int = 4
    needs: tuple[str, ...] = ()
    note: str = ""

    @property
    def id(self) -> str:
        """Name in tests and records."""
        return f"{self.trainer} {self.name}"

    @property
    def lam(self) -> float:
        """Default of lambda in the trainer."""
        return 0.95 if self.trainer == "roll" else 1.0

    @property
    def verdict(self) -> str:
        """Verdict of the exam, which follows from the definition; empty if there is none to follow from."""
        if self.ours is None:
            return ""
        if self.ours in ("opo", "gdpo", "gigpo") or (self.ours == "grpo" and "groups" not in self.changes):
            return BIASED
        if self.ours == "gae" and "rewards" in self.changes and self.lam < 1:
            return BIASED  # an intermediate reward counts at the end, where lambda discounts it
        scaled = {"whiten", "whiten_episodes", "scores_std", "factor"} & set(self.changes)
        own_scale = ("rebn", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "grpo")
        return VANISHING if scaled or self.ours in own_scale else UNBIASED

    def batches(self) -> list[Batch]:
        """Return the batches of the comparison; the rewards of one are so small that any epsilon counts."""
        sizes = {"ragged": [3, 1, 2, 5, 1], "several": [3, 2, 5, 2], "fixed": [4, 4, 4]}[self.sizes]
        return [
            random_batch(
                seed, sizes, gamma=self.gamma, turns=self.turns, scale=scale, shuffled=self.sizes != "fixed"
            )
            for seed, scale in ((1, 1.0), (2, 1.0), (3, 2.0**-10))
        ]

    def difference(self) -> str:
        """Return the cell of the table."""
        if self.ours is None:
            return self.note
        parts = []
        for key, value in self.changes.items():
            text = TEXTS[key]
            if isinstance(text, dict):
                parts.append(text[value])
            elif key == "whiten":
                parts.append(text.format(", ".join(_scale(*item) for item in value.items())))
            else:
                parts.append(text.format(value))
        return "; ".join(parts) or "equal"

    def discount(self) -> str:
        """Return what one factor gamma stands for."""
        if self.gamma == 1:
            return "none"
        step = str(self.changes.get("step", "turn"))
        return step.split()[0].replace("position", "any token").replace("token", "token")


def _scale(key: str, value: Any) -> str:
    return str(TEXTS[key]).format(value) if key != "ddof" or value else "`ddof = 0`"


def entries(trainer: str) -> list[Entry]:
    """Return the entries of a trainer."""
    return [entry for entry in ENTRIES if entry.trainer == trainer]


def _of(trainer: str, file: str, rows: Sequence[tuple[str, str, str | None, Mapping[str, Any]]],
        **common: Any) -> list[Entry]:  # fmt: skip
    return [
        Entry(trainer, name, f"{file}: {function}", ours, **{**common, **extra})
        for name, function, ours, extra in rows
    ]


def _changes(**changes: Any) -> dict[str, Any]:
    return {"changes": changes}


_KEPT = {"alone": "kept"}
_GRPO = {"ddof": 1, "eps": 1e-6}
_OTB = "a baseline per token from the policy's probabilities, which our estimators do not see"

VERL = _of("verl", "trainer/ppo/core_algos.py", [
    ("gae", "compute_gae_advantage_return", "gae",
     {**_changes(step="token", whiten=WHITEN), "gamma": 0.9, "needs": ("values",)}),
    ("grpo", "compute_grpo_outcome_advantage", "grpo", _changes(**_GRPO, **_KEPT)),
    ("grpo, norm_adv_by_std_in_grpo=False", "compute_grpo_outcome_advantage", "dr_grpo", _changes(**_KEPT)),
    ("grpo_vectorized", "compute_grpo_vectorized_outcome_advantage", "grpo", _changes(**_GRPO, **_KEPT)),
    ("gdpo", "compute_gdpo_outcome_advantage", "gdpo",
     {**_changes(**_GRPO, whiten=WHITEN), "sizes": "several", "needs": ("reward_components",)}),
    ("grpo_passk", "compute_grpo_passk_outcome_advantage", None,
     {"note": "the best episode of a group gets its lead over the second best, the others 0",
      "sizes": "several"}),
    ("reinforce_plus_plus_baseline", "compute_reinforce_plus_plus_baseline_outcome_advantage",
     "reinforce_plus_plus_baseline", _changes(ddof=1, root_eps=1e-8, **_KEPT)),
    ("rloo", "compute_rloo_outcome_advantage", "rloo", _changes(**_KEPT)),
    ("rloo_vectorized", "compute_rloo_vectorized_outcome_advantage", "rloo", {}),
    ("opo", "compute_opo_outcome_advantage", "opo", _changes(**_KEPT)),
    ("reinforce_plus_plus", "compute_reinforce_plus_plus_outcome_advantage", "reinforce_plus_plus",
     {**_changes(step="token", ddof=1, root_eps=1e-8), "gamma": 0.9}),
    ("remax", "compute_remax_outcome_advantage", "remax", {"needs": ("baselines",)}),
    ("gpg", "compute_gpg_outcome_advantage", "dr_grpo", _changes(factor="scored", **_KEPT)),
    ("optimal_token_baseline", "compute_optimal_token_baseline_advantage", None, {"note": _OTB}),
    ("tir_optimal_token_baseline", "compute_multi_turn_optimal_token_baseline_advantage", None,
     {"note": _OTB}),
], sizes="ragged")  # fmt: skip

OPENRLHF = _of("openrlhf", "trainer/ppo_utils/experience_maker.py", [
    (name, "RemoteExperienceMaker.compute_advantages_and_returns", ours, extra)
    for name, ours, extra in [
        ("gae", "gae", {
            **_changes(rewards="last turn", step="position without values", whiten={"ddof": 0, "eps": 0.0}),
            "gamma": 0.9, "needs": ("values",),
        }),
        ("reinforce", "reinforce_plus_plus",
         {**_changes(rewards="last turn", step="position", eps=0.0), "gamma": 0.9}),
        ("rloo", "rloo", {}),
        ("reinforce_baseline", "reinforce_plus_plus_baseline", _changes(eps=0.0)),
        ("group_norm", "grpo", _changes(ddof=1, eps=1e-9)),
        ("dr_grpo", "dr_grpo", {}),
        ("flash_reinforce", "dr_grpo", _changes(groups="batch")),
    ]
])  # fmt: skip

OAT = _of("oat", "algorithms/ppo.py", [
    ("ppo, critic_type=ppo", "PPOLearner.compute_ppo_advantages", "gae",
     {**_changes(step="token"), "gamma": 0.9, "turns": 1, "needs": ("values",)}),
    ("ppo, critic_type=ppo, whiten_adv", "PPOLearner.compute_ppo_advantages", "gae",
     {**_changes(step="token", whiten=WHITEN), "gamma": 0.9, "turns": 1, "needs": ("values",)}),
    ("ppo, critic_type=grpo", "PPOLearner.compute_monte_carlo_advantages", "grpo", _changes(ddof=1)),
    ("ppo, critic_type=drgrpo", "PPOLearner.compute_monte_carlo_advantages", "dr_grpo", {}),
]) + _of("oat", "algorithms/ppo_multiturn.py", [
    ("ppo_multiturn", "PPOMultiTurnLearner.compute_advantages", "reinforce",
     {"gamma": 0.9}),
    ("ppo_multiturn, whiten_adv", "PPOMultiTurnLearner.learning_step", "rebn",
     {**_changes(eps=1e-9), "gamma": 0.9}),
    ("ppo_multiturn, critic_type=ppo", "PPOMultiTurnLearner.compute_advantages", "gae",
     {"gamma": 0.9, "needs": ("values",)}),
])  # fmt: skip

FLOAT_EPS = 2.0**-23
"""``torch.finfo(torch.float32).eps``."""

RL2 = _of("rl2", "utils/algorithms.py", [
    (name, "compute_advantages", ours, extra)
    for name, ours, extra in [
        ("gae", "gae", {
            **_changes(step="token", whiten={"ddof": 1, "eps": FLOAT_EPS}),
            "gamma": 0.9, "needs": ("values",),
        }),
        ("reinforce", "dr_grpo", {}),
        ("reinforce, norm_var", "grpo", _changes(ddof=1, eps=FLOAT_EPS)),
        ("reinforce, global_norm", "dr_grpo", _changes(groups="batch")),
        ("reinforce, global_norm, norm_var", "grpo", _changes(groups="batch", ddof=1, eps=FLOAT_EPS)),
    ]
])  # fmt: skip

ROLL = _of("roll", "pipeline/agentic/utils.py", [
    ("gae", "agentic_compute_advantage", "gae",
     {**_changes(rewards="last turn", step="position"), "gamma": 0.9, "needs": ("values",)}),
    ("reinforce", "agentic_compute_advantage", "reinforce",
     {**_changes(rewards="last turn", step="position"), "gamma": 0.9}),
    ("reinforce, whiten_advantages", "agentic_compute_advantage", "reinforce_plus_plus",
     {**_changes(rewards="last turn", step="position", ddof=1, root_eps=1e-8), "gamma": 0.9}),
    ("agentic_reinforce", "compute_agentic_reinforce_return", "reinforce",
     {**_changes(rewards="last turn"), "gamma": 0.9}),
    ("grpo, grouping=traj_group_id, method=mean_std", "agentic_reward_norm", "grpo", _changes(**_GRPO)),
    ("grpo, grouping=traj_group_id, method=mean", "agentic_reward_norm", "dr_grpo", {}),
    ("grpo, grouping=batch, method=mean_std", "agentic_reward_norm", "grpo",
     _changes(groups="batch", **_GRPO)),
    ("step_reinforce, grouping=batch, method=mean_std", "compute_response_level_rewards", "rebn",
     {**_changes(**_GRPO), "gamma": 0.9}),
    ("gigpo, grouping=traj_group_id, method=mean_std", "compute_response_level_rewards", "gigpo",
     {**_changes(**_GRPO, episodes="per turn", states="batch"), "gamma": 0.9, "needs": ("state_keys",)}),
], sizes="ragged")  # fmt: skip

TRL = _of("trl", "trainer/grpo_trainer.py", [
    (name, "GRPOTrainer._generate_and_score_completions", ours, extra)
    for name, ours, extra in [
        ("grpo, scale_rewards=group", "grpo", _changes(ddof=1, eps=1e-4)),
        ("grpo, scale_rewards=none", "dr_grpo", {}),
        ("grpo, scale_rewards=batch", "dr_grpo", _changes(scores_std=1e-4)),
        ("grpo, multi_objective_aggregation=normalize_then_sum", "gdpo",
         {**_changes(ddof=1, eps=1e-4), "needs": ("reward_components",)}),
    ]
]) + _of("trl", "trainer/rloo_trainer.py", [
    ("rloo", "RLOOTrainer._generate_and_score_completions", "rloo", {}),
    ("rloo, normalize_advantages", "RLOOTrainer._generate_and_score_completions", "rloo",
     _changes(whiten_episodes=1e-4)),
])  # fmt: skip

ENTRIES: tuple[Entry, ...] = (*VERL, *OPENRLHF, *OAT, *RL2, *ROLL, *TRL)
