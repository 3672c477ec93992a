"""Solvers of tasks that run a small program or undo a cipher."""

from __future__ import annotations

import re
from collections import Counter
from math import log

from gem_envs._rg.solvers.reading import UnknownPrompt, find

_MEETING = {
    ("A#", "#A"): [],
    ("A#", "#B"): ["#B", "A#"],
    ("B#", "#A"): ["#A", "B#"],
    ("B#", "#B"): [],
}


def solve_ab(prompt: str) -> str:
    """Rewrite neighbors until none face each other; the order does not matter."""
    tokens = find(r"following program:\n\n([AB# ]*)\n", prompt)[1].split()
    done: list[str] = []
    while tokens:
        token = tokens.pop(0)
        if done and (done[-1], token) in _MEETING:
            tokens = _MEETING[done.pop(), token] + tokens
        else:
            done.append(token)
    return " ".join(done)


_MOST_STEPS = 1_000_000
_TRANSFER = re.compile(r"\[[-+<>]+\]")
_CELLS = 30_000


def solve_bf(prompt: str) -> str:
    """Interpret the program, with cells of one byte.

    Raises:
        Unreadable: The program runs too long or reads input.
    """
    code = "".join(find(r"\?\n\n(.*?)\n\n", prompt)[1].split())
    partner, opened = {}, []
    for place, symbol in enumerate(code):
        if symbol == "[":
            opened.append(place)
        elif symbol == "]":
            partner[place] = opened.pop()
            partner[partner[place]] = place
    cells, cell, place, output = bytearray(_CELLS), 0, 0, ""
    transfers = _transfers(code)
    for _ in range(_MOST_STEPS):
        if place == len(code):
            return output
        symbol = code[place]
        if place in transfers:
            times = cells[cell]
            for offset, factor in transfers[place].items() if times else ():
                cells[cell + offset] = (cells[cell + offset] + factor * times) % 256
            place = partner[place]
        elif symbol in "<>":
            cell += 1 if symbol == ">" else -1
        elif symbol in "+-":
            cells[cell] = (cells[cell] + (1 if symbol == "+" else -1)) % 256
        elif symbol == ".":
            output += chr(cells[cell])
        elif symbol in "[]":
            if bool(cells[cell]) == (symbol == "]"):
                place = partner[place]
        else:
            raise UnknownPrompt(f"not a symbol of the language: {symbol!r}")
        place += 1
    raise UnknownPrompt("the program runs too long")


def _transfers(code: str) -> dict[int, Counter[int]]:
    """Return the loops that empty a cell and add multiples of it to others, as factors by offset."""
    found = {}
    for loop in _TRANSFER.finditer(code):
        offset, factors = 0, Counter[int]()
        for symbol in loop[0][1:-1]:
            if symbol in "<>":
                offset += 1 if symbol == ">" else -1
            else:
                factors[offset] += 1 if symbol == "+" else -1
        if offset == 0 and factors[0] == -1:
            found[loop.start()] = factors
    return found


_SHARES = dict(
    zip(
        "ETAOINSHRDLCUMWFGYPBVKJXQZ",
        (12.7, 9.1, 8.2, 7.5, 7.0, 6.7, 6.3, 6.1, 6.0, 4.3, 4.0, 2.8, 2.8, 2.4, 2.4, 2.2, 2.0, 2.0, 1.9, 1.5,
         1.0, 0.8, 0.15, 0.15, 0.1, 0.07),
        strict=True,
    )
)  # fmt: skip
"""Percentage of each letter in English text."""
_WORDS = frozenset(
    re.findall(
        r"\w+",
        """A I OF TO IN IS IT HE AS AT BE BY WE ON OR NO SO DO AN MY ME IF UP THE AND WAS FOR NOT YOU HIS HAD
        BUT ARE ALL ONE HAS ITS OUT WHO HIM CAN NOW MAN THAT WITH THIS FROM HAVE THEY WERE WILL WHAT BEEN
        SHE HER OUR ANY HOW""",
    )
)
"""Frequent words of English, each worth as much as three letters in the right place."""


def solve_caesar_cipher(prompt: str) -> str:
    """Return the shifted text that is most like English, judging by its letters and short words.

    Raises:
        Unreadable: The text has fewer than three words, which is too little to judge by.
    """
    cipher = find(r"cipher text: (.*?)\. Provide only", prompt)[1]
    if len(cipher.split()) < 3:
        raise UnknownPrompt(f"too short: {cipher!r}")
    return max((_shifted(cipher, shift) for shift in range(26)), key=_likelihood)


def _shifted(text: str, shift: int) -> str:
    return "".join(chr((ord(c) - ord("A") + shift) % 26 + ord("A")) if "A" <= c <= "Z" else c for c in text)


def _likelihood(text: str) -> float:
    letters = sum(log(_SHARES[c]) for c in text if c in _SHARES)
    return letters + 3 * log(12.7) * sum(word in _WORDS for word in text.split())
