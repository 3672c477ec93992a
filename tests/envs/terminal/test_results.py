"""Results that are right in another form, and wrong results that look right."""

from __future__ import annotations

import re
from contextlib import closing

import pytest

from gem_core.errors import EnvError
from gem_envs._terminal.source import OwnTasks
from gem_envs._terminal.task import Condition, End, TerminalTask, prints, unchanged
from gem_envs._terminal.tasks.records import same_json
from gem_envs.sandbox import File, open_shell, self_check
from gem_envs.sandbox._shell import ShellResult
from tests.mutants.terminal import judged

pytestmark = pytest.mark.skipif(
    not self_check()["namespace"].available, reason=self_check()["namespace"].reason
)
SOURCE = OwnTasks()


def failed(name, *commands, seed=0):
    task = SOURCE.task(SOURCE.names.index(name), seed)
    with closing(open_shell()) as shell:
        shell.write(task.files)
        for command in commands:
            shell.run(command.replace("SOLUTION", task.solution), seconds=60)
        return SOURCE.grade(task, shell, open_shell).failed


def newest(seed):
    task = SOURCE.task(SOURCE.names.index("newest_version"), seed)
    return re.search(r"/app/releases/(\S+) current", task.wrong[1])[1]


@pytest.mark.parametrize(
    ("target", "right"),
    [
        ("{}", True), ("./{}", True), ("{}/", True), (".//{}/", True), ("{}/../{}", True),
        ("x/../{}", False), ("{}/VERSION/../../{}", False), ("{}/../../releases/{}", False),
        ("/{}", False), ("/app/releases/{}", False), ("../releases/{}", False), ("../{}", False),
        ("//{}", False), ("./{}x", False), ("{}/VERSION", False), (".", False),
    ],
)  # fmt: skip
def test_the_link_is_relative_to_its_own_folder(target, right):
    name = newest(0)
    commands = f"cd releases; ln -sfn '{target.format(name, name)}' current"
    assert (failed("newest_version", commands) == []) == right


def pack_names():
    task = SOURCE.task(SOURCE.names.index("pack"), 0)
    return re.search(r"archive (\w+)\.tar\.gz", task.instruction)[1], re.search(
        r"folder \w+/(\w+) with", task.instruction
    )[1]


@pytest.mark.parametrize(
    ("command", "right"),
    [
        ("SOLUTION", True),
        ("tar czf N.tar.gz --exclude=N/O --exclude='*.tmp' ./N", True),
        ("tar cf - --exclude=N/O --exclude='*.tmp' N | gzip -9 > N.tar.gz", True),
        ("tar czf N.tar.gz $(find N -name '*.py' -o -name '*.md' -path '*doc*')", True),
        ("python3 -c \"import tarfile; t = tarfile.open('N.tar.gz', 'w:gz'); t.add('N', filter=lambda e: "
         "None if e.name.endswith('.tmp') or e.name == 'N/O' else e); t.close()\"", True),
        ("tar czf N.tar.gz N", False),
        ("tar czf N.tar.gz --exclude='N/O/*' --exclude='*.tmp' N", False),
        ("tar czf N.tar.gz --exclude=N/O N", False),
        ("tar czf N.tar.gz --exclude=O --exclude='O.md' --exclude='*.tmp' N", False),
        ("cp -r N /tmp/N; sed -i 's/./X/' /tmp/N/*.py; tar czf N.tar.gz -C /tmp --exclude=N/O "
         "--exclude='*.tmp' N", False),
        ("cp -r N M; tar czf N.tar.gz --exclude=M/O --exclude='*.tmp' M; rm -r M", False),
        ("ln -s x N/link; tar czf N.tar.gz --exclude=N/O --exclude='*.tmp' N; rm N/link", False),
        ("mkdir N/more; tar czf N.tar.gz --exclude=N/O --exclude='*.tmp' N; rmdir N/more", False),
        ("tar cf N.tar.gz --exclude=N/O --exclude='*.tmp' N", False),
        ("SOLUTION; rm -r N/O", False),
        ("SOLUTION; head -c -9 N.tar.gz > x; mv x N.tar.gz", False),
        ("SOLUTION; head -c -30 N.tar.gz > x; mv x N.tar.gz", False),
        ("SOLUTION; echo more >> N.tar.gz", False),
        ("SOLUTION; printf 'XXXX' | dd of=N.tar.gz bs=1 seek=60 conv=notrunc", False),
        ("tar czf N.tar.gz --exclude=N/O --exclude='*.tmp' --mode=000 N", False),
        ("tar czPf N.tar.gz --exclude=N/O --exclude='*.tmp' --transform='s,^N,x/../N,' N", False),
        ("tar czPf N.tar.gz --exclude=N/O --exclude='*.tmp' --transform='s,^N,/N,' N", False),
        ("mkdir /tmp/N; cd N; for f in $(find -name '*.py' -o -path './doc/O.md'); do mkdir -p "
         "/tmp/N/$(dirname $f); head -c $(stat -c %s $f) /dev/zero > /tmp/N/$f; done; "
         "tar czf ../N.tar.gz -C /tmp N", False),
    ],
)  # fmt: skip
def test_an_archive_holds_the_contents_and_nothing_else(command, right):
    name, output = pack_names()
    command = re.sub(r"\bN\b", name, re.sub(r"\bO\b", output, command))
    assert (failed("pack", command) == []) == right


@pytest.mark.parametrize(
    ("task", "commands", "right"),
    [
        ("sort_by_ending", "SOLUTION", True),
        ("sort_by_ending", "SOLUTION; rmdir /app/inbox", False),
        ("sort_by_ending", "SOLUTION; mkdir /app/inbox/old", False),
        ("sort_by_ending", "SOLUTION; rmdir /app/inbox; touch /app/inbox", False),
        ("flatten", "SOLUTION; touch /app/tree/more.txt", False),
        ("flatten", "SOLUTION; touch /app/flat/more.txt", False),
        ("split_chapters", "SOLUTION; cd /app/chapters; for f in *; do printf %s \"$(cat $f)\" > x; mv x $f; "
         "done", True),
        ("split_chapters", "SOLUTION; cd /app/chapters; for f in *; do echo >> $f; done", True),
        ("split_chapters", "SOLUTION; cd /app/chapters; for f in *; do sed -i 1d $f; done", False),
        ("split_chapters", "SOLUTION; touch /app/chapters/99-x.txt", False),
        ("statistics", "SOLUTION\nsed -i '2iecho warning >&2' stats", True),
        ("statistics", "SOLUTION\nsed -i '2iecho warning' stats", False),
        ("statistics", "SOLUTION\necho 'exit 1' >> stats", False),
        ("totals", "SOLUTION\nsed -i 's/: \\(-*[0-9]*\\)/: \"\\1\"/g' totals.json", False),
        ("totals", "SOLUTION\nsed -i 's/: \\(-*[0-9]*\\)/: \\1.0/g' totals.json", True),
        ("permissions", "SOLUTION; chmod 700 /app/tool/deep", False),
        ("permissions", "SOLUTION; chmod 4750 /app/tool/*.sh", False),
        ("permissions", "SOLUTION; cd /app/tool; for f in *.sh; do echo x >> $f; done", False),
        ("permissions", "SOLUTION; cd /app/tool; f=$(ls *.sh | head -1); mv $f x; ln -s x $f", False),
        ("inventory", "SOLUTION; sed -i 's/$/ /' /app/inventory.txt", True),
        ("inventory", "SOLUTION; sed -i 's/$/\\xc2\\xa0/' /app/inventory.txt", False),
        ("inventory", "SOLUTION; sed -i 's/$/\\x0c/' /app/inventory.txt", False),
        ("inventory", "SOLUTION; sed -i 's/^/ /' /app/inventory.txt", False),
        ("inventory", "SOLUTION; mv /app/inventory.txt /app/x; ln -s x /app/inventory.txt", False),
        ("remove_copies", "SOLUTION; mkfifo /app/store/zzz", False),
        ("remove_copies", "SOLUTION; head -c 14000000 /dev/zero > /app/store/zzz", False),
        ("sort_by_ending", "SOLUTION; mkfifo /app/inbox/zzz", False),
        ("flatten", "SOLUTION; cd /app/flat; for f in *; do head -c $(stat -c %s $f) /dev/zero > $f; done",
         False),
        ("merge_logs", "SOLUTION; cd /app; tr a-z A-Z < merged.log > x; mv x merged.log", False),
        ("damaged", "SOLUTION; rm /app/SHA256; ln -s parts/extra.bin /app/SHA256", False),
    ],
)  # fmt: skip
def test_right_and_wrong_results(task, commands, right):
    assert (failed(task, commands) == []) == right


def test_a_file_that_became_a_link_or_a_folder_is_changed():
    kept = {"a": File(b""), "b": File(target="a"), "c": File(folder=True)}
    check = unchanged(kept).check
    assert check(End(kept, open_shell))
    for path, other in (
        ("a", File(folder=True)),
        ("a", File(target="x")),
        ("b", File(target="c")),
        ("c", File(b"")),
    ):
        assert not check(End({**kept, path: other}, open_shell)), (path, other)


@pytest.mark.parametrize(
    ("value", "expected", "same"),
    [
        (1, 1, True), (1.0, 1, True), (True, 1, False), (False, 0, False), (1, True, False),
        (True, True, True), ("1", 1, False), (None, 0, False), (None, None, True), ([1, True], [1, 1], False),
        ({"a": 0}, {"a": False}, False), ({"a": 1}, {"a": 1, "b": 2}, False), ([1], [1, 2], False),
        ([], {}, False),
        ({"a": [1.0]}, {"a": [1]}, True),
    ],
)  # fmt: skip
def test_values_of_json_are_compared_with_their_types(value, expected, same):
    assert same_json(value, expected) == same


class StubShell:
    """Answers every command in the same way, without a sandbox."""

    def __init__(self, result):
        self.result, self.commands = result, []

    def write(self, files):
        pass

    def run(self, command, seconds):
        self.commands.append((command, seconds))
        return self.result

    def read(self):
        return {}

    def close(self):
        pass


def test_the_load_of_the_machine_decides_no_test():
    """A test has a limit of CPU time; its wall-clock limit is many times as long and gives no verdict."""
    shell = StubShell(ShellResult("5\n", 0, "ok", "/app"))
    condition = prints("a test", "./run", "5")
    assert condition.check(End({}, lambda: shell))
    ((command, seconds),) = shell.commands
    cpu_seconds = int(re.search(r"ulimit -t (\d+)", command)[1])
    assert seconds >= 20 * cpu_seconds
    late = StubShell(ShellResult("", 130, "timeout", "/app"))
    task = TerminalTask("", {}, (condition, Condition("other", lambda end: True)), "", ())
    with pytest.raises(EnvError, match="a test is undecided"):
        SOURCE.grade(task, late, lambda: late)


def test_a_program_that_computes_for_ever_is_wrong():
    with closing(open_shell()) as shell:
        result = shell.run("ulimit -t 1\n{\npython3 -c 'while True: pass'\n} 2> /dev/null", seconds=600)
    assert result.ending == "ok"
    assert result.status != 0


@pytest.mark.once
@pytest.mark.parametrize("name", ["statistics", "slugs", "sizes_by_ending", "validate"])
def test_hidden_input_refuses_every_wrong_mutant(name):
    task = SOURCE.task(SOURCE.names.index(name), 1)
    verdicts = judged(name, SOURCE, task)
    assert len(verdicts) >= 10
    assert [kind for kind, paid in verdicts.items() if paid] == []
