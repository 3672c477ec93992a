"""Oat's own parser and our checks accept the commands of the documentation and the example."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from pathlib import Path

import gem_oat
import oat
import pytest
import torch
import tyro
from gem_oat import _SUPPORTED
from gem_oat._args import Args
from gem_oat._checks import prepare
from oat.algorithms.ppo import PPOArgs

from gem_core import _registration
from tests.docs.blocks import ROOT, command_lines
from tests.trainers.example import load_example

ELSEWHERE = ("rg:arc_1d", "math:Math12K")
"""Environments of the documented commands whose packages or data are not installed here."""
PARTS = (
    "interface.py",
    "model.py",
    "actors/base.py",
    "learners/base.py",
    "learners/rl.py",
    "algorithms/ppo*.py",
    "utils/*.py",
)
"""Files of Oat that read the arguments of PPO on environments."""


COMMANDS = [words[3:] for words in command_lines("docs/trainers/oat.md", "python", "-m", "gem_oat.train")]


@pytest.fixture(autouse=True)
def places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that there are eight devices, and replace each environment of `ELSEWHERE`."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    here = {
        env_id: spec for env_id, spec in _registration._envs.registered().items() if env_id not in ELSEWHERE
    }
    monkeypatch.setattr(_registration._envs, "_values", here)
    for env_id in ELSEWHERE:
        _registration.register(env_id, "gem_envs._games.guess_the_number:GuessTheNumber")


def check(words: list[str]) -> Args:
    return prepare(tyro.cli(Args, args=words))


@pytest.mark.parametrize("words", COMMANDS, ids=["words", "game", "puzzle", "mathematics", "critic"])
def test_a_documented_command_is_accepted(words: list[str]) -> None:
    args = check(words)
    assert (args.learners, args.pi_buffer_maxlen_per_device) == (8, 16)
    assert args.paper_rebn == ("--paper-rebn" in words)


def test_the_page_names_every_option() -> None:
    page = (ROOT / "docs/trainers/oat.md").read_text()
    oat_fields = {field.name for field in fields(PPOArgs)}
    for name in {field.name for field in fields(Args)} - oat_fields:
        assert f"`--{name.replace('_', '-')}`" in page


def test_the_example_is_an_environment_and_a_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load_example(monkeypatch, capsys)
    words = shlex.split(module.train("oat"))
    args = check(words[words.index("gem_oat.train") + 1 :])
    assert args.modules == ["own_env"]


def passed_on() -> set[str]:
    """Return the flags that the page lists as passed on to Oat."""
    page = (ROOT / "docs/trainers/oat.md").read_text()
    section = page.split("### Oat's own flags")[1].split("\n#")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return set(re.findall(r"`(\w+)`", "".join(rows)))


def rejected(section: str) -> set[str]:
    table = _SUPPORTED.read_table("unsupported.json", section)
    return {name for names in table.values() for name in names.split()}


def test_every_flag_of_oat_is_passed_on_or_rejected() -> None:
    flags = {field.name for field in fields(PPOArgs)}
    always = rejected("always")
    assert passed_on() | always == flags
    assert not passed_on() & always
    sections = ("with a critic", "without a critic", "without drgrpo", "several groups")
    sometimes = set.union(*map(rejected, sections))
    assert sometimes & flags <= passed_on()


def test_a_flag_that_is_passed_on_is_read() -> None:
    """A flag that no code of Oat's PPO or of the plugin reads would have no effect."""
    (oat_fields,), (ours,) = oat.__path__, gem_oat.__path__
    files = [*Path(ours).glob("*.py"), *(path for part in PARTS for path in Path(oat_fields).glob(part))]
    code = "".join(path.read_text() for path in files)
    assert passed_on() <= set(re.findall(r"args\.(\w+)", code)) | set(re.findall(r'args, "(\w+)"', code))
