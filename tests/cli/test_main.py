from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest

import gem_core
from gem_lab import main
from gem_lab._cli import COMMANDS, build_parser


def test_no_arguments_show_the_help(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    for command in COMMANDS:
        assert re.search(rf"\n    {command}\s", shown)
    assert "exit codes:" in shown


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gem-core {gem_core.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_ends_with_examples_that_parse(command, capsys):
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    examples = shown.partition("examples:\n")[2].splitlines()
    assert examples
    for example in "\n".join(examples).replace("\\\n", " ").splitlines():
        words = shlex.split(example)
        assert words[:2] == ["gem-core", command]
        build_parser().parse_args(words[1:])


def test_another_package_brings_a_command(tmp_path, monkeypatch, capsys):
    (tmp_path / "acme_command.py").write_text(
        "from gem_lab._cli._arguments import CliCommand\n"
        "COMMAND = CliCommand('say hello', examples=('',))\n"
        "def add_arguments(parser):\n    parser.add_argument('--name', default='world')\n"
        "def run(args):\n    print('hello', args.name)\n    return 0\n"
    )
    metadata = tmp_path / "acme-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[gem_core.commands]\nhello = acme_command\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["hello", "--name", "you"]) == 0
    assert capsys.readouterr().out == "hello you\n"
    assert main([]) == 0
    assert "say hello" in capsys.readouterr().out


def test_a_wrong_command_is_reported_in_one_line(capsys):
    assert main(["tarin"]) == 2
    assert capsys.readouterr().err == (
        "gem-core: error: unknown command 'tarin'; did you mean 'train'? (for help: gem-core --help)\n"
    )
    assert main(["eval", "--model", "random"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "expected --env, or --rescore RUN; see --help" in line


def test_the_help_is_light():
    code = (
        "import sys; from gem_lab import main; main(['--help']);"
        "heavy = {'torch', 'transformers', 'ray', 'rich', 'matplotlib', 'asyncio'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy - {'asyncio'} else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_reported_in_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gem_lab"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr == "gem-core: error: [Errno 28] No space left on device\n"


def test_a_closed_pipe_is_silent():
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "gem_lab"], stdout=pipe, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (141, "")


def test_what_the_terminals_encoding_lacks_is_escaped():
    code = (
        "import gem_core, sys; gem_core.register('test:Odd-v0', 'a:b', description='caf\\u00e9 \\ud800');"
        "from gem_lab import main; sys.exit(main(['envs', 'test:Odd-v0']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "caf\\xe9 \\ud800" in done.stdout


def test_interrupt_is_130(monkeypatch, capsys):
    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr("gem_lab._cli.envs.run", interrupted)
    assert main(["envs"]) == 130
    assert capsys.readouterr().err == "gem-core: interrupted\n"


def test_a_bug_is_not_hidden(monkeypatch):
    def broken(args):
        raise ZeroDivisionError

    monkeypatch.setattr("gem_lab._cli.envs.run", broken)
    with pytest.raises(ZeroDivisionError):
        main(["envs"])


def test_an_unknown_option_is_named_with_the_closest_one_and_the_help_of_its_command(capsys):
    assert main(["new", "HotCold", "--packege"]) == 2
    error = capsys.readouterr().err
    assert "'--packege'. Did you mean --package?" in error
    assert "gem-core new --help" in error
    assert main(["--nothing-like-it"]) == 2
    assert "unknown argument '--nothing-like-it' (for help: gem-core --help)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "flag", "close"),
    [
        (["train", "--episodes-per-ste", "8"], "--episodes-per-ste", "--episodes-per-step"),
        (["train", "--gamm=0.9"], "--gamm=0.9", "--gamma"),
        (["eval", "--en", "game:GuessTheNumber-v0", "--model", "x"], "--en", "--env"),
        (["--versio"], "--versio", "--version"),
    ],
)
def test_an_abbreviated_flag_is_an_error(words, flag, close, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert f"unknown argument '{flag}'" in error
    assert f"Did you mean {close}" in error
