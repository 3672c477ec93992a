"""Training on one environment, evaluated on all."""

from studies import ONE_ANIMAL, SMALL_MASTERMIND, SUMS, Study, Task

_ENVS = {
    "guess": "game:GuessTheNumber-v0-easy",
    "twenty": "game:GuessTheNumber-v0(max_number=20, max_turns=12)",
    "mastermind": SMALL_MASTERMIND,
    "letters": "rg:letter_counting",
    "legs": ONE_ANIMAL,
    "sums": SUMS,
    "arithmetic": "math:Arithmetic-v0-easy",
    "pages": "qa:MultiHop-v0-easy(documents=1)",
}
_ALL = tuple(_ENVS.values())

STUDY = Study(
    title="Transfer between environments",
    question="Does training on one environment improve the return on others?",
    tasks={
        name: Task(
            env,
            tiny={"env": _ALL, "vocab_size": 2048, "warm_start_steps": 600, "warm_start_tokens": 500_000},
            model="all",
            options={"eval_env": [env, *(other for other in _ALL if other != env)]},
        )
        for name, env in _ENVS.items()
    },
    arms={"ReBN": {"estimator": "rebn"}},
    options={
        "gamma": 0.9,
        "kl": 0.0,
        "steps": 40,
        "episodes_per_step": 128,
        "warmup_steps": 3,
        "eval_episodes": 200,
    },
    metric="gem/return",
    grid={"learning_rate": (0.0015, 0.005)},
    tuning_seeds=(0,),
    models=(0,),
    notes=(
        "All runs start from the same model, which has seen random legal play of all environments, so that a "
        "model trained on one environment can still answer in the format of the others. Evaluations sample "
        "with the same random numbers before and after training, and with different ones in each run.",
    ),
)
