"""Six estimators on the game of the estimator exam."""

from studies import Study, Task

STUDY = Study(
    title="Six estimators with a transformer",
    question="Does the exam of estimators predict how a transformer learns?",
    tasks={
        "guess": Task(
            "game:GuessTheNumber-v0(max_number=7, max_turns=3)",
            tiny={"warm_start_steps": 200},
            note="GuessTheNumber from 1 to 7 in 3 turns.",
        )
    },
    arms={name: {"estimator": name} for name in ("reinforce", "rebn", "grpo", "rloo", "mt_grpo", "gigpo")},
    baseline="reinforce",
    # Without regularizer and clipping, and with one update per step, the scale of an estimator has no effect,
    # as in the exam.
    options={
        "steps": 60,
        "eval_episodes": 128,
        "episodes_per_step": 64,
        "group_size": 8,
        "minibatches": 1,
        "kl": 0.0,
        "max_grad_norm": 1000.0,
        "learning_rate": 0.003,
        "learning_rate_schedule": "constant",
    },
    metric="gem/return",
    panels=(("gem/return", "return"), ("gem/success", "success"), ("train/entropy", "entropy per token")),
    seeds=range(5),
    models=(0,),
)
