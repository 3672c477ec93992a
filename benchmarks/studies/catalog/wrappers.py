"""How agents see the past: as the whole conversation, or in a prompt that a wrapper builds for each turn."""

from studies import Study, Task

_REBUILD = {"context": "rebuild"}

STUDY = Study(
    title="Observation wrappers",
    question="How do success and the number of tokens change if an agent sees less of the past?",
    tasks={"guess": Task("game:GuessTheNumber-v0-easy", tiny={"warm_start_steps": 300})},
    arms={
        "conversation": {},
        "observations and actions": {**_REBUILD, "wrappers": "concat_with_action"},
        "observations": {**_REBUILD, "wrappers": "concat"},
        "last 2 observations": {**_REBUILD, "wrappers": "concat(max_history=2)"},
        "last observation": _REBUILD,
    },
    baseline="conversation",
    options={
        "estimator": "rebn",
        "gamma": 0.9,
        "kl": 0.0,
        "steps": 30,
        "episodes_per_step": 256,
        "warmup_steps": 3,
        "eval_episodes": 500,
        "eval_every": 10,
    },
    more_metrics=("gem/return", "gem/turns", "train/tokens"),
    grid={"lr": (0.0015, 0.005, 0.015)},
    tuning_seeds=(0, 1),
    panels=(
        ("gem/success", "success"),
        ("gem/return", "return"),
        ("train/tokens", "tokens per episode in the update"),
    ),
    notes=(
        "`conversation` keeps the sampled tokens and adds the messages of the environment. The other arms "
        "build the prompt of each turn from what the wrapper shows, so each turn is a row of its own in the "
        "update. The warm start has seen conversations only.",
    ),
)
