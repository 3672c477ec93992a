"""Ablation of ReBN: each of its two operations alone, and the estimators that compare groups."""

from dataclasses import replace

from studies import GUESS, SHORT_RUN, Study

STUDY = Study(
    title="Ablation of ReBN",
    question=(
        "Which part of ReBN helps: subtracting the mean of the returns, or dividing by their standard "
        "deviation? How do estimators that compare the episodes of a group, and PPO with a critic, compare?"
    ),
    tasks={"guess": replace(GUESS, note="Numbers from 1 to 10 in 4 turns. Bisection always succeeds.")},
    arms={
        "reinforce": {"estimator": "reinforce"},
        "centered": {"estimator": "centered"},
        "scaled": {"estimator": "scaled"},
        "rebn": {"estimator": "rebn"},
        "grpo, 4": {"estimator": "grpo", "group_size": 4},
        "grpo, 8": {"estimator": "grpo"},
        "rloo": {"estimator": "rloo"},
        "dr_grpo": {"estimator": "dr_grpo"},
        "gigpo": {"estimator": "gigpo"},
        "ppo": {"estimator": "gae"},
        "control": {"estimator": "rebn", "zero_advantages": True},
    },
    tuned_like={"control": "rebn"},
    baseline="reinforce",
    pairs=(("rebn", "centered"), ("rebn", "scaled"), ("rebn", "grpo, 8"), ("rebn", "ppo")),
    options={**SHORT_RUN, "gamma": 0.9, "kl": 0.0, "group_size": 8},
    more_metrics=("gem/return", "gem/turns"),
    grid={"learning_rate": (0.0005, 0.0015, 0.005, 0.015)},
    tuning_seeds=(0, 1),
    notes=(
        "All arms except `grpo, 4` play groups of 8 episodes with the same seed, so they see equally many "
        "different tasks. There is no KL penalty.",
        "RLOO's learning rate is the lowest of the grid, where its return stays close to that of the initial "
        "model.",
    ),
)
