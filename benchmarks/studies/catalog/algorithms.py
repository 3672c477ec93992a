"""Figure 4 of the paper on a small scale: five algorithms on eight environments."""

from studies import ONE_ANIMAL, SHORT_RUN, SMALL_MASTERMIND, SUMS, Study, Task

_WORDS = {"vocab_size": 1024, "warm_start_steps": 300}
_GAME = {"warm_start_steps": 300}

STUDY = Study(
    title="Five algorithms on eight environments",
    question="How does ReBN compare with REINFORCE, GRPO, RLOO, and PPO on eight environments?",
    tasks={
        "letters": Task("rg:letter_counting", tiny=_WORDS),
        "sums": Task(SUMS, tiny=_WORDS),
        "legs": Task(ONE_ANIMAL, tiny=_WORDS),
        "guess": Task("game:GuessTheNumber-v0-easy", tiny=_GAME),
        "mastermind": Task(SMALL_MASTERMIND, tiny=_GAME),
        "mines": Task("game:Minesweeper-v0(rows=4, cols=4, num_mines=2, max_turns=8)", tiny=_GAME),
        "files": Task("math:FileArithmetic-v0-python(modulus=3)", tiny=_GAME),
        "pages": Task("qa:MultiHop-v0-easy(documents=1)", tiny=_WORDS),
    },
    arms={
        "REINFORCE": {"estimator": "reinforce"},
        "ReBN": {"estimator": "rebn"},
        "GRPO": {"estimator": "grpo"},
        "RLOO": {"estimator": "rloo"},
        "PPO": {"estimator": "gae"},
    },
    baseline="REINFORCE",
    pairs=(("ReBN", "GRPO"), ("ReBN", "RLOO"), ("ReBN", "PPO")),
    options={
        **SHORT_RUN,
        "gamma": 0.9,
        "kl": 0.0,
        "group_size": 8,
        "eval_episodes": 300,
    },
    metric="gem/return",
    grid={"learning_rate": (0.0015, 0.005, 0.015)},
    tuning_seeds=(0,),
    notes=(
        "Sums have two terms of one digit, leg counting has one animal, Minesweeper has 16 cells, and "
        "questions have one page. A pilot showed that the model does not learn the default sizes of sums, "
        "leg counting, and Mastermind-easy within this budget.",
    ),
)
