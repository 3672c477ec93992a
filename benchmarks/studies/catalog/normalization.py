"""The first comparison of ReBN and plain REINFORCE, with the default KL penalty and without tuning."""

from studies import Study, Task

STUDY = Study(
    title="ReBN and REINFORCE with the default KL penalty",
    question=(
        "A first comparison, without tuning. The default KL penalty restrains REINFORCE more than ReBN, so "
        "the difference may not be due to normalization alone."
    ),
    tasks={"guess": Task("game:GuessTheNumber-v0-easy")},
    arms={
        "ReBN": {"estimator": "rebn"},
        "REINFORCE": {"estimator": "reinforce"},
        "control": {"estimator": "rebn", "zero_advantages": True},
    },
    baseline="REINFORCE",
    options={"gamma": 0.9, "lr": 0.003, "steps": 120, "episodes_per_step": 512, "eval_episodes": 1000},
    more_metrics=("gem/return",),
    seeds=(0, 1, 2),
    models=None,
)
