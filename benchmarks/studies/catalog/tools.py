"""ReBN and plain REINFORCE on a task that requires a tool."""

from studies import Study, Task

STUDY = Study(
    title="Learning to use a tool",
    question=(
        "Do ReBN and REINFORCE learn a task that requires the Python tool? Both begin at 0.8 calls per "
        "episode, so the study cannot show that an agent never learns to call."
    ),
    tasks={"files": Task("math:FileArithmetic-v0-python(modulus=3)", note="Remainders of 3.")},
    arms={"ReBN": {"estimator": "rebn"}, "REINFORCE": {"estimator": "reinforce"}},
    baseline="REINFORCE",
    options={"gamma": 0.9, "lr": 0.003, "steps": 120, "episodes_per_step": 512, "eval_episodes": 1000},
    panels=(("gem/success", "success"), ("gem/tool_calls", "tool calls"), ("gem/return", "return")),
    more_metrics=("gem/tool_calls",),
    seeds=(0, 1, 2),
    models=None,
)
