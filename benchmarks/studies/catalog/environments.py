"""Figure 1 of the paper on a small scale: ReBN and REINFORCE on 24 environments."""

from studies import Study, Task

_GAMES = ("Crosswords", "FifteenPuzzle", "GuessTheNumber", "Hangman", "Mastermind", "Minesweeper")
_MORE_GAMES = ("Sokoban", "Sudoku", "TowerofHanoi", "WordSearch", "Wordle")
_PUZZLES = (
    "leg_counting",
    "letter_counting",
    "chain_sum",
    "spell_backward",
    "number_sorting",
    "letter_jumble",
    "propositional_logic",
    "bitwise_arithmetic",
)
_OTHERS = {
    "arithmetic": "math:Arithmetic-v0-easy",
    "files": "math:FileArithmetic-v0-python(modulus=3)",
    "hops": "qa:MultiHop-v0-easy(documents=1)",
    "programs": "code:SmallTasks-v0-easy(num_tests=2)",
    "proofs": "logic:Proofs-v0-d0(distractors=False)",
}
_ENVS = {
    **{name: f"game:{name}-v0-easy" for name in (*_GAMES, *_MORE_GAMES)},
    **{name: f"rg:{name}" for name in _PUZZLES},
    **_OTHERS,
}

STUDY = Study(
    title="ReBN and REINFORCE on 24 environments",
    question="On how many environments does an agent learn from random legal play, and does ReBN learn more?",
    tasks={
        name: Task(env, tiny={"hidden_size": 256, "layers": 6, "vocab_size": 4096})
        for name, env in _ENVS.items()
    },
    arms={"REINFORCE": {"estimator": "reinforce"}, "ReBN": {"estimator": "rebn"}},
    baseline="REINFORCE",
    options={
        "gamma": 0.9,
        "kl": 0.0,
        "learning_rate": 0.0005,
        "steps": 60,
        "episodes_per_step": 512,
        "max_tokens_per_turn": 128,
        "warmup_steps": 3,
        "eval_episodes": 300,
        "eval_every": 20,
    },
    metric="gem/return",
    seeds=range(100, 103),
    models=(0,),
    notes=("One learning rate for all environments, and one initial model per environment.",),
)
