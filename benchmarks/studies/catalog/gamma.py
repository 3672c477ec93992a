"""Two discount factors on a longer number game."""

from studies import Study, Task

STUDY = Study(
    title="Two discount factors",
    question="Does a lower gamma lead to shorter solutions?",
    tasks={"guess": Task("game:GuessTheNumber-v0(max_number=50, max_turns=15)")},
    arms={"gamma 0.9": {"gamma": 0.9}, "gamma 0.999": {"gamma": 0.999}},
    baseline="gamma 0.999",
    options={
        "steps": 100,
        "lr": 0.003,
        "lr_schedule": "constant",
        "kl": 0.1,
        "episodes_per_step": 512,
        "eval_episodes": 1000,
    },
    more_metrics=("gem/turns", "gem/turns_to_success"),
    panels=(
        ("gem/success", "success"),
        ("gem/turns", "turns per episode"),
        ("gem/turns_to_success", "turns of the solved episodes"),
    ),
    seeds=(0, 1, 2),
    models=None,
)
