"""Tasks about repairing programs, scripts, and data."""

from __future__ import annotations

import json
from random import Random

from gem_envs._drawn import PEOPLE, PLACES, THINGS
from gem_envs._terminal.task import (
    Condition,
    TerminalTask,
    has_files,
    has_lines,
    prints,
    task,
    texts,
    unchanged,
)
from gem_envs._terminal.tasks.records import has_json


@task
def wrong_window(random: Random) -> TerminalTask:
    """Fix a program that omits the last value."""
    width = random.randint(2, 4)
    program = f"""import sys


def means(numbers, width={width}):
    \"\"\"Mean of each run of `width` numbers, rounded down.\"\"\"
    found = []
    for start in range(len(numbers) - width):
        window = numbers[start:start + width]
        found.append(sum(window) // len(numbers))
    return found


print(*means([int(word) for word in sys.argv[1:]]))
"""
    fix = "sed -i 's/range(len(numbers) - width)/range(len(numbers) - width + 1)/{}' means.py"
    both = fix.format("; s#// len(numbers)#// width#")

    def expected(numbers: list[int]) -> str:
        return " ".join(str(sum(numbers[n : n + width]) // width) for n in range(len(numbers) - width + 1))

    tests = []
    for name, count in (("as many numbers as a run has", width), ("more numbers", 7), ("too few", width - 1)):
        numbers = [random.randint(10, 99) for _ in range(count)]
        tests.append(prints(name, f"python3 means.py {' '.join(map(str, numbers))}", expected(numbers)))
    return TerminalTask(
        f"means.py is to print the mean, rounded down, of each {width} numbers that follow each other "
        f"among its arguments: first of the numbers 1 to {width}, then of the next ones starting at the "
        "second number, and so on to the last. It prints wrong means, and not all of them. Find the "
        "faults and mend the program.",
        texts({"means.py": program}),
        tuple(tests),
        both,
        (fix.format(""), "sed -i 's#// len(numbers)#// width#' means.py"),
    )


_ODD_NAMES = (
    "new  one.txt", "-e", "-E.txt", "a;b", "$name", "`x`", "it's", 'a "b"', "back\\slash", "back\\n",
    "[ab].txt", "?.txt", "&", "(x)", "caf\u00e9", "#1", "~", "%s", " first",
)  # fmt: skip


@task
def blanks_in_names(random: Random) -> TerminalTask:
    """Fix a script that breaks on spaces in file names."""
    names = [f"{a} {b}.txt" for a, b in zip(random.sample(THINGS, 3), random.sample(PEOPLE, 3), strict=True)]
    names += [f"{random.choice(PLACES)}.txt", "*.txt", "-n.txt"]
    papers = {f"papers/{name}": "x" * random.randint(1, 300) + "\n" for name in names}
    broken = """#!/usr/bin/env bash
# Prints the names and sizes of all papers.
cd papers
for name in $(ls); do
    size=$(wc -c < $name)
    echo $name: $size
done | LC_ALL=C sort
"""
    shown = "\n".join(sorted(f"{name}: {len(papers[f'papers/{name}'])}" for name in names))
    others = {name: f"{index}\n" * index for index, name in enumerate(_ODD_NAMES)}
    sizes = [f"{name}: {len(text)}" for name, text in others.items()]
    more = "\n".join(sorted([*shown.split("\n"), *sizes]))
    repair = 'sed -i -e "s/\\$(ls)/*/" {} list.sh'
    quoted = repair.format(
        '-e \'s/< $name/< "$name"/\' -e \'s/echo $name: $size/printf "%s: %s\\\\n" "$name" "$size"/\''
    )
    return TerminalTask(
        "The script list.sh prints the name and the size of each file in the folder papers, as 'name: "
        "size', but it fails for some names. Mend it, so that it works for all names of files without a "
        "newline. The papers and their names stay as they are.",
        texts({**papers, "list.sh": broken}),
        (
            prints("the list", "bash list.sh", shown),
            prints(
                "more papers", "bash list.sh", more, {f"papers/{name}": text for name, text in others.items()}
            ),
            unchanged(texts(papers)),
        ),
        quoted,
        (
            repair.format(""),
            repair.format("-e 's/< $name/< \"$name\"/'"),
            f"cat > list.sh <<'E'\ncat <<'F'\n{shown}\nF\nE",
        ),
    )


@task
def pipeline(random: Random) -> TerminalTask:
    """Fix several small faults in one pipeline."""
    words = random.sample(THINGS, 6)
    rows = [(word, random.randint(1, 99)) for word in words]
    top = max(rows, key=lambda row: row[1])
    if [size for _, size in rows].count(top[1]) > 1:
        return pipeline(random)
    files = texts({
        "run.sh": "#!/usr/bin/env bash\nset -eo pipefail\ncd \"$(dirname \"$0\")\"\n./steps/clean "
        "data/raw.txt"
        " | ./steps/largest > result.txt\n",
        "steps/clean": "#!/usr/bin/python4\nimport sys\nfor line in open(sys.argv[1]):\n    if not "
        "line.startswith('#'):\n        print(line.strip())\n",
        "steps/largest": "#!/usr/bin/env bash\r\nsort -k2,2n | tail -1\r\n",
        "data/raw.csv": "# words\n" + "".join(f"{word} {size}\n" for word, size in rows),
    })  # fmt: skip
    files["steps/largest"] = type(files["run.sh"])(files["steps/largest"].data, 0o644)
    fixes = ["sed -i '1s/.*/#!\\/usr\\/bin\\/env python3/' steps/clean", "sed -i 's/\\r$//' steps/largest"]
    fixes += ["chmod +x steps/largest", "sed -i 's/raw.txt/raw.csv/' run.sh"]
    return TerminalTask(
        "./run.sh is to take the lines of the raw data that are no comments and to write the one with "
        "the largest number to result.txt. It fails for more than one reason. Mend what is broken, in "
        "the scripts and in how they are called, and run it. The data stays where it is and as it is.",
        files,
        (
            has_lines("result.txt", f"{top[0]} {top[1]}"),
            prints("run.sh", "rm -f result.txt; ./run.sh && cat result.txt", f"{top[0]} {top[1]}"),
            prints(
                "other data", "./run.sh && cat result.txt", "b 10", {"data/raw.csv": "a 9\n# c 99\nb 10\n"}
            ),
            unchanged(files, "data/raw.csv"),
        ),
        "; ".join([*fixes, "./run.sh"]),
        (
            f"echo {top[0]} {top[1]} > result.txt",
            "; ".join([*fixes[:3], "cp data/raw.csv data/raw.txt; ./run.sh"]),
            "; ".join([*fixes[:2], fixes[3], "./run.sh"]),
        ),
    )


@task
def same_ports(random: Random) -> TerminalTask:
    """Resolve a port conflict between services."""
    names, start = sorted(random.sample(THINGS, 7)), random.randint(30, 80) * 100
    ports = [start, start + 1, start, start + 3, start + 1, start, start + 6]
    services = {
        f"services/{name}.conf": f"# {name}\nport={port}\nbackport={start + 50}\nat={random.choice(PLACES)}\n"
        for name, port in zip(names, ports, strict=True)
    }
    taken, settled = set(ports), set[int]()
    done = {}
    for name, port in zip(names, ports, strict=True):
        new = port
        if port in settled:
            while new in taken:
                new += 1
        settled.add(new)
        taken.add(new)
        done[f"{name}.conf"] = services[f"services/{name}.conf"].replace(f"\nport={port}", f"\nport={new}")
    loop = """
cd /app/services; taken=" $(grep -h '^port=' *.conf | cut -d= -f2 | tr '\\n' ' ')"; settled=" "
for f in *.conf; do
  p=$(grep '^port=' $f | cut -d= -f2); n=$p
  case "$settled" in *" $p "*)
    while case "$taken" in *" $n "*) true;; *) false;; esac; do n=$((n + 1)); done;;
  esac
  settled="$settled$n "; taken="$taken$n "; sed -i "s/{}$p\\$/{}$n/" $f
done
"""
    return TerminalTask(
        "Each file in services has a line port=NUMBER. Several services have the same port. Go through "
        "the files in the order of the alphabet: the first service with a port keeps it; each later one "
        "with the same port gets the next higher number that is the port of no service, neither now nor "
        "after the changes so far. Change nothing else.",
        texts(services),
        (has_files("services", done),),
        loop.replace("{}", "^port=", 1).replace("{}", "port=", 1),
        (
            loop.replace("{}", "^port=", 1).replace("{}", "port=", 1).replace('taken="$taken$n "', ":"),
            "cd services; i=0; for f in *.conf; do sed -i s/^port=.*/port=$((9000 + i++))/ $f; done",
        ),
    )


@task
def loose_json(random: Random) -> TerminalTask:
    """Turn JSON with comments and trailing commas into valid JSON."""
    keys = random.sample(THINGS, 5)
    value = {
        keys[0]: f"http://{random.choice(PLACES)}.example//a",
        keys[1]: [random.randrange(9), random.randrange(9)],
        keys[2]: {keys[3]: "no, // this is text", keys[4]: None}, "note": "a,]",
    }  # fmt: skip
    lines = json.dumps(value, indent=2).split("\n")
    loose = []
    for line in lines:
        if (
            line.endswith(("1", "2", "3", "4", "5", "6", "7", "8", "9", "0", "null", '"a,]"'))
            or line == "  }"
        ):
            line += ","
        loose.append(line + random.choice(["", "", "  // as agreed"]) if "http" not in line else line)
        if random.random() < 0.3:
            loose.append(f'  // {random.choice(PEOPLE)}: "check" this')
    files = texts({"loose.json": "// settings\n" + "\n".join(loose) + "\n"})
    program = """python3 - <<'END'
import json, re
text = re.sub(r'("(?:[^"\\\\]|\\\\.)*")|//[^\\n]*', lambda m: m[1] or "", open("loose.json").read())
text = re.sub(r'("(?:[^"\\\\]|\\\\.)*")|,(?=\\s*[\\]}])', lambda m: m[1] or "", text)
json.dump(json.loads(text), open("strict.json", "w"))
END"""
    careless = "sed -E 's#//.*##' loose.json | tr -d '\\n' | sed -E 's/,[ ]*([]}])/\\1/g' > strict.json"
    return TerminalTask(
        "loose.json is JSON with comments, from // to the end of a line, and with commas after the last "
        "entry of some lists and objects. Write strict.json: the same value as JSON proper. Texts in "
        "quotes stay exactly as they are.",
        files,
        (has_json("strict.json", value), unchanged(files)),
        program,
        (careless, "cp loose.json strict.json"),
    )


@task
def conflicts(random: Random) -> TerminalTask:
    """Resolve merge conflicts by a rule."""
    pages, done = {}, {}
    names = sorted(random.sample(THINGS, 4))
    for name in names:
        text = result = ""
        for _ in range(random.randint(1, 3)):
            shared, ours, theirs = (f"{random.choice(PEOPLE)} {random.randrange(1000)}\n" for _ in range(3))
            ours = ours if random.random() < 0.7 else ""
            text += f"{shared}<<<<<<< ours\n{ours}=======\n{theirs}>>>>>>> theirs\n"
            result += shared + (ours if name == names[0] else theirs)
        pages[f"pages/{name}.txt"] = f"{text}======= end\n"
        done[f"{name}.txt"] = f"{result}======= end\n"
    theirs_ = "sed -i -e '/^<<<<<<< /,/^=======$/d' -e '/^>>>>>>> /d' {}"
    ours_ = "sed -i -e '/^<<<<<<< /d' -e '/^=======$/,/^>>>>>>> /d' {}"
    return TerminalTask(
        "A merge has left conflicts in the files in pages: between a line '<<<<<<< ours' and a line "
        "'=======' stands what we wrote, between that and a line '>>>>>>> theirs' what they wrote. "
        f"Settle all conflicts: in {names[0]}.txt what we wrote stays, in all other files what they "
        "wrote. The lines that mark the conflicts go, all other lines stay.",
        texts(pages),
        (
            has_files("pages", done),
            Condition(
                "no conflict is left",
                lambda end: not any("<<<<" in f.text for f in end.below("pages").values()),
            ),
        ),
        f"cd pages; {ours_.format(names[0] + '.txt')}; "
        f"{theirs_.format(' '.join(n + '.txt' for n in names[1:]))}",
        (
            f"cd pages; {theirs_.format('*.txt')}",
            "cd pages; sed -i -e '/^<<<<<<</d' -e '/^=======$/d' -e '/^>>>>/d' *",
        ),
    )
