"""How agents see the past: as the whole conversation, or in a prompt that a wrapper builds for each turn."""

from studies import GUESS, SHORT_RUN, Study

_REBUILD = {"context": "rebuild"}

STUDY = Study(
    title="Observation wrappers",
    question="How do success and the number of tokens change if an agent sees less of the past?",
    tasks={"guess": GUESS},
    arms={
        "conversation": {},
        "observations and actions": {**_REBUILD, "wrappers": "concat_with_action"},
        "observations": {**_REBUILD, "wrappers": "concat"},
        "last 2 observations": {**_REBUILD, "wrappers": "concat(max_history=2)"},
        "last observation": _REBUILD,
    },
    baseline="conversation",
    options={**SHORT_RUN, "estimator": "rebn", "gamma": 0.9, "kl": 0.0},
    more_metrics=("gem/return", "gem/turns", "train/tokens"),
    grid={"learning_rate": (0.0015, 0.005, 0.015)},
    tuning_seeds=(0, 1),
    panels=(
        ("gem/success", "success"),
        ("gem/return", "return"),
        ("train/tokens", "tokens per episode in the update"),
    ),
    notes=(
        "`conversation` keeps the sampled tokens and adds the messages of the environment. The other arms "
        "build the prompt of each turn from what the wrapper shows, so each turn is a row of its own in the "
        "update. The warm start has seen conversations only. Tokens are those of an episode in the "
        "update.",
    ),
)
