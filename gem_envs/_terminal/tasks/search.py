"""Tasks about finding information; the answer goes into a file."""

from __future__ import annotations

import base64
import gzip
import hashlib
from random import Random

from gem_envs._drawn import PEOPLE, PLACES, THINGS
from gem_envs._terminal.task import TerminalTask, has_lines, task, texts, unchanged
from gem_envs.sandbox._shell import File


@task
def find_key(random: Random) -> TerminalTask:
    """Find one line in a tree of files."""
    key = f"key-{random.randrange(16**8):08x}"
    paths = [
        "/".join(
            [*random.sample(PLACES, random.randint(1, 3)), f"{word}.{random.choice(['txt', 'ini', 'log'])}"]
        )
        for word in random.sample(THINGS, 14)
    ]
    files = {path: f"{random.choice(PEOPLE)} has no key here\nkey-{random.randrange(99)}\n" for path in paths}
    files[paths[1]] += f"# {key[:-1]}\n"
    files[paths[2]] += f"# x{key}y\n"
    files[paths[3]] += f"the {key.upper()}\n"
    files[paths[4]] += f"door = {key};\n"
    tree = texts({f"tree/{path}": text for path, text in files.items()})
    write = "cd tree; grep -rn{} '{}' . | sed 's#^\\./##' | cut -d: -f1,2 > ../found.txt"
    line = files[paths[4]].count("\n")
    return TerminalTask(
        "In one file below the folder tree stands a key: key- and eight signs, each a digit or a letter "
        "from a to f, with neither a letter nor a digit right before or after it. Longer and shorter "
        "ones and those in capital letters do not count. Write found.txt with one line: the path of the "
        "file below tree, a colon, and the number of the line, counted from 1.",
        tree,
        (has_lines("found.txt", f"{paths[4]}:{line}"), unchanged(tree)),
        write.format("wE", "key-[0-9a-f]{8}"),
        (
            write.format("iwE", "key-[0-9a-f]{8}"),
            write.format("E", "key-[0-9a-f]{8}"),
            f"echo {paths[4]}:1 > found.txt",
        ),
    )


@task
def unwrap(random: Random) -> TerminalTask:
    """Decode a text encoded several times."""
    word, number = random.choice(THINGS), random.randint(100, 999)
    inner = f"The word is {word} and the number is {number}.\n"
    data = inner.encode()
    order = [random.choice(["base64", "gzip"]) for _ in range(2)] + ["base64"]
    for step in order:
        data = base64.encodebytes(data) if step == "base64" else gzip.compress(data, mtime=0)
    undo = {"base64": "base64 -d", "gzip": "gunzip"}
    chain = " | ".join(["cat letter.bin", *(undo[step] for step in reversed(order))])
    files = {"letter.bin": File(data)}
    return TerminalTask(
        "letter.bin holds a sentence that was packed three times, each time either with gzip or with "
        "base64, in an order that you have to find out. The sentence names a word and a number. Write "
        "answer.txt with one line: the word and the number with a blank between them.",
        files,
        (has_lines("answer.txt", f"{word} {number}"), unchanged(files)),
        f"set -- $({chain}); echo $4 ${{9%.}} > answer.txt",
        (f"{chain} > answer.txt", f"set -- $({chain}); echo ${{9%.}} $4 > answer.txt"),
    )


@task
def damaged(random: Random) -> TerminalTask:
    """Find files that do not match a list of checksums."""
    words = sorted(random.sample(THINGS, 9))
    contents = {f"parts/{word}.bin": f"{word}{random.randrange(10**9)}\n" * 3 for word in words}
    sums = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in contents.items()}
    bad = random.sample(words, 3)
    for word in bad[:2]:
        path = f"parts/{word}.bin"
        contents[path] = contents[path].replace(contents[path][-2], "x" if contents[path][-2] != "x" else "y")
    del contents[f"parts/{bad[2]}.bin"]
    contents["parts/extra.bin"] = "not in the list\n"
    listed = list(sums)
    random.shuffle(listed)
    contents["SHA256"] = "".join(f"{sums[path]}  {path}\n" for path in listed)
    files = texts(contents)
    sha = (
        "sha256sum -c SHA256 2>/dev/null | grep {} | cut -d: -f1 | sed 's#^parts/##' | sort {} > damaged.txt"
    )
    return TerminalTask(
        "SHA256 lists checksums of files in the folder parts, as the program sha256sum writes them. "
        "Write damaged.txt with the names (without the folder) of the listed files that are missing or "
        "have another checksum, one a line, in the order of the alphabet. A file that is not listed does "
        "not matter.",
        files,
        (has_lines("damaged.txt", *(f"{word}.bin" for word in sorted(bad))), unchanged(files)),
        sha.format("-v ': OK$'", ""),
        (sha.format("-v ': OK$'", "-r"), sha.format("': FAILED$'", ""), sha.format("': OK$'", "")),
    )


@task
def heaviest_folder(random: Random) -> TerminalTask:
    """Find the folder with the largest total size."""
    folders = random.sample(PLACES, 4)
    files = {f"data/{folder}/{n}.bin": "x" * random.randint(50, 150) for folder in folders for n in range(3)}
    best = folders[0]
    files |= {
        f"data/{best}/a/b/c/{word}": "y" * random.randint(100, 200) for word in random.sample(THINGS, 6)
    }
    files[f"data/{folders[1]}/large.bin"] = "z" * 500  # the largest direct content, and the largest file
    files |= {f"data/{folders[2]}/{n}.empty": "" for n in range(20)}  # the largest number of files
    files["data/loose.bin"] = "w" * 3000
    total = sum(len(text) for path, text in files.items() if path.startswith(f"data/{best}/"))
    count = "cd data; for d in */; do echo ${d%/} $(find $d {} -type f -printf '%s\\n' "
    count += "| awk '{s += $1} END {print {}}'); done"
    end = " | sort -k2,2nr | head -1 > ../heaviest.txt"

    def command(depth: str, what: str) -> str:
        return count.replace("{}", depth, 1).replace("{print {}}", f"{{print {what}}}") + end

    return TerminalTask(
        "Which of the folders in the folder data holds the most bytes, all files at any depth below it "
        "taken together? Write heaviest.txt with one line: the name of the folder, a blank, and the sum "
        "of the sizes of its files.",
        texts(files),
        (has_lines("heaviest.txt", f"{best} {total}"), unchanged(texts(files))),
        command("", "s"),
        (
            command("-maxdepth 1", "s"),
            command("", "NR"),
            f"echo {best} $(du -sk data/{best} | cut -f1) > heaviest.txt",
        ),
    )


@task
def follow(random: Random) -> TerminalTask:
    """Follow files that each name the next one."""
    names = random.sample(THINGS, 12)
    length = random.randint(7, 10)
    words = random.sample(PLACES, 12)
    files = {}
    for place, name in enumerate(names):
        onward = names[place + 1] if place < length - 1 else "nothing"
        if place >= length:  # decoys: they name a next file, but the trail never reaches them
            onward = random.choice(names)
        files[f"trail/{name}.txt"] = f"word: {words[place]}\nnext: {onward}\n"
    files["start.txt"] = f"{names[0]}\n"
    walk = "n=$(cat start.txt); while [ \"$n\" != nothing ]; do sed -n 's/^word: //p' trail/$n.txt; "
    walk += "n=$(sed -n 's/^next: //p' trail/$n.txt); done"
    kept = texts(files)
    return TerminalTask(
        "start.txt holds the name of a file in the folder trail, without its ending. Each file there has "
        "a word, and names the next file; the last one names nothing. Follow the trail from the start "
        "and write the words on it to words.txt, one a line, from the last to the first.",
        kept,
        (has_lines("words.txt", *reversed(words[:length])), unchanged(kept)),
        f"{{ {walk}; }} | tac > words.txt",
        (f"{{ {walk}; }} > words.txt", "cat trail/* | sed -n 's/^word: //p' | tac > words.txt"),
    )


@task
def compare(random: Random) -> TerminalTask:
    """Compare two folders."""
    words = random.sample(THINGS, 12)
    before, after, lines = {}, {}, []
    for place, word in enumerate(words):
        path = f"{random.choice(['', 'in/', 'in/er/'])}{word}.txt"
        text = f"{word} {random.randrange(1000)}\n"
        kind = "ADMS"[place] if place < 4 else random.choice("ADMSS")
        if kind != "A":
            before[f"old/{path}"] = text
        if kind != "D":
            after[f"new/{path}"] = text[::-1].strip() + "\n" if kind == "M" else text  # same size
        if kind != "S":
            lines.append((path, f"{kind} {path}"))
    files = texts({**before, **after})
    loop = (
        "{{ cd /app/new; find * -type f | while read f; do if [ ! -e ../old/$f ]; then echo A $f; "
        "elif ! {} $f ../old/$f; then echo M $f; fi; done; cd ../old; find * -type f | while read f; do "
        "[ -e ../new/$f ] || echo D $f; done; }} | LC_ALL=C sort {} > /app/changes.txt"
    )
    return TerminalTask(
        "Compare the folders old and new, with all folders in them. Write changes.txt with a line for "
        "each file that differs: the letter A for one that only new has, D for one that only old has, M "
        "for one that both have with different content; then a blank and the path of the file below the "
        "folder. Sort the lines by the path, in the order of the alphabet.",
        files,
        (has_lines("changes.txt", *(line for _, line in sorted(lines))), unchanged(files)),
        loop.format("cmp -s", "-k2"),
        (loop.format("cmp -s", "-r -k2"), loop.format("test -e", "-k2")),
    )


@task
def longest_visit(random: Random) -> TerminalTask:
    """Match pairs of lines that belong together."""
    visits, clock = [], 0
    people = random.sample(PEOPLE, 5)
    for person in people * 2:
        start = clock + random.randint(0, 200)
        visits.append((person, start, start + random.randint(60, 3000)))
        clock = start
    person, start, _ = visits[0]
    visits[0] = (person, start, start + 3500)  # the longest single visit
    second = visits[1][0]
    visits = [v if v[0] != second else (v[0], v[1], v[1] + 2900) for v in visits]  # the largest total
    last: dict[str, int] = {}
    settled = []
    for who, begin, end in visits:  # no overlapping visits of one person
        begin, end = (
            (begin, end) if begin > last.get(who, -1) else (last[who] + 5, last[who] + 5 + end - begin)
        )
        last[who] = end
        settled.append((who, begin, end))
    events = sorted([(b, who, "in") for who, b, _ in settled] + [(e, who, "out") for who, _, e in settled])
    log = "".join(f"{time} {who} {what}\n" for time, who, what in events)
    log += f"{events[-1][0] + 1} {people[2]} in\n"  # still there
    files = texts({"door.log": log})
    awk = 'awk \'$3 == "in" {{t[$2] = $1}} $3 == "out" {{d = $1 - t[$2]; {}}} END {{print who, m}}\' '
    awk += "door.log > visit.txt"
    return TerminalTask(
        "Each line of door.log has a time in seconds, a name, and in or out: somebody comes or goes. "
        "Nobody comes twice without going in between, but several people may be there at the same time, "
        "and who has not gone at the end of the log does not count. Write visit.txt with one line for "
        "the longest single visit: the name, a blank, and its length in seconds.",
        files,
        (has_lines("visit.txt", f"{person} 3500"), unchanged(files)),
        awk.format("if (d > m) {m = d; who = $2}"),
        (
            awk.format("s[$2] += d; if (s[$2] > m) {m = s[$2]; who = $2}"),
            awk.format("if (!m || d < m) {m = d; who = $2}"),
        ),
    )
