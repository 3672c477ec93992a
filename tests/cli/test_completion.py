"""`gem-core --print-completion` prints scripts that complete commands, options, choices, and ids."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from gem_lab import main
from gem_lab._cli._completion import SHELLS

EXAMPLES = {
    "gem-core ch": ["check"],
    "gem-core check game:Wordle-v0-e": ["Wordle-v0-easy"],  # what follows the colon, where bash splits
    "gem-core check gam": ["game:"],
    "gem-core play game:Wordle-v0-e": ["Wordle-v0-easy"],
    "gem-core check game:Wordle-v0-easy game:Mastermind-v0-h": ["Mastermind-v0-hard"],
    "gem-core bench --backend in": ["inline"],
    "gem-core export --env game:Wordle-v0-e": ["Wordle-v0-easy"],
    "gem-core view tra": ["traces.jsonl"],
    "gem-core check --no": [],
}
"""Maps typed text to a completion that is offered; nothing for the last one."""


@pytest.fixture
def script(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> str:
    pytest.importorskip("shtab", reason="needs the extra 'completion'")
    assert main(["--print-completion", request.param]) == 0
    return capsys.readouterr().out


@pytest.mark.once
@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_completes_what_is_typed(script, tmp_path):
    (tmp_path / "traces.jsonl").touch()
    for typed in EXAMPLES:
        script += f"""
COMP_LINE={typed!r} COMP_POINT={len(typed)}
COMP_WORDS=({" ".join(typed.replace(":", " : ").split())})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
COMPREPLY=()
_gem_core
echo "${{COMPREPLY[@]}}"
echo ---
"""
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    replies = [reply.split() for reply in done.stdout.split("---\n")[:-1]]
    assert len(replies) == len(EXAMPLES), done.stderr
    for (typed, expected), reply in zip(EXAMPLES.items(), replies, strict=True):
        if expected:
            assert any(word.startswith(expected[0]) for word in reply), (typed, reply)
        else:
            assert reply == []


@pytest.mark.parametrize("script", ["zsh", "tcsh"], indirect=True)
def test_other_shells_complete_the_same_words(script, request):
    for word in ("game:Wordle-v0-easy", "kwargs", "inline", "doctor"):
        assert word in script
    shell = "zsh" if "#compdef gem-core" in script else "tcsh"
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_a_missing_package_and_a_wrong_shell_are_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["--print-completion", "bash"]) == 2
    assert "pip install 'gem-core[completion]'" in capsys.readouterr().err
    assert main(["--print-completion", "cmd"]) == 2
    message = capsys.readouterr().err
    assert all(shell in message for shell in SHELLS)
