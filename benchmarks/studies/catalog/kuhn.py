"""Self-play on Kuhn poker."""

from studies import SHORT_RUN, Study, Task, kuhn_poker

STUDY = Study(
    title="Self-play on Kuhn poker",
    question=(
        "Which estimator comes closest to an equilibrium in self-play, and which wins most against a random "
        "opponent?"
    ),
    tasks={
        "kuhn": Task(
            'multi:KuhnPoker-v0(opponent="self")',
            tiny={"warm_start_steps": 300},
            options={"eval_env": ["multi:KuhnPoker-v0"]},
            note="The return is that against a random opponent.",
            measure=kuhn_poker.measure,
        )
    },
    arms={
        "REINFORCE": {"estimator": "reinforce"},
        "ReBN": {"estimator": "rebn"},
        "RAE": {"estimator": "rae"},
    },
    baseline="REINFORCE",
    options={
        **SHORT_RUN,
        "gamma": 1.0,
        "kl": 0.0,
        "learning_rate": 0.0015,
        "steps": 40,
        "eval_episodes": 1000,
    },
    metric="nash_conv",
    more_metrics=("forfeits", "gem/return"),
    panels=(("gem/return", "return"), ("train/entropy", "entropy per token")),
    notes=(
        "The learning rate is not tuned: both sides of the training episodes are the same policy, so their "
        "return says nothing.",
        "`nash conv` is the sum over both players of what the best response to the policy gains, in chips "
        "per hand, and 0 for an equilibrium. The policy is estimated from 3,000 sampled hands on each side, "
        "whose responses the environment reads; its errors add about 0.01 near an equilibrium. `forfeits` is "
        "the share of hands that end with an answer that the environment rejects.",
    ),
)
