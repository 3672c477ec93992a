"""Tasks about writing programs; the tests run them on hidden input."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from gem_envs._drawn import PEOPLE, PLACES, THINGS
from gem_envs._terminal.task import Condition, TerminalTask, prints, task, texts, unchanged


def answers(name: str, command: str, inputs: Iterable[object], expected: Iterable[object]) -> Condition:
    """Return the condition that a program prints the expected lines for the given ones."""
    lines = "".join(f"{line}\n" for line in inputs)
    return prints(name, f"{command} < in.txt", "\n".join(map(str, expected)), {"in.txt": lines})


def script(path: str, text: str) -> str:
    """Return commands that write an executable program."""
    return f"cat > {path} <<'END'\n{text.strip()}\nEND\nchmod +x {path}"


@task
def statistics(random: Random) -> TerminalTask:
    """Print statistics of numbers."""
    low, example = random.randint(3, 90), [random.randint(-9, 99) for _ in range(4)]
    files = texts({"example.txt": "".join(f"{n}\n" for n in example)})
    program = f"""
#!/usr/bin/env bash
awk 'NR == 1 {{ min = max = $1 }} $1 < min {{ min = $1 }} $1 > max {{ max = $1 }} $1 >= {low} {{ n++ }}
     {{ sum += $1 }} END {{ printf "%d %d %d %d\\n", min, max, sum, n }}'
"""

    def shown(numbers: list[int]) -> str:
        return f"{min(numbers)} {max(numbers)} {sum(numbers)} {sum(n >= low for n in numbers)}"

    tests = []
    for kind, numbers in (
        ("negative numbers", [random.randint(-99, -1) for _ in range(5)]),
        ("one number", [low]),
        ("a smaller number", [low - 1]),
        ("a larger number", [low + 1]),
        ("zero", [0]),
        ("falling numbers", [low + 1, low, low - 1, 0, -low]),
        ("many numbers", [random.randint(-999, 999) for _ in range(200)]),
    ):
        tests.append(answers(kind, "./stats", numbers, [shown(numbers)]))
    return TerminalTask(
        "Write a program stats in /app that can be run as ./stats. It reads whole numbers from its "
        "standard input, one a line, at least one, and prints one line with four numbers and blanks "
        f"between them: the smallest, the largest, the sum, and how many of them are {low} or more. "
        f"For example.txt it prints: {shown(example)}",
        files,
        tuple(tests),
        script("stats", program),
        (
            script("stats", program.replace("NR == 1 { min = max = $1 } ", "")),
            script("stats", program.replace(">=", ">")),
            script("stats", program).replace("chmod +x", "chmod -x"),
        ),
    )


@task
def slugs(random: Random) -> TerminalTask:
    """Turn titles into URL slugs."""
    longest, sign = random.randint(12, 20), random.choice("-_")
    program = f"""
import re, sys
for line in sys.stdin:
    words = re.sub("[^a-z0-9]+", "{sign}", line.lower()).strip("{sign}")
    print(words[:{longest}].strip("{sign}"))
"""

    def slug(title: str) -> str:
        plain = "".join(c if c.isascii() and c.isalnum() else " " for c in title.lower())
        return sign.join(plain.split())[:longest].strip(sign)

    words = [random.choice(THINGS + PLACES) for _ in range(14)]
    titles = [
        f"The {words[0].title()}, the {words[1]} & {words[2]}", f"  {words[3]}!!!",
        f"{words[4]}'s --- {words[5]} __ {words[6]}",
        "a" * (longest - 1) + " b", "A" * (longest + 5), f"9 {words[7].upper()} (1/2)", f"({words[8]})",
        "b" * longest, "c" * (longest - 1), f"... {'d' * (longest + 2)}", "", f"-_{sign}", "Z0 a9 [`{^@",
        "x-ray fox", "x" * (longest + 4),
        "caf\u00e9 na\u00efve", "e" * (longest - 2) + "  -f",
    ]  # fmt: skip
    return TerminalTask(
        "Write a Python program slug.py. It reads titles from its standard input, one a line, and prints "
        "for each a line that is made like this: letters become small; each run of characters that are "
        f"neither a letter from a to z nor a digit becomes one '{sign}'; then a '{sign}' at the beginning "
        f"or the end is taken away; then all after the first {longest} characters is cut off; and if the "
        f"last character is then a '{sign}', it is taken away too.",
        {},
        (
            answers("some titles", "python3 slug.py", titles[:4], map(slug, titles[:4])),
            answers("long titles", "python3 slug.py", titles[3:], map(slug, titles[3:])),
        ),
        script("slug.py", program),
        (
            script("slug.py", program.replace(f'[:{longest}].strip("{sign}")', f"[:{longest}]")),
            script("slug.py", program.replace("+", "")),
        ),
    )  # fmt: skip


@task
def runs(random: Random) -> TerminalTask:
    """Encode text as run lengths, and decode it."""
    first = random.choice([True, False])
    example = "x2yz3" if not first else "2xy3z"
    pair = 'f"{n}{c}"' if first else 'f"{c}{n}"'
    program = f"""
import itertools, re, sys
def pack(text):
    for c, same in itertools.groupby(text):
        n = len(list(same))
        yield {pair} if n > 1 else c
def unpack(text):
    for a, b in re.findall(r"{"([0-9]*)([a-z])" if first else "([a-z])([0-9]*)"}", text):
        c, n = {"(b, a)" if first else "(a, b)"}
        yield c * int(n or 1)
print("".join((pack if sys.argv[1] == "pack" else unpack)(sys.argv[2])))
"""

    def packed(text: str) -> str:
        parts, place = [], 0
        while place < len(text):
            end = place
            while end < len(text) and text[end] == text[place]:
                end += 1
            count = str(end - place) if end - place > 1 else ""
            parts.append(f"{count}{text[place]}" if first else f"{text[place]}{count}")
            place = end
        return "".join(parts)

    plain = ["".join(random.choice("abc") * random.choice([1, 1, 2, 11]) for _ in range(6)) for _ in range(2)]
    return TerminalTask(
        "Write a Python program runs.py that packs and unpacks texts of small letters. 'python3 runs.py "
        "pack TEXT' prints the text with each run of the same letter written as one letter with the "
        f"length of the run {'before' if first else 'after'} it; a letter alone has no number. So xxyzzz "
        f"becomes {example}. 'python3 runs.py unpack PACKED' prints the text again.",
        {},
        tuple(
            prints(f"{how} {number}", f"python3 runs.py {how} {packed(text) if how == 'unpack' else text}",
                   text if how == "unpack" else packed(text))
            for number, text in enumerate(plain, 1) for how in ("pack", "unpack")
        ),
        script("runs.py", program),
        (
            script("runs.py", program.replace(" if n > 1 else c", "")),
            script("runs.py", program.replace("[0-9]*", "[0-9]?")),
        ),
    )  # fmt: skip


@task
def sizes_by_ending(random: Random) -> TerminalTask:
    """Add up file sizes by extension."""
    folder = {f"lib/{word}.py": "p" * random.randint(1, 90) for word in random.sample(THINGS, 3)}
    folder |= {
        "lib/a b.py": "1234",
        "lib/deep/er/x.md": "m" * 30,
        "lib/deep/LICENSE": "l" * 20,
        "lib/.rc": "rc",
    }
    hidden = {
        f"box/{word}.{random.choice(['c', 'h'])}": "c" * random.randint(1, 40)
        for word in random.sample(PLACES, 5)
    }
    hidden |= {"box/in ner/x y.c": "c" * 7, "box/in ner/Makefile": "m" * 3, "box/two.tar.gz": "g" * 11}
    hidden |= {
        f"box/{ending}/.{ending}.{ending}": ending for ending in random.sample("bdefijklnopqrstuvwxyz", 9)
    }
    hidden |= {"box/.hidden.c": "h" * 5, "box/none": "n" * 13, "box/empty.z0": "", "box/a.b/plain": "p"}

    def table(files: dict[str, str]) -> str:
        sums: dict[str, int] = {}
        for path, text in files.items():
            name = path.rpartition("/")[2].lstrip(".")
            ending = name.rpartition(".")[2] if "." in name else "none"
            sums[ending] = sums.get(ending, 0) + len(text)
        return "\n".join(f"{ending} {size}" for ending, size in sorted(sums.items()))

    program = """
#!/usr/bin/env bash
find "$1" -type f -printf '%f\\t%s\\n' | sed 's/^\\.//' | awk -F'\\t' '
    { n = split($1, parts, "."); sums[n > 1 ? parts[n] : "none"] += $2 }
    END { for (ending in sums) print ending, sums[ending] }' | LC_ALL=C sort
"""
    return TerminalTask(
        "Write a program sizes in /app, to be run as ./sizes FOLDER. For the files anywhere below the "
        "folder it prints a line for each ending that occurs, with the ending without its dot, a blank, "
        "and the sum of the sizes of these files in bytes, in the order of the alphabet by ending. A dot "
        "at the beginning of a name belongs to no ending, and files without an ending count under the "
        "name none. Names may contain blanks.",
        texts(folder),
        (
            prints("the folder lib", "./sizes lib", table(folder)),
            prints("a blank", "./sizes 'a box'", table(hidden), {f"a {k}": v for k, v in hidden.items()}),
            unchanged(texts(folder)),
        ),
        script("sizes", program),
        (
            script("sizes", program.replace('find "$1"', "find $1")),
            script("sizes", program.replace(" | sed 's/^\\.//'", "")),
            script("sizes", program.replace('find "$1"', 'find "$1" -maxdepth 1')),
        ),
    )  # fmt: skip


@task
def change(random: Random) -> TerminalTask:
    """Give change in as few coins as possible."""
    coins = [1, *random.choice([(7, 10), (8, 12), (9, 15), (11, 16)]), random.choice([40, 50])]
    best = [0]
    for amount in range(1, 400):
        best.append(1 + min(best[amount - coin] for coin in coins if coin <= amount))
    greedy = []
    for amount in range(400):
        left, count = amount, 0
        for coin in sorted(coins, reverse=True):
            count, left = count + left // coin, left % coin
        greedy.append(count)
    hard = [amount for amount in range(400) if greedy[amount] != best[amount]]
    amounts = [*random.sample(hard, 3), random.randint(100, 399), coins[2], 0]
    program = f"""
import sys
best = [0]
for amount in range(1, 10_000):
    best.append(1 + min(best[amount - coin] for coin in {coins} if coin <= amount))
for line in sys.stdin:
    print(best[int(line)])
"""
    quick = f"""
import sys
for line in sys.stdin:
    left, count = int(line), 0
    for coin in {sorted(coins, reverse=True)}:
        count, left = count + left // coin, left % coin
    print(count)
"""
    return TerminalTask(
        f"In a country there are coins of {', '.join(map(str, coins[:-1]))} and {coins[-1]}. Write a "
        "Python program change.py that reads amounts from its standard input, one a line, each from 0 to "
        "399, and prints for each the smallest number of coins that make it up, one a line.",
        {},
        (
            answers("some amounts", "python3 change.py", amounts, (best[n] for n in amounts)),
            answers("all amounts", "python3 change.py", range(400), best),
        ),
        script("change.py", program),
        (script("change.py", quick), script("change.py", program.replace("best = [0]", "best = [1]"))),
    )  # fmt: skip


@task
def validate(random: Random) -> TerminalTask:
    """Validate a settings file."""
    names = random.sample(THINGS, 4)
    sound = f"# settings\n{names[0]} = {random.choice(PEOPLE)}\n\n{names[1]}=a = b\n  {names[2]} =\n"
    faults = [
        f"{names[3]}", "= nothing", f"{names[0].title()} = 1", f"{names[1]} = again", f"{names[3]}9 = 1",
        f"{names[3]}X=2", f"4{names[3]} = 3", f"{names[3]} {names[0]} = 4", f"{names[0]}=5", " = ",
        f"{names[3]} # = 6",
    ]  # fmt: skip
    lines = sound.splitlines()
    wrong = []
    for fault in random.sample(faults, len(faults)):
        lines.append(fault)
        wrong.append(len(lines))
        lines += random.choice([[], ["# more"], ["   "], ["  # = more"]])
    lines.append(f"{names[3]} = 7")  # its name is on no sound line before
    program = r"""
#!/usr/bin/env bash
awk '/^[ \t]*(#|$)/ { next }
     { name = $0; sub(/[ \t]*=.*/, "", name); sub(/^[ \t]*/, "", name) }
     !/=/ || name !~ /^[a-z]+$/ || (name in seen) { print NR; bad = 1; next }
     { seen[name] = 1 } END { exit bad }' "$1"
"""
    return TerminalTask(
        "Write a program validate in /app, to be run as ./validate FILE. A line of the file is sound "
        "when it is empty or blank, when it begins with # (blanks may come before), or when it has the "
        "form name = value: the name is of small letters a to z only, may have blanks around it, and "
        "occurs on no earlier sound line; the value is anything, even nothing. The program prints the "
        "number of each line that is not sound, one a line, counted from 1, and ends with exit status 1 "
        "when there is one; else it prints nothing and ends with 0.",
        texts({"sound.conf": sound}),
        (
            prints("a sound file", "./validate sound.conf && echo status $?", "status 0"),
            answers("faults", "./validate 'in.txt'; echo status $?; :", lines, [*wrong, "status 1"]),
        ),
        script("validate", program),
        (
            script("validate", program.replace(" || (name in seen)", "")),
            script("validate", program.replace("exit bad", "exit 0")),
            script("validate", program.replace("^[a-z]+$", "^[a-z]*$")),
        ),
    )  # fmt: skip
