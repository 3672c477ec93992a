"""Episodes of up to 128 turns."""

from studies import Study, Task, gradients

STUDY = Study(
    title="Episodes of up to 128 turns",
    question="How do estimators and discounts compare if an episode can take 128 turns?",
    tasks={
        "2048": Task(
            "game:Game2048-v0(target_tile=128, max_turns=128)",
            tiny={"warm_start_steps": 300, "vocab_size": 512},
            note="With uniformly random moves, the return is 0.90, and an episode takes 104 turns.",
            measure=gradients.noise,
        )
    },
    arms={
        "REINFORCE, gamma 1": {"estimator": "reinforce", "gamma": 1.0},
        "REINFORCE, gamma 0.9": {"estimator": "reinforce", "gamma": 0.9},
        "ReBN, gamma 1": {"estimator": "rebn", "gamma": 1.0},
        "ReBN, gamma 0.9": {"estimator": "rebn", "gamma": 0.9},
        "GRPO, gamma 1": {"estimator": "grpo", "gamma": 1.0},
    },
    baseline="REINFORCE, gamma 1",
    pairs=(
        ("ReBN, gamma 1", "GRPO, gamma 1"),
        ("ReBN, gamma 0.9", "ReBN, gamma 1"),
        ("ReBN, gamma 0.9", "REINFORCE, gamma 0.9"),
    ),
    options={
        "context": "rebuild",
        "kl": 0.0,
        "group_size": 8,
        "steps": 30,
        "episodes_per_step": 64,
        "warmup_steps": 2,
        "eval_episodes": 100,
    },
    metric="gem/return",
    more_metrics=("gem/success", "gem/turns", "noise"),
    grid={"learning_rate": (0.0015, 0.005)},
    tuning_seeds=(0,),
    models=(0,),
    panels=(
        ("gem/return", "return"),
        ("gem/turns", "turns per episode"),
        ("train/grad_norm", "norm of the gradient"),
    ),
    notes=(
        "The prompt of each turn shows only the latest board. The initial model has seen only conversations, "
        "so its first answers often have the wrong format, which ends the episode.",
        "Noise: share of the squared norm of the gradient of 32 episodes that is noise, estimated from eight "
        "batches with the weights before and after training. All arms use the same episodes before training.",
    ),
)
