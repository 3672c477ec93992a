"""Tasks about reading, counting, and editing text: logs, mails, pages."""

from __future__ import annotations

from collections import Counter
from random import Random

from gem_envs._drawn import PEOPLE, PLACES, THINGS
from gem_envs._terminal.task import TerminalTask, has_files, has_lines, has_texts, task, texts, unchanged


@task
def count_statuses(random: Random) -> TerminalTask:
    """Count each status in an access log."""
    statuses = random.sample([200, 201, 204, 301, 304, 400, 403, 404, 500, 503], 5)
    many = [status for place, status in enumerate(statuses) for _ in range(3 + 4 * (place // 2 * 2))]
    random.shuffle(many)
    log = "".join(
        f'10.0.{random.randrange(9)}.{random.randrange(99)} [{index:04}] "GET /{random.choice(THINGS)}/'
        f'{random.choice([200, 404, 500])}" {status} {random.randrange(100, 999)}\n'
        for index, status in enumerate(many)
    )
    files = texts({"access.log": log})
    rows = sorted(Counter(many).items(), key=lambda row: (-row[1], row[0]))
    count = "awk '{{print ${}}}' access.log | sort | uniq -c | {} | awk '{{print $2, $1}}' > statuses.txt"
    return TerminalTask(
        "access.log holds a line for each request; the number right after the quoted request is its status. "
        "Write statuses.txt: a line for each status that occurs, with the status, a blank and how often it "
        "occurs. The most frequent comes first; of equally frequent ones, the smaller number.",
        files,
        (has_lines("statuses.txt", *(f"{status} {times}" for status, times in rows)), unchanged(files)),
        count.format(5, "sort -k1,1nr -k2,2n"),
        (count.format(5, "sort -k1,1nr -k2,2nr"), count.format(6, "sort -k1,1nr"), count.format(5, "cat")),
    )


@task
def heaviest_client(random: Random) -> TerminalTask:
    """Find the client that received the most bytes."""
    clients = random.sample(PLACES, 5)
    winner, busy = clients[:2]
    rows = [(winner, random.randint(5000, 9000)) for _ in range(3)]
    rows += [(busy, random.randint(10, 400)) for _ in range(12)]
    rows += [(client, random.randint(500, 900)) for client in clients[2:] for _ in range(4)]
    rows += [(clients[2], 14_000)]  # the largest single response, but not the client with the largest total
    random.shuffle(rows)
    log = "".join(
        f"{100 + n} {client} sent={size} ms={random.randrange(900)}\n"
        for n, (client, size) in enumerate(rows)
    )
    totals = Counter[str]()
    for client, size in rows:
        totals[client] += size
    (best, total), (second, less) = totals.most_common(2)
    if less == total:
        return heaviest_client(random)
    files = texts({"transfer.log": log})
    add = "sed 's/sent=//' transfer.log | awk '{{t[$2] += {}}} END {{for (c in t) print c, t[c]}}' "
    add += "| sort -k2,2n{} | head -1 > heaviest.txt"
    return TerminalTask(
        "Each line of transfer.log has a number, the name of a client, sent= with the bytes that it was "
        "sent, and ms= with a time. Write heaviest.txt with one line: the name of the client that was "
        "sent the most bytes in all, a blank, and how many bytes those were.",
        files,
        (has_lines("heaviest.txt", f"{best} {total}"), unchanged(files)),
        add.format("$3", "r"),
        (add.format("1", "r"), add.format("$3", ""), f"echo {second} {less} > heaviest.txt"),
    )


@task
def addresses(random: Random) -> TerminalTask:
    """List all e-mail addresses in some letters."""
    people = random.sample(PEOPLE, 6)
    emails = {f"{person}@{random.choice(PLACES)}.example" for person in people}
    listed = sorted(emails) * 2
    random.shuffle(listed)
    letters: dict[str, str] = {f"mail/{n}.txt": "Hello,\n" for n in range(3)}
    for address in listed:
        shown = address.title() if random.random() < 0.5 else address
        around = random.choice(["Ask <{}> about it.", "Copy to: {}, please.", "{} wrote that @ noon."])
        letters[f"mail/{random.randrange(3)}.txt"] += around.format(shown) + "\n"
    letters["mail/0.txt"] += (
        f"Not one: {people[0]}@ {people[1]} nor @{PLACES[0]}.\n{sorted(emails)[0].upper()}\n"
    )
    letters["mail/readme.md"] = "Write to nobody@nowhere.example for help.\n"
    files = texts(letters)
    grep = "grep -ohiE '[a-z]+@[a-z]+\\.example' {} | {} > addresses.txt"
    return TerminalTask(
        "Collect the e-mail addresses in the files mail/*.txt (not in other files). Write them to "
        "addresses.txt in small letters, one a line, each only once, in the order of the alphabet. All "
        "of them end in .example.",
        files,
        (has_lines("addresses.txt", *sorted(emails)), unchanged(files)),
        grep.format("mail/*.txt", "tr A-Z a-z | LC_ALL=C sort -u"),
        (grep.format("mail/*.txt", "sort -u"), grep.format("mail/*", "tr A-Z a-z | LC_ALL=C sort -u")),
    )


@task
def replace_word(random: Random) -> TerminalTask:
    """Replace a whole word in some of the files."""
    old, new = random.sample(THINGS, 2)
    pages = {
        f"site/{'deep/' * (n % 3)}{place}.md": f"The {old} is here.\n{old}s and {old.title()} stay, {old}.\n"
        for n, place in enumerate(random.sample(PLACES, 5))
    }
    other = {f"site/{place}.txt": f"The {old} stays here.\n" for place in random.sample(PLACES, 2)}
    files = texts({**pages, **other})
    done = {
        path.removeprefix("site/"): text.replace(f"The {old} ", f"The {new} ").replace(
            f", {old}.", f", {new}."
        )
        for path, text in pages.items()
    } | {path.removeprefix("site/"): text for path, text in other.items()}
    sed = f"find site -name '{{}}' -exec sed -i 's/{{}}/{new}/g' {{{{}}}} +"
    return TerminalTask(
        f"In all files that end in .md, anywhere below the folder site, replace the word '{old}' by "
        f"'{new}'. Only the whole word in small letters counts: '{old}s' and '{old.title()}' stay, and so "
        "do all other files.",
        files,
        (has_files("site", done),),
        sed.format("*.md", f"\\b{old}\\b"),
        (
            sed.format("*.md", old),
            sed.format("*", f"\\b{old}\\b"),
            f"sed -i 's/\\b{old}\\b/{new}/g' site/*.md",
        ),
    )


@task
def split_chapters(random: Random) -> TerminalTask:
    """Split a book into one file per chapter."""
    titles = random.sample(THINGS, random.randint(10, 12))
    bodies = {
        title: [
            f"{random.choice(PEOPLE)} saw = {random.randrange(99)} ==" for _ in range(random.randint(1, 4))
        ]
        for title in titles
    }
    book = "A preface that belongs to no chapter.\n" + "".join(
        f"== {title}\n" + "".join(f"{line}\n" for line in body) for title, body in bodies.items()
    )
    files = texts({"book.txt": book})
    chapters = {
        f"{number:02}-{title}.txt": "".join(f"{line}\n" for line in body)
        for number, (title, body) in enumerate(bodies.items(), 1)
    }
    awk = 'mkdir chapters; awk \'/^== / {{f = sprintf("chapters/{}-%s.txt", ++n, $2){}}} '
    awk += "f {{print > f}}' book.txt"
    return TerminalTask(
        "A line of book.txt that begins with '== ' starts a chapter; the word after it is its title. "
        "Write each chapter to a file of its own in a new folder chapters, without the line of its "
        "title. The files are called after the number of the chapter, with two digits, and its title: "
        "chapters/01-title.txt. What comes before the first chapter is left out.",
        files,
        (has_texts("chapters", chapters), unchanged(files)),
        awk.format("%02d", "; next"),
        (awk.format("%02d", ""), awk.format("%d", "; next")),
    )


@task
def merge_logs(random: Random) -> TerminalTask:
    """Merge the logs of several machines by time."""
    machines = random.sample(PLACES, 3)
    times = random.sample(range(86_400), 18)
    logs: dict[str, list[str]] = {machine: [] for machine in machines}
    merged = []
    for seconds in sorted(times):
        machine = random.choice(machines)
        stamp = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        text = f"{random.choice(THINGS)} {random.choice(['up', 'down', 'slow'])}"
        logs[machine].append(f"{stamp} {text}\n")
        merged.append(f"{stamp} {machine} {text}")
    logs = {machine: lines or ["23:59:59 idle\n"] for machine, lines in logs.items()}
    for machine, lines in logs.items():
        if lines == ["23:59:59 idle\n"]:
            merged.append(f"23:59:59 {machine} idle")
    files = texts({f"{machine}.log": "".join(lines) for machine, lines in logs.items()})
    label = "for f in *.log; do m=${f%.log}; sed {} $f; done {} > /tmp/all; mv /tmp/all merged.log"
    name = '"s/^[^ ]*/& $m/"'
    return TerminalTask(
        "Each of the *.log files belongs to the machine that it is named after, and its lines begin with "
        "a time. Put all lines into merged.log in the order of time, with the name of the machine "
        "between the time and the rest of the line, and a blank on either side of it. The other files "
        "stay.",
        files,
        (has_lines("merged.log", *sorted(merged)), unchanged(files)),
        label.replace("{}", name, 1).replace("{}", "| LC_ALL=C sort", 1),
        (
            label.replace("{}", name, 1).replace("{}", "", 1),
            label.replace("{}", '"s/^/$m /"', 1).replace("{}", "| sort -k2", 1),
        ),
    )


@task
def line_ends(random: Random) -> TerminalTask:
    """Convert line endings."""
    words = random.sample(THINGS, 8)
    files, foreign = {}, []
    for index, word in enumerate(words):
        ending = random.choice(["\n", "\r\n"]) if index > 1 else ["\n", "\r\n"][index]
        files[f"src/{word}.c"] = f"int {word};{ending}// {word}{ending}"
        foreign += [f"{word}.c"] * (ending == "\r\n")
    fixed = {path.removeprefix("src/"): text.replace("\r\n", "\n") for path, text in files.items()}
    convert = "cd /app/src; {} *.c > ../changed.txt; sed -i 's/\\r$//' *.c"
    return TerminalTask(
        "Some files in src have lines that end in a carriage return and a newline. Change those lines to "
        "end in a newline alone. List the names of the files that had such lines in changed.txt, one a "
        "line, without the folder, in the order of the alphabet; files that were right are not listed.",
        texts(files),
        (has_files("src", fixed), has_lines("changed.txt", *sorted(foreign))),
        convert.format("grep -l $'\\r'"),
        (convert.format("ls"), "cd src; grep -l $'\\r' *.c > ../changed.txt"),
    )
