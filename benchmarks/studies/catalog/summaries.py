"""A code that is shown once in a history that does not fit into the prompt."""

from studies import Study, Task

_GAME = "game:Passcode-v0(rooms=3, codes=2, wrappers={!r})"


def _task(wrappers: str, note: str) -> Task:
    tiny = {"context": "rebuild", "warm_start_steps": 300}
    return Task(_GAME.format(wrappers), tiny=tiny, note=note)


STUDY = Study(
    title="Summaries",
    question="Does a policy learn to write down what it will need, if its history does not fit?",
    tasks={
        "summaries": _task(
            "summarize(max_chars=400, max_summary=40)",
            "At the door, the summary takes the place of the history, and of the sign with the code.",
        ),
        "no summaries": _task(
            "concat_with_action(max_history=1)",
            "The control: the same room in the prompt, but nothing to write on. Luck is right half the time.",
        ),
    },
    arms={"ReBN": {"estimator": "rebn"}},
    options={
        "context": "rebuild",
        "gamma": 1.0,
        "kl": 0.0,
        "learning_rate": 0.005,
        "steps": 40,
        "episodes_per_step": 256,
        "warmup_steps": 3,
        "eval_episodes": 300,
        "eval_every": 10,
    },
    seeds=range(100, 104),
    models=(0,),
    more_metrics=("gem/turns",),
    notes=(
        "The warm start has seen random play: it copies one of the observations as its summary, and gives a "
        "random code. One learning rate for all tasks.",
    ),
)
