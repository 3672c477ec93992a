"""One learning run for each family of environments besides the games."""

from studies import SUMS, Study, Task

STUDY = Study(
    title="A learning run for each family",
    question="Does a tiny agent that starts from random legal play improve on each family of environments?",
    tasks={
        "math": Task(
            "math:Arithmetic-v0-easy",
            tiny={"vocab_size": 512},
            options={"steps": 150, "kl": 0.1},
            note="Sums of two digits, in twelve wordings.",
        ),
        "rg": Task(
            SUMS,
            tiny={"vocab_size": 512, "warm_start_steps": 300},
            options={"steps": 80, "episodes_per_step": 256, "kl": 0.1},
            note="Sums and differences of two digits.",
        ),
        "qa": Task(
            "qa:MultiHop-v0-easy(documents=1)",
            tiny={"vocab_size": 1024, "warm_start_steps": 300},
            options={"steps": 60, "episodes_per_step": 256, "kl": 0.1},
            note="Which of the names on a page answers the question.",
        ),
        "code": Task(
            "code:SmallTasks-v0-easy(num_tests=2)",
            tiny={"vocab_size": 512, "warm_start_steps": 300},
            options={
                "steps": 45,
                "episodes_per_step": 160,
                "kl": 0.1,
                "max_tokens_per_turn": 48,
                "eval_episodes": 500,
            },
            note="Which program a sentence describes, and its number.",
        ),
        "logic": Task(
            "logic:Proofs-v0-d0(distractors=False)",
            tiny={"vocab_size": 512, "warm_start_steps": 300},
            options={"steps": 150, "episodes_per_step": 384, "kl": 0.1},
            note="Whether a statement or its negation is the fact.",
        ),
    },
    arms={"ReBN": {"estimator": "rebn"}},
    options={"gamma": 0.9, "learning_rate": 0.003, "eval_episodes": 1000, "episodes_per_step": 512},
    panels=(("gem/success", "success"), ("gem/return", "return")),
    seeds=(0,),
    models=None,
    notes=(
        "If a family has few items (100 sums of two digits, about 60 short programs, about 35,000 texts of "
        "one fact and one statement), training has covered most or all of them. The model may then have "
        "memorized the items, and the result says nothing about new ones. Questions have far more items than "
        "a run plays.",
    ),
)
