"""Inputs of the small programming tasks, at each boundary and for each branch of their texts.

Each function takes a generator and the numbers of the text, k and m, and returns inputs: a whole number,
whole numbers on one line, or text. They hold a value on, right below, and right above each boundary, and one
value for each branch, alone where another value could hide it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

Input: TypeAlias = "int | list[int] | str"
Inputs: TypeAlias = Callable[[Random, int, int], Sequence[Input]]

WORDS = (  # noqa: SIM905
    "ox ash elm fig sky cove dune kelp moss amber brook cedar fjord grove olive harbor lagoon meadow nectar "
    "pebble ambrosia cypress juniper thicket evergreen"
).split()
_BY_LENGTH = {
    length: [word for word in WORDS if len(word) == length]
    for length in sorted({len(word) for word in WORDS})
}


def text_of(value: Input) -> str:
    """Return an input as standard input."""
    if isinstance(value, str):
        return value if value.endswith("\n") else f"{value}\n"
    return " ".join(map(str, value if isinstance(value, list) else [value])) + "\n"


# -- random inputs ------------------------------------------------------------------------------


def any_number(random: Random, k: int, m: int) -> Input:
    """Return a whole number."""
    return random.randint(-50, 99)


def any_numbers(random: Random, k: int, m: int) -> Input:
    """Return whole numbers on one line."""
    return [random.randint(-20, 60) for _ in range(random.randint(3, 9))]


def any_line(random: Random, k: int, m: int) -> Input:
    """Return a line of words."""
    return " ".join(random.choices(WORDS, k=random.randint(2, 7)))


def any_records(random: Random, k: int, m: int) -> Input:
    """Return lines of a word and a whole number."""
    return records(*((random.choice(WORDS), random.randint(0, 30)) for _ in range(random.randint(2, 6))))


def records(*rows: tuple[str, int]) -> str:
    """Return lines of a word and a whole number."""
    return "".join(f"{word} {number}\n" for word, number in rows)


# -- inputs at boundaries -----------------------------------------------------------------------


def signs(random: Random, k: int, m: int) -> Sequence[Input]:
    """Return 0, plus and minus k, and a number of either sign."""
    return 0, k, -k, random.randint(1, 99), -random.randint(1, 50)


def around_multiples(random: Random, k: int, m: int) -> Sequence[Input]:
    """Return multiples of k and their neighbors."""
    return 0, k - 1, k, k + 1, -1, -k, random.randint(2 * k, 99)


def around_either(random: Random, k: int, m: int) -> Sequence[Input]:
    """Return multiples of k and of m and their neighbors."""
    return 0, 1, -1, k, m, -k, -m, k - 1, k + 1, m - 1, m + 1


def around_m(random: Random, k: int, m: int) -> Sequence[Input]:
    """Return m, its neighbors, and a number of either sign."""
    return 0, m, m - 1, m + 1, random.randint(20, 99), -random.randint(1, 50)


def digits(random: Random, k: int, m: int) -> Sequence[Input]:
    """Return numbers around the powers of k, of either sign."""
    return 0, 1, k - 1, k, k * k - 1, k * k + 1, -1, -k, -random.randint(k + 1, 99)


def lines_around(random: Random, k: int, m: int) -> Sequence[Input]:
    """Return lines of k letters, of one less, and of more, without blanks around letter k."""
    return [_line(random, length, k) for length in (k - 1, k, k + 1, k + random.randint(3, 20))]


def _line(random: Random, length: int, k: int) -> str:
    letters = random.choices("abcdefghijklmnopqrstuvwxyz", k=length)
    for place in random.sample(range(length), length // 6):
        if 0 < place < length - 1 and abs(place - k) > 1 and " " not in letters[place - 1 : place + 2]:
            letters[place] = " "
    return "".join(letters)


def any_lines(random: Random, k: int, m: int) -> Sequence[Input]:
    """Return a letter, a word, and a line of words."""
    return random.choice("xyz"), random.choice(WORDS), str(any_line(random, k, m))


def any_rows(random: Random, k: int, m: int) -> Sequence[Input]:
    """Return one number, and several of either sign; the largest and the smallest at either end."""
    low, high = sorted(random.sample(range(2, 60), 2))
    return [-k], [high], [high, 0, low], [low, -high, high], [-high, -low], [9, 10, 9, -2]


def around_k(random: Random, k: int, m: int) -> Sequence[Input]:
    """Return rows of numbers around k; k and its neighbors also alone."""
    more = random.randint(2, 9)
    mixed = [k - 1, k - 1, k + more, k + 1, k + more, k]
    return [k], [k - 1], [k + 1], [0], [-k - more], mixed, [k, -more, k + 1]


def multiples_of_k(random: Random, k: int, m: int) -> Sequence[Input]:
    """Return rows of multiples of k and their neighbors; some rows without any."""
    times = random.randint(2, 4)
    return [k], [k + 1], [k - 1, 1], [0, -k, k + 1], [times * k, k - 1, times * k, -1]


def at_distance(random: Random, k: int, m: int) -> Sequence[Input]:
    """Return rows of numbers at a distance of m from k, one less, and one more; some rows without any."""
    far = random.randint(2, 20)
    return (
        [k - m], [k + m], [k - m - 1], [k + m + 1], [k + m + 1, k - m - 1, k + m + far],
        [k + m - 1, k, k - m + 1, k - m - far, k, k + m], [0], [-k],
    )  # fmt: skip


def lengths_around(random: Random, k: int, m: int) -> Sequence[Input]:
    """Return lines of words with k letters, one less, and more; some lines without a longer word."""
    at, above, below, far = (_word(random, length) for length in (k, k + 1, k - 1, k + 2))
    return at, above, f"{below} {at}", f"{at} {far} {below} {above} {at}", f"{above} {far}"


def _word(random: Random, length: int) -> str:
    return random.choice(_BY_LENGTH[length])


def letters_e(random: Random, k: int, m: int) -> Sequence[Input]:
    """Return lines without the letter e, with one, and with several in one word."""
    return "brook fjord", "amber", "evergreen pebble moss", f"elm {random.choice(WORDS)} olive"


def letters_to_shift(random: Random, k: int, m: int) -> Sequence[Input]:
    """Return lines with the letters that become z and a, with a and z, and with a blank."""
    last, first = (chr(97 + (place - k) % 26) for place in (25, 26))
    return last, first, "a", f"z {last}{first}", str(any_line(random, k, m))


def counts_of_words(random: Random, k: int, m: int) -> Sequence[Input]:
    """Return lines of k words, one less, and more, in no order, and with a word that occurs twice."""
    words = sorted(random.sample(WORDS, k + 1), reverse=True)
    return (
        " ".join(words[: k - 1]), " ".join(words[:k]), " ".join(words), f"{words[0]} {words[1]} {words[0]}",
        " ".join([words[-1], words[0], *words]),
    )  # fmt: skip


def records_around(random: Random, k: int, m: int) -> Sequence[Input]:
    """Return lines with k, its neighbors, and 0, alone and together."""
    one, two, three = random.sample(WORDS, 3)
    return (
        records((one, k)), records((two, k - 1)), records((three, k + 1)), records((one, 0), (two, k - 1)),
        records((two, k + 3), (three, k - 1), (one, k), (two, 0), (three, k + 1), (one, k)),
    )  # fmt: skip


def records_repeated(random: Random, k: int, m: int) -> Sequence[Input]:
    """Return lines with a word once, twice, and among others in no order."""
    one, two, three = sorted(random.sample(WORDS, 3), reverse=True)
    a, b, c = random.sample(range(1, 30), 3)
    return (
        records((one, a)), records((one, 0)), records((two, a), (two, b)),
        records((one, a), (three, b), (one, c), (two, a), (three, b)),
    )  # fmt: skip


def records_tied(random: Random, k: int, m: int) -> Sequence[Input]:
    """Return lines with the largest number once and twice, at either end, and where text sorts otherwise."""
    one, two, three = random.sample(WORDS, 3)
    high = random.randint(11, 30)
    return (
        records((one, 0)), records((one, high), (two, high)), records((two, high), (one, high)),
        records((one, 9), (two, 10)), records((three, high), (one, 2), (two, high - 1)),
        records((one, 1), (two, high - 1), (three, high)),
    )  # fmt: skip
