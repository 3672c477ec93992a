r"""Write the table of styles in which models write moves, and of the games that read each of them.

    python tools/parse_matrix.py    # writes the table into docs/environments/games.md

A style is one way to write a move. A game reads a style if it plays the intended move.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from marked import with_part

import gem_core
from gem_core._util.files import write_atomically

PAGE = Path(__file__).parents[1] / "docs" / "environments" / "games.md"
MOVES = {
    "GuessTheNumber": "7",
    "Mastermind": "3 1 4 2",
    "Minesweeper": "reveal 2 3",
    "TowerofHanoi": "A C",
    "FifteenPuzzle": "up",
    "Sudoku": "1 4 3",
    "Game2048": "left",
    "Sokoban": "down",
    "Crosswords": "0 3 e",
    "WordSearch": "0 0 0 4",
    "Hangman": "e",
    "Wordle": "crane",
    "WikiGame": "",
}
"""A move of each game; WikiGame's is a link of its first page."""
WORDS = ("FifteenPuzzle", "Game2048", "Sokoban", "Hangman", "Wordle", "WikiGame")
"""Games whose move is one word or title, which has no parts."""
ONE_PART = (*WORDS, "GuessTheNumber")
DIRECTIONS = ("FifteenPuzzle", "Game2048", "Sokoban")
CELLS = ("Minesweeper", "Sudoku", "Crosswords")
"""Games whose move begins or ends with a row and a column."""
NUMBERS = ("GuessTheNumber", "Mastermind", "Minesweeper", "Sudoku", "Crosswords", "WordSearch")

Style = tuple[str, str]
"""Description, and the response with ``@`` for the move, or ``@NAME`` for a variant of it."""

STYLES: tuple[Style, ...] = (
    ("a box", r"\boxed{@}"),
    ("spaces in the box", r"\boxed{ @ }"),
    ("line breaks in the box", "\\boxed{\n@\n}"),
    ("a space before the brace", r"\boxed {@}"),
    ("`\\fbox`", r"\fbox{@}"),
    ("a doubled backslash", r"\\boxed{@}"),
    ("a box in a box", r"\boxed{\boxed{@}}"),
    ("dollar signs around the box", r"$\boxed{@}$"),
    ("double dollar signs around the box", r"$$\boxed{@}$$"),
    ("LaTeX brackets around the box", r"\[\boxed{@}\]"),
    ("asterisks around the box", r"**\boxed{@}**"),
    ("backticks around the box", r"`\boxed{@}`"),
    ("a sentence around the box", r"So I play \boxed{@}."),
    ("thinking before the box", r"<think>\boxed{0}?</think> \boxed{@}"),
    ("another box before it", r"First \boxed{wrong one}, no: \boxed{@}"),
    ("an empty box after it", r"\boxed{@}, as asked in \boxed{}"),
    ("a placeholder after it", r"\boxed{@}, in the form \boxed{...}"),
    ("the same box twice", r"\boxed{@} \boxed{@}"),
    ("`\\text`", r"\boxed{\text{@}}"),
    ("`\\textbf`", r"\boxed{\textbf{@}}"),
    ("`\\texttt`", r"\boxed{\texttt{@}}"),
    ("`\\mathrm`", r"\boxed{\mathrm{@}}"),
    ("`\\mathbf`", r"\boxed{\mathbf{@}}"),
    ("`\\mbox`", r"\boxed{\mbox{@}}"),
    ("`\\color`", r"\boxed{\color{red}{@}}"),
    ("`\\textcolor`", r"\boxed{\textcolor{red}{@}}"),
    ("`\\underline`", r"\boxed{\underline{@}}"),
    ("`\\Large`", r"\boxed{\Large @}"),
    ("`\\boldsymbol`", r"\boxed{\boldsymbol{@}}"),
    ("dollar signs in the box", r"\boxed{$@$}"),
    ("asterisks in the box", r"\boxed{**@**}"),
    ("one asterisk in the box", r"\boxed{*@*}"),
    ("backticks in the box", r"\boxed{`@`}"),
    ("double quotation marks", r'\boxed{"@"}'),
    ("single quotation marks", r"\boxed{'@'}"),
    ("typographic quotation marks", "\\boxed{\u201c@\u201d}"),
    ("round brackets", r"\boxed{(@)}"),
    ("square brackets", r"\boxed{[@]}"),
    ("braces", r"\boxed{{@}}"),
    ("angle brackets", r"\boxed{<@>}"),
    ("a period", r"\boxed{@.}"),
    ("an exclamation mark", r"\boxed{@!}"),
    ("a comma at the end", r"\boxed{@,}"),
    ("a semicolon at the end", r"\boxed{@;}"),
    ("thin spaces", r"\boxed{\,@\,}"),
    ("ties", r"\boxed{~@~}"),
    ("`Answer:`", r"\boxed{Answer: @}"),
    ("`Move:`", r"\boxed{Move: @}"),
    ("`My guess is`", r"\boxed{My guess is @}"),
    ("`action =`", r"\boxed{action = @}"),
    ("capitals", r"\boxed{@CAPITALS}"),
    ("commas between the parts", r"\boxed{@COMMAS}"),
    ("brackets around parts with commas", r"\boxed{(@COMMAS)}"),
    ("square brackets around parts with commas", r"\boxed{[@COMMAS]}"),
    ("semicolons between the parts", r"\boxed{@SEMICOLONS}"),
    ("`->` between the parts", r"\boxed{@ARROWS}"),
    ("a Unicode arrow between the parts", "\\boxed{@UNICODE}"),
    ("`\\to` between the parts", r"\boxed{@TOS}"),
    ("`\\rightarrow` between the parts", r"\boxed{@RIGHTARROWS}"),
    ("`to` between the parts", r"\boxed{@WORDS}"),
    ("the cell in brackets", r"\boxed{@CELL}"),
    ("`row 1 col 4`", r"\boxed{@ROW}"),
    ("`row=1, column=4`", r"\boxed{@ROW=}"),
    ("decimals that are zero", r"\boxed{@DECIMALS}"),
    ("a plus sign", r"\boxed{@PLUS}"),
    ("a verb before a direction", r"\boxed{move @}"),
    ("an arrow for a direction", r"\boxed{@ARROW}"),
    ("an initial for a direction", r"\boxed{@INITIAL}"),
    ("numbers in words", r"\boxed{@NUMERALS}"),
    ("digits without separators", r"\boxed{@JOINED}"),
    ("two moves in one box", r"\boxed{@ or @}"),
    ("a sentence in the box", r"\boxed{I would like to play @}"),
    ("JSON in the box", r'\boxed{"move": "@"}'),
    ("the column before the row", r"\boxed{@COLUMN}"),
    ("no braces", r"\boxed @"),
    ("an unclosed box", r"\boxed{@"),
    ("an answer tag", "<answer>@</answer>"),
    ("no box", "@"),
)  # fmt: skip
_NUMERALS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_JOINS = {
    "COMMAS": ", ", "SEMICOLONS": "; ", "ARROWS": " -> ", "UNICODE": " \u2192 ", "TOS": r" \to ",
    "RIGHTARROWS": r" \rightarrow ", "WORDS": " to ",
}  # fmt: skip


def written(game: str, move: str, layout: str) -> str | None:
    """Return the move of a game in a style; None if the style does not apply to the game."""
    words = move.split()
    for name, join in _JOINS.items():
        if f"@{name}" in layout:
            if game in ONE_PART or (game == "Minesweeper" and name not in ("COMMAS", "SEMICOLONS")):
                return None
            return layout.replace(f"@{name}", join.join(words))
    cell = (1, 2) if game == "Minesweeper" else (0, 1)
    if any(name in layout for name in ("@CELL", "@ROW", "@COLUMN")):
        if game not in CELLS:
            return None
        row, column = (words[place] for place in cell)
        pair = {"@CELL": f"({row}, {column})", "@ROW=": f"row={row}, column={column}",
                "@ROW": f"row {row} col {column}", "@COLUMN": f"column {column} row {row}"}  # fmt: skip
        name = next(name for name in pair if name in layout)
        rest = " ".join(word for place, word in enumerate(words) if place not in cell)
        both = f"{rest} {pair[name]}" if game == "Minesweeper" else f"{pair[name]} {rest}"
        return layout.replace(name, both)
    if "@CAPITALS" in layout:
        return layout.replace("@CAPITALS", move.upper()) if move.upper() != move else None
    if any(name in layout for name in ("@DECIMALS", "@PLUS", "@NUMERALS", "@JOINED")):
        if game not in NUMBERS:
            return None
        forms = {
            "@DECIMALS": [f"{word}.0" if word.isdigit() else word for word in words],
            "@PLUS": [f"+{word}" if word.isdigit() else word for word in words],
            "@NUMERALS": [_NUMERALS[int(word)] if word.isdigit() else word for word in words],
            "@JOINED": ["".join(words)],
        }
        if "@JOINED" in layout and game in ("GuessTheNumber", "Minesweeper", "Crosswords"):
            return None
        name = next(name for name in forms if name in layout)
        return layout.replace(name, " ".join(forms[name]))
    if any(name in layout for name in ("@ARROW", "@INITIAL", "move @")):
        if game not in DIRECTIONS:
            return None
        arrow = {"up": "\u2191", "down": "\u2193", "left": "\u2190"}[move]
        return layout.replace("@ARROW", arrow).replace("@INITIAL", move[0].upper()).replace("@", move)
    return layout.replace("@", move)


@lru_cache(maxsize=1)
def matrix() -> dict[str, dict[str, bool]]:
    """Return for each style the games that read it, among the games to which it applies."""
    table: dict[str, dict[str, bool]] = {name: {} for name, _ in STYLES}
    for game, usual in MOVES.items():
        env: Any = gem_core.make(f"game:{game}-v0").unwrapped
        env.reset(seed=0)
        move = usual or next(title for title in env._choices() if title.isascii())
        plays: list[Any] = []
        play = env.play
        env.format_error_ends = False
        env.turn_limit = 10_000
        if usual:
            env.play = lambda move, plays=plays: (plays.append(move), ("", 0.0, "continue"))[1]
        start = env.get_state()
        env.step(f"\\boxed{{{move}}}")
        expected = plays[-1] if usual else env.current["title"]
        for name, layout in STYLES:
            response = written(game, move, layout)
            if response is None:
                continue
            env.set_state(start)
            env.turn_limit = 10_000
            plays.clear()
            env.step(response)
            table[name][game] = (plays[-1:] == [expected]) if usual else env.current["title"] == expected
        env.play = play
        env.close()
    return table


def page_table() -> str:
    """Return the table as Markdown."""
    layouts = dict(STYLES)
    lines = ["| style | response, with M for the move | read by | rejected by |", "|---|---|---|---|"]
    for name, games in matrix().items():
        read = [game for game, reads in games.items() if reads]
        rejected = [game for game, reads in games.items() if not reads]
        everyone = "every game" if len(games) == len(MOVES) else "every game to which it applies"
        lines.append(
            f"| {name} | {_cell(layouts[name])} | {everyone if not rejected else ', '.join(read) or 'none'} "
            f"| {everyone if not read else ', '.join(rejected) or 'none'} |"
        )
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Return the layout as code in a cell, with the names of the variants spelled out."""
    names = {
        "@CAPITALS": "REVEAL 2 3", "@COMMAS": "1, 4, 3", "@SEMICOLONS": "1; 4; 3", "@ARROWS": "A -> C",
        "@UNICODE": "A \u2192 C", "@TOS": r"A \to C", "@RIGHTARROWS": r"A \rightarrow C", "@WORDS": "A to C",
        "@CELL": "reveal (2, 3)", "@ROW=": "row=1, column=4 3", "@ROW": "row 1 col 4 3", "@DECIMALS": "7.0",
        "@PLUS": "+7", "@ARROW": "\u2191", "@INITIAL": "U", "@NUMERALS": "seven", "@JOINED": "3142",
        "@COLUMN": "column 4 row 1 3",
    }  # fmt: skip
    for name, example in names.items():
        if name in text:
            text = text.replace(name, example)
            break
    text = text.replace("@", "M")
    text = text.replace("\n", " ").replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def main() -> None:
    """Write the table into the page."""
    write_atomically(PAGE, [with_part(PAGE.read_text(encoding="utf-8"), "styles", page_table() + "\n")])


if __name__ == "__main__":
    main()
