"""Steps and resets per second of the word games and puzzles against gem-llm, as in bench_games."""

from __future__ import annotations

import contextlib
import io
import random
import statistics
import string
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import gem
import nltk
from bench_games import STACKS, game_line, responses, settings

import gem_core
from gem_envs._games.words import words

GAMES = (
    "FifteenPuzzle", "Game2048", "Sudoku", "Sokoban", "Wordle", "Hangman", "Crosswords", "WordSearch",
)  # fmt: skip
SLOW = {("Sudoku", ""), ("Sudoku", "-hard"), ("Sokoban", ""), ("Sokoban", "-hard")}
"""Games whose reset takes half a second or more in gem-llm; they get fewer rounds and no wrappers."""
RESETS, PEER_RESETS = 300, 3
LONGEST_MS = 50.0


def provide_words(folder: Path) -> None:
    """Replace gem-llm's download: 850 basic words, as in the original, and a longer list."""
    corpus = folder / "corpora" / "words"
    corpus.mkdir(parents=True)
    common_words = [word for length in range(3, 9) for word in words("common", length)]
    rare_words = [word for length in range(3, 9) for word in words("rare", length)]
    (corpus / "en-basic").write_text("\n".join(random.Random(0).sample(common_words, 850)))
    (corpus / "en").write_text("\n".join(common_words + rare_words))
    nltk.data.path.insert(0, str(folder))
    nltk.download = lambda *args, **kwargs: True


def moves(game: str, kwargs: dict[str, Any]) -> list[str]:
    """Return a thousand responses with valid moves, the same for both sides."""
    rng = random.Random(0)

    def numbers(low: int, high: int, count: int) -> str:
        return " ".join(str(rng.randint(low, high)) for _ in range(count))

    def line() -> str:
        row, (col, last) = rng.randrange(9), sorted(rng.sample(range(9), 2))
        return f"{row} {col} {row} {last}"

    move = {
        "Sudoku": lambda: numbers(1, kwargs["scale"], 3),
        "Wordle": lambda: rng.choice(words("common", kwargs["word_length"])),
        "Hangman": lambda: rng.choice(string.ascii_lowercase),
        "Crosswords": lambda: f"{numbers(0, 6, 2)} {rng.choice(string.ascii_lowercase)}",
        "WordSearch": line,
    }.get(game, lambda: rng.choice(["up", "down", "left", "right"]))
    return responses(move)


def own_arguments(game: str, variant: str) -> dict[str, Any]:
    """Return our arguments for the same game; `clues` of gem-llm's Sudoku is the number of removed cells."""
    kwargs = settings(game, variant)
    if game == "Sudoku":
        kwargs["clues"] = kwargs["scale"] ** 2 - kwargs["clues"]
    return kwargs


def reset_lines(game: str, quick: bool) -> list[common.Result]:
    """Measure how often per second our hard games can be reset, and how long the slowest resets take."""
    env = gem_core.make(f"game:{game}-v0-hard", **own_arguments(game, "-hard"))
    seconds = []
    for seed in range(30 if quick else RESETS):
        start = time.process_time()
        env.reset(seed=seed)
        seconds.append(time.process_time() - start)
    slowest = 1000 * sorted(seconds)[len(seconds) * 99 // 100]
    peer = gem.make(f"game:{game}-v0-hard")
    peers = []
    for seed in range(1 if quick else PEER_RESETS):
        start = time.process_time()
        peer.reset(seed)
        peers.append(time.process_time() - start)
    rates = 1 / statistics.mean(seconds), 1 / statistics.mean(peers)
    name = f"game: {game}-hard, resets"
    note = f"peer: gem-llm, mean of {len(peers)}; CPU time"
    return [
        common.Result(name, *rates, rates[0] / rates[1], unit="resets/s", at_least=50, note=note),
        common.Result(
            f"{name}, p99", slowest, LONGEST_MS, slowest / LONGEST_MS, unit="ms", at_most=1,
            note=f"peer: the limit; {len(seconds)} seeds, CPU time",
        ),
    ]  # fmt: skip


def run(quick: bool) -> list[common.Result]:
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        provide_words(Path(folder))
        lines = []
        for stack in STACKS:
            for game in GAMES:
                for variant in ("", "-easy", "-hard"):
                    slow = (game, variant) in SLOW
                    if slow and (quick or stack != "bare" or (game, variant) == ("Sokoban", "-hard")):
                        continue  # its resets have separate lines
                    lines.append(
                        game_line(
                            game, variant, stack, quick,
                            moves_of=moves, own=own_arguments(game, variant), rounds=2 if slow else 9,
                        )
                    )  # fmt: skip
        return [*lines, *reset_lines("Sudoku", quick), *reset_lines("Sokoban", quick)]


if __name__ == "__main__":
    common.main(run)
