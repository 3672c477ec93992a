"""ReBN and REINFORCE with and without the KL penalty."""

from dataclasses import replace

from studies import GUESS, SHORT_RUN, Study

STUDY = Study(
    title="ReBN and REINFORCE with and without the KL penalty",
    question=(
        "Does ReBN learn better than plain REINFORCE if the penalty for divergence from the initial model is "
        "absent, and does the penalty restrain REINFORCE more, because its advantages are smaller?"
    ),
    tasks={"guess": replace(GUESS, note="Numbers from 1 to 10 in 4 turns. Bisection always succeeds.")},
    arms={
        "REINFORCE": {"estimator": "reinforce", "kl": 0.0},
        "ReBN": {"estimator": "rebn", "kl": 0.0},
        "REINFORCE, KL 0.3": {"estimator": "reinforce", "kl": 0.3},
        "ReBN, KL 0.3": {"estimator": "rebn", "kl": 0.3},
        "control": {"estimator": "rebn", "kl": 0.0, "zero_advantages": True},
    },
    tuned_like={"control": "ReBN"},
    baseline="REINFORCE",
    pairs=(("ReBN, KL 0.3", "REINFORCE, KL 0.3"), ("ReBN, KL 0.3", "ReBN")),
    options={**SHORT_RUN, "gamma": 0.9},
    more_metrics=("gem/return", "gem/turns"),
    grid={"learning_rate": (0.0005, 0.0015, 0.005, 0.015)},
)
