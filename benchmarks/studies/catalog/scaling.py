"""Models from 0.1 to 150 million parameters on one game."""

from studies import SHORT_RUN, Study, Task

_SIZES = {"0.1M": (64, 2), "1M": (128, 4), "10M": (384, 6), "40M": (640, 8), "150M": (1024, 12)}

STUDY = Study(
    title="Sizes of the model",
    question="Does the difference between ReBN and REINFORCE depend on the size of the model?",
    tasks={
        size: Task(
            "game:GuessTheNumber-v0-easy",
            tiny={
                "hidden_size": width,
                "layers": layers,
                "warm_start_steps": 300,
                "warm_start_learning_rate": 0.001,
            },
        )
        for size, (width, layers) in _SIZES.items()
    },
    arms={"REINFORCE": {"estimator": "reinforce"}, "ReBN": {"estimator": "rebn"}},
    baseline="REINFORCE",
    options={**SHORT_RUN, "gamma": 0.9, "kl": 0.0},
    grid={"learning_rate": (0.0001, 0.0005, 0.0015)},
    tuning_seeds=(0, 1),
    models=(0,),
)
