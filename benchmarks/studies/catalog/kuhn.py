"""Self-play on Kuhn poker."""

from studies import Study, Task

STUDY = Study(
    title="Self-play on Kuhn poker",
    question="Which estimator learns most from self-play, measured by the return against a random opponent?",
    tasks={
        "kuhn": Task(
            'multi:KuhnPoker-v0(opponent="self")',
            tiny={"warm_start_steps": 300},
            options={"eval_env": ["multi:KuhnPoker-v0"]},
        )
    },
    arms={
        "REINFORCE": {"estimator": "reinforce"},
        "ReBN": {"estimator": "rebn"},
        "RAE": {"estimator": "rae"},
    },
    baseline="REINFORCE",
    options={
        "gamma": 1.0,
        "kl": 0.0,
        "lr": 0.0015,
        "steps": 40,
        "episodes_per_step": 256,
        "warmup_steps": 3,
        "eval_episodes": 1000,
        "eval_every": 10,
    },
    metric="gem/return",
    panels=(("gem/return", "return"), ("train/entropy", "entropy per token")),
    notes=(
        "The learning rate is not tuned: both sides of the training episodes are the same policy, so their "
        "return says nothing. The exploitability of the policies has not been computed.",
    ),
)
