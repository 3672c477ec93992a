"""A code that is shown once in a history that does not fit into the prompt."""

from studies import Study, Task

_GAME = "game:Passcode-v0(rooms=4, codes=3, wrappers={!r})"


def _task(wrappers: str, note: str) -> Task:
    tiny = {"context": "rebuild", "warm_start_steps": 300}
    return Task(_GAME.format(wrappers), tiny=tiny, note=note)


STUDY = Study(
    title="Summaries",
    question="Does a policy learn to write down what it will need, if its history does not fit?",
    tasks={
        "summaries": _task(
            "summarize(max_chars=460, max_summary=40)",
            "The history is summarized at the door, after the sign with the code is out of view.",
        ),
        "no summaries": _task(
            "concat_with_action(max_history=1)",
            "The control: the same room in the prompt, but nothing to write on. Luck is right in 1 of 3.",
        ),
        "whole history": _task("concat_with_action", "Everything fits; there is nothing to write down."),
    },
    arms={"ReBN": {"estimator": "rebn"}},
    options={
        "context": "rebuild",
        "gamma": 1.0,
        "kl": 0.0,
        "learning_rate": 0.003,
        "steps": 40,
        "episodes_per_step": 256,
        "warmup_steps": 3,
        "eval_episodes": 500,
        "eval_every": 10,
    },
    seeds=range(100, 105),
    models=(0,),
    more_metrics=("gem/turns",),
    notes=(
        "The warm start has seen random play: it copies one of the observations as its summary, and gives a "
        "random code. One learning rate for all tasks.",
    ),
)
