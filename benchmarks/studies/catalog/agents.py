"""A program that owns its loop, with the policy behind a gateway."""

from studies import Study, Task

STUDY = Study(
    title="An agent learns",
    question="Does a program that calls the policy through OpenAI's SDK learn from the rewards of its calls?",
    tasks={
        "guess": Task(
            "game:GuessTheNumber-v0(max_number=4, max_turns=2)",
            tiny={"warm_start_steps": 300},
            note="GuessTheNumber from 1 to 4 in 2 turns; the best policy succeeds in 0.75 of the episodes.",
        )
    },
    arms={
        "agent": {"estimator": "rebn"},
        "agent, shuffled advantages": {"estimator": "shuffled_rebn"},
        "own loop": {"estimator": "rebn", "harness": None},
    },
    options={
        "context": "append",
        "harness": "studies.agents:guess",
        "steps": 40,
        "episodes_per_step": 64,
        "kl": 0.0,
        "learning_rate": 0.005,
        "eval_episodes": 200,
    },
    baseline="agent, shuffled advantages",
    pairs=(("agent", "own loop"),),
    seeds=range(100, 104),
    models=(0,),
    more_metrics=("gem/return", "gem/turns"),
    notes=(
        "The agent is `guess` in `benchmarks/studies/agents.py`. In the control, each batch has the "
        "advantages of ReBN in a random order, so that a turn's advantage says nothing about it.",
        "The own loop plays the same episodes without a gateway.",
    ),
)
