"""Episodes per step, at equal numbers of episodes."""

from studies import Study, Task

_EPISODES = 7680
_SIZES = (32, 64, 128, 256, 512)

STUDY = Study(
    title="Episodes per step",
    question="Does ReBN need large batches, whose statistics are more precise?",
    tasks={"guess": Task("game:GuessTheNumber-v0-easy", tiny={"warm_start_steps": 300})},
    arms={
        f"{name}, {size}": {
            "estimator": name.lower(),
            "episodes_per_step": size,
            "steps": _EPISODES // size,
            "minibatches": max(1, size // 64),
            "eval_every": _EPISODES // size // 3,
        }
        for name in ("REINFORCE", "ReBN")
        for size in _SIZES
    },
    baseline="ReBN, 256",
    pairs=tuple((f"ReBN, {size}", f"REINFORCE, {size}") for size in _SIZES),
    more_metrics=("gem/return",),
    options={"gamma": 0.9, "kl": 0.0, "warmup_steps": 3, "eval_episodes": 500},
    grid={"learning_rate": (0.0015, 0.005, 0.015)},
    notes=(
        "An update uses 64 episodes. With 32 episodes per step it uses 32 and makes twice as many updates.",
    ),
)
