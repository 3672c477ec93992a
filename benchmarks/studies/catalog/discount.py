"""Discount factors, compared with the known optimum."""

from studies import SHORT_RUN, Study, Task

STUDY = Study(
    title="Discount factors and the known optimum",
    question="Does a gamma below 1 lead to solutions with fewer turns, and how close are they to bisection?",
    tasks={
        "ten": Task(
            "game:GuessTheNumber-v0(max_number=10, max_turns=10)",
            tiny={"warm_start_steps": 300},
            note="Bisection takes 2.9 turns on average.",
        ),
        "twenty": Task(
            "game:GuessTheNumber-v0(max_number=20, max_turns=12)",
            tiny={"warm_start_steps": 300},
            note="Bisection takes 3.7 turns on average.",
        ),
    },
    arms={f"gamma {gamma:g}": {"gamma": gamma} for gamma in (0.0, 0.5, 0.9, 0.99, 0.999, 1.0)},
    baseline="gamma 1",
    options={**SHORT_RUN, "estimator": "rebn", "kl": 0.0},
    metric="gem/turns",
    more_metrics=("gem/success", "gem/turns_to_success"),
    tuning_metric="gem/success",
    grid={"learning_rate": (0.0015, 0.005, 0.015)},
    tuning_seeds=(0, 1, 2),
    panels=(("gem/success", "success"), ("gem/turns", "turns per episode")),
)
