"""Whether an agent learns to call a tool, by the calls in its warm start and the reward for a call."""

from studies import Study, Task


def _wrapper(reward: float) -> str:
    shown = "Write <python>program</python> to run it."  # as in math:FileArithmetic-v0-python
    return f"tools(tools='python', max_tool_uses=2, tool_reward={reward}, instructions='{shown}')"


STUDY = Study(
    title="Learning to call a tool",
    question=(
        "Does an agent learn to call a tool if its random play before training did so in 0, 5, or 50% of the "
        "responses? Is ReBN or a reward for each call necessary?"
    ),
    tasks={
        f"{percent}%": Task(
            "math:FileArithmetic-v0(modulus=3)",
            tiny={
                "envs": ("math:FileArithmetic-v0-python(modulus=3)",),
                "warm_start_steps": 300,
                "random_calls": percent / 100,
            },
            note=f"Calls in {percent}% of the responses of the random play. Guessing solves a third.",
        )
        for percent in (0, 5, 50)
    },
    arms={
        f"{name}{', rewarded calls' * bool(reward)}": {
            "estimator": name.lower(),
            "wrappers": _wrapper(reward),
        }
        for name in ("REINFORCE", "ReBN")
        for reward in (0.0, 0.05)
    },
    baseline="REINFORCE",
    pairs=(("ReBN, rewarded calls", "ReBN"), ("ReBN, rewarded calls", "REINFORCE, rewarded calls")),
    options={
        "gamma": 0.9,
        "kl": 0.0,
        "steps": 40,
        "episodes_per_step": 128,
        "minibatches": 2,
        "max_tokens_per_turn": 48,
        "warmup_steps": 3,
        "eval_episodes": 200,
        "eval_every": 20,
    },
    more_metrics=("gem/tool_calls",),
    grid={"learning_rate": (0.0015, 0.005)},
    tuning_seeds=(0,),
    panels=(("gem/success", "success"), ("gem/tool_calls", "tool calls")),
)
