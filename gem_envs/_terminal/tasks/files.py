"""Tasks about arranging files: names, folders, permissions, links, archives."""

from __future__ import annotations

import io
import posixpath
import tarfile
import zlib
from random import Random

from gem_envs._drawn import PEOPLE, PLACES, THINGS
from gem_envs._terminal.task import (
    Condition,
    End,
    TerminalTask,
    has_files,
    has_lines,
    is_empty,
    task,
    texts,
    unchanged,
)
from gem_envs.sandbox._shell import File

_MOST = 2**22


@task
def sort_by_ending(random: Random) -> TerminalTask:
    """Sort files into one folder per extension."""
    endings = random.sample(["txt", "csv", "log", "md", "cfg"], 3)
    names = [f"{word}.{random.choice(endings)}" for word in random.sample(THINGS, 9)]
    plain = random.sample(PEOPLE, 2)
    files = {f"inbox/{name}": f"{name} {random.randrange(1000)}\n" for name in [*names, *plain]}
    sorted_ = {f"{name.rpartition('.')[2]}/{name}": files[f"inbox/{name}"] for name in names}
    sorted_ |= {f"other/{name}": files[f"inbox/{name}"] for name in plain}
    into = "for f in inbox/*; do n=${f##*/}; d=other; case $n in *.*) d=${n##*.};; esac; mkdir -p sorted/$d; "
    return TerminalTask(
        "Move every file of the folder inbox into the folder sorted: there, each goes into a folder that "
        "is named after its ending without the dot (notes.txt into sorted/txt), and a file without an "
        "ending into sorted/other. Inbox is to be empty afterwards.",
        texts(files),
        (has_files("sorted", sorted_), is_empty("inbox")),
        into + "mv $f sorted/$d/; done",
        (
            into + "cp $f sorted/$d/; done",
            "mkdir -p sorted/txt; mv inbox/* sorted/",
            f"{into}mv $f sorted/$d/; done; rmdir inbox",
        ),
    )


@task
def turn_dates(random: Random) -> TerminalTask:
    """Rename files from day-month-year to year-month-day."""
    names = {}
    for word in random.sample(THINGS, 6):
        day, month, year = random.randint(1, 12), random.randint(1, 12), random.randint(2001, 2025)
        names[f"{day:02}-{month:02}-{year}_{word}.txt"] = f"{year}-{month:02}-{day:02} {word}.txt"
    day, month = random.sample(range(1, 13), 2)  # at least one date distinguishes the two orders
    names[f"{day:02}-{month:02}-2020_{random.choice(PEOPLE)}.txt"] = ""
    files = {f"reports/{old}": f"report {index}\n" for index, old in enumerate(names)}
    for old in names:
        stamp, _, rest = old.partition("_")
        names[old] = f"{'-'.join(reversed(stamp.split('-')))} {rest}"
    done = {new: files[f"reports/{old}"] for old, new in names.items()}
    loop = 'cd /app/reports; for f in *; do IFS=-_ read d m y n <<< $f; mv $f "{}"; done'
    return TerminalTask(
        "The files in reports are named like 03-11-2024_words.txt, with the day first. Rename each to "
        "the form '2024-11-03 words.txt': year, month and day, then a blank instead of the underscore.",
        texts(files),
        (has_files("reports", done),),
        loop.format("$y-$m-$d $n"),
        (loop.format("$y-$d-$m $n"), loop.format("$y-$m-${d}_$n")),
    )


@task
def remove_copies(random: Random) -> TerminalTask:
    """Keep one of several files with the same content."""
    contents = [
        f"{word} {random.randrange(10**6)}\n" * random.randint(1, 4) for word in random.sample(THINGS, 4)
    ]
    names = random.sample([f"{person}{number}.dat" for person in PEOPLE[:8] for number in range(3)], 11)
    files = {f"store/{name}": contents[index % 4] for index, name in enumerate(names)}
    kept: dict[str, str] = {}
    for name in sorted(names):
        content = files[f"store/{name}"]
        if content not in kept.values():
            kept[name] = content
    loop = 'cd /app/store; for f in $(ls {}); do s=$(cksum < $f); case "$seen" in *"<$s>"*) rm $f;; esac; '
    return TerminalTask(
        "Some files in the folder store have the same content. Of those with the same content keep only "
        "the one whose name comes first in the order of the alphabet, and remove the others.",
        texts(files),
        (has_files("store", kept),),
        loop.format("") + 'seen="$seen<$s>"; done',
        (loop.format("-r") + 'seen="$seen<$s>"; done', f"rm store/{sorted(names)[0]}"),
    )


@task
def permissions(random: Random) -> TerminalTask:
    """Set permissions."""
    scripts, settings, others = (random.sample(THINGS, 7)[a:b] for a, b in ((0, 3), (3, 5), (5, 7)))
    files = {f"tool/{name}.sh": File(f"echo {name}\n".encode(), 0o644) for name in scripts}
    files |= {f"tool/deep/{name}.conf": File(f"name={name}\n".encode(), 0o666) for name in settings}
    files |= {f"tool/{name}.md": File(f"# {name}\n".encode(), 0o644) for name in others}
    modes = {path: {"sh": 0o750, "conf": 0o600, "md": 0o644}[path.rpartition(".")[2]] for path in files}
    folders = ("tool", "tool/deep")
    files |= dict.fromkeys(folders, File(folder=True))
    modes |= dict.fromkeys(folders, 0o755)
    find = "find tool -name '*.sh' -exec chmod {} {{}} +; find tool -name '*.conf' -exec chmod {} {{}} +"
    return TerminalTask(
        "Set the permissions of the files anywhere below the folder tool: files that end in .sh can be "
        "read, written and executed by their owner, read and executed by the group, and others can do "
        "nothing; files that end in .conf can be read and written by their owner and nobody else. Leave "
        "all other files as they are.",
        files,
        (
            unchanged(files),
            Condition("modes", lambda end: all(end.files[path].mode == mode for path, mode in modes.items())),
        ),
        find.format("750", "600"),
        (find.format("755", "600"), "chmod -R 750 tool", "chmod 750 tool/*.sh; chmod 600 tool/*.conf"),
    )


def _leads_to(end: End, folder: str, target: str | None, name: str) -> bool:
    """Return whether a link in `folder` leads to the folder `name` in it, without leaving `folder`."""
    if target is None or target.startswith("/"):
        return False
    place: list[str] = []
    for part in target.split("/"):
        if part == ".." and not place:
            return False
        if part == "..":
            place.pop()
        elif part not in ("", "."):
            place.append(part)
        found = end.files.get("/".join([folder, *place]))
        if found is None or not found.folder:  # also before "..", or the link leads nowhere
            return False
    return place == [name]


@task
def newest_version(random: Random) -> TerminalTask:
    """Create a link to the highest version number."""
    major, minor = random.randint(1, 8), random.randint(10, 40)
    versions = [
        f"{major}.{minor}.{random.randint(0, 9)}",
        f"{major}.9.{random.randint(10, 30)}",
        f"{major}.2.0",
    ]
    versions += [f"{major - 1}.{random.randint(50, 90)}.1", f"{major}.8.99"]
    newest = versions[0]
    random.shuffle(versions)
    files = texts({f"releases/{version}/VERSION": f"{version}\n" for version in versions})
    files["releases/current"] = File(target=f"{major}.8.99")
    link = "cd /app/releases; ln -sfn {} current"
    return TerminalTask(
        "The folder releases holds one folder for each version, and a symbolic link current. Make "
        "current point to the folder of the highest version, where 2.10.0 is higher than 2.9.5. The link "
        "is to be relative, so that it still works when releases is moved elsewhere.",
        files,
        (
            Condition(
                "the link",
                lambda end: _leads_to(end, "releases", end.files["releases/current"].target, newest),
            ),
            unchanged(files, *(f"releases/{version}/VERSION" for version in versions)),
        ),
        link.format('"$(ls -d [0-9]* | sort -V | tail -1)"'),
        (
            link.format('"$(ls -d [0-9]* | sort | tail -1)"'),
            link.format(f"/app/releases/{newest}"),
            link.format(f"/{newest}"),
            link.format(f"../releases/{newest}"),
            link.format(f"../{newest}"),
        ),
    )


@task
def pack(random: Random) -> TerminalTask:
    """Create an archive without generated files."""
    name, output = random.choice(PLACES), random.choice(["cache", "build", "target"])
    kept = {f"{name}/{word}.py": f"# {word}\n" for word in random.sample(THINGS, 3)}
    kept |= {f"{name}/doc/{output}.md": "# how it is made\n"}
    left = {f"{name}/{output}/{n}.bin": "0" for n in range(3)} | {
        f"{name}/doc/{n}.tmp": "t" for n in PEOPLE[:2]
    }
    files = texts({**kept, **left})

    def members(end: End) -> bool:
        unpacking = zlib.decompressobj(31)
        data = unpacking.decompress(end.files[f"{name}.tar.gz"].data, _MOST)
        if not unpacking.eof or unpacking.unused_data:
            return False
        found: dict[str, bytes | None] = {}
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for entry in archive:
                readable = entry.mode & (0o500 if entry.isdir() else 0o400)
                if not (entry.isfile() or entry.isdir()) or not readable or ".." in entry.name.split("/"):
                    return False
                file = archive.extractfile(entry)
                found[posixpath.normpath(entry.name)] = None if file is None else file.read()
        folders = {path for path, content in found.items() if content is None}
        contents = {path: content for path, content in found.items() if content is not None}
        return folders <= {".", name, f"{name}/doc"} and contents == {
            path: text.encode() for path, text in kept.items()
        }

    tar = "tar czf {0}.tar.gz --exclude={0}/{1} --exclude='*.tmp' {0}"
    return TerminalTask(
        f"Make a compressed archive {name}.tar.gz of the folder {name}, so that unpacking it gives the "
        f"folder {name} again. Leave out all files that end in .tmp, and the folder {name}/{output} with "
        "all that is in it. The folder itself stays as it is.",
        files,
        (Condition("what the archive holds", members), unchanged(files)),
        tar.format(name, output),
        (
            f"tar czf {name}.tar.gz {name}",
            f"cd {name}; tar czf ../{name}.tar.gz --exclude={output} --exclude='*.tmp' .",
            f"mkdir /tmp/c; cp -r {name} /tmp/c; sed -i s/./X/ /tmp/c/{name}/*.py; "
            + tar.format(name, output)
            .replace("tar czf ", "tar czf /app/")
            .replace(" --", " -C /tmp/c --", 1),
            tar.format(name, f"{output}/*"),
        ),
    )


@task
def flatten(random: Random) -> TerminalTask:
    """Flatten a tree of folders into one folder."""
    tree = {}
    for word in random.sample(THINGS, 7):
        depth = random.sample(PLACES, random.randint(0, 3))
        tree["/".join([*depth, f"{word}.txt"])] = f"{word} {random.randrange(100)}\n"
    tree["/".join([*random.sample(PLACES, 2), "notes of all.txt"])] = "notes\n"
    files = texts({f"tree/{path}": text for path, text in tree.items()})
    flat = {path.replace("/", "__"): text for path, text in tree.items()}
    copy = "mkdir -p flat; cd tree; find . -type f | while IFS= read -r f; do n=${{f#./}}; "
    copy += 'cp "$f" "../flat/{}"; done'
    return TerminalTask(
        "Copy all files below the folder tree into one folder flat. The name of each copy is its path "
        "below tree with two underscores for every slash: tree/a/b/c.txt becomes flat/a__b__c.txt. The "
        "tree stays.",
        files,
        (has_files("flat", flat), has_files("tree", tree)),
        copy.format("${n//\\//__}"),
        (copy.format("${n//\\//_}"), copy.format("${n##*/}"), "mkdir flat; mv tree/* flat"),
    )


@task
def inventory(random: Random) -> TerminalTask:
    """Write a table of contents with sizes."""
    words = random.sample(THINGS, 8)
    files = {}
    for word in words:
        folder = random.choice(["", "a/", "a/b/", "c/"])
        files[f"docs/{folder}{word}.txt"] = "x" * random.randint(1, 400)
    rows = sorted((path.removeprefix("docs/"), len(text)) for path, text in files.items())
    listing = "cd /app/docs; find . -type f -printf '{}\\n' | LC_ALL=C sort {} > ../inventory.txt"
    return TerminalTask(
        "Write inventory.txt: a line for each file anywhere below the folder docs, with its path below "
        "docs, a blank, and its size in bytes, in the order of the alphabet by path.",
        texts(files),
        (has_lines("inventory.txt", *(f"{path} {size}" for path, size in rows)), unchanged(texts(files))),
        listing.format("%P %s", ""),
        (listing.format("%f %s", ""), listing.format("%P %s", "-r"), "ls docs > inventory.txt"),
    )
