"""Episodes of more than 100 turns."""

from studies import Study, Task

STUDY = Study(
    title="Episodes of more than 100 turns",
    question="How do estimators and discounts compare if an episode can take 128 turns?",
    tasks={
        "guess": Task(
            "game:GuessTheNumber-v0(max_number=200, max_turns=128)",
            tiny={"warm_start_steps": 300},
            note="Bisection takes at most 8 turns.",
        )
    },
    arms={
        f"{name}, gamma {gamma:g}": {"estimator": name.lower(), "gamma": gamma}
        for name in ("REINFORCE", "ReBN", "GRPO")
        for gamma in (0.9, 1.0)
    },
    baseline="REINFORCE, gamma 1",
    options={
        "kl": 0.0,
        "group_size": 8,
        "steps": 40,
        "episodes_per_step": 128,
        "warmup_steps": 3,
        "eval_episodes": 200,
        "eval_every": 20,
    },
    metric="gem/turns",
    more_metrics=("gem/success",),
    tuning_metric="gem/success",
    grid={"lr": (0.0015, 0.005, 0.015)},
    tuning_seeds=(0, 1),
    panels=(
        ("gem/success", "success"),
        ("gem/turns", "turns per episode"),
        ("train/grad_norm", "norm of the gradient"),
    ),
)
