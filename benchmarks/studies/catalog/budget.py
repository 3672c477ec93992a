"""ReBN and REINFORCE with eight times the episodes of the tuned studies, with and without a penalty."""

from studies import Study, Task

STUDY = Study(
    title="Eight times as many episodes",
    question=(
        "What do ReBN and REINFORCE reach in 61,440 episodes of a game, and of a task that requires the "
        "Python tool?"
    ),
    tasks={
        "guess": Task("game:GuessTheNumber-v0-easy", note="Bisection always succeeds, in 2.9 turns."),
        "files": Task(
            "math:FileArithmetic-v0-python(modulus=3)",
            note="Remainders of 3; guessing without the tool succeeds in a third of the episodes.",
        ),
    },
    arms={
        "REINFORCE": {"estimator": "reinforce", "kl": 0.0},
        "ReBN": {"estimator": "rebn", "kl": 0.0},
        "REINFORCE, KL 0.3": {"estimator": "reinforce", "kl": 0.3},
        "ReBN, KL 0.3": {"estimator": "rebn", "kl": 0.3},
    },
    pairs=(("ReBN, KL 0.3", "REINFORCE, KL 0.3"), ("ReBN, KL 0.3", "ReBN")),
    baseline="REINFORCE",
    options={
        "gamma": 0.9,
        "learning_rate": 0.003,
        "steps": 120,
        "episodes_per_step": 512,
        "eval_episodes": 1000,
    },
    more_metrics=("gem/return", "gem/turns", "gem/tool_calls"),
    seeds=(0, 1, 2),
    models=None,
    notes=(
        "The learning rate is not tuned. KL 0.3 is the default weight of the divergence from the initial "
        "model, which falls to 0 over the run.",
    ),
)
