"""The help of every command fits into a terminal with 80 columns, and names its defaults."""

from __future__ import annotations

import pytest

from gem_lab import main
from gem_lab._cli import COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_fits_into_80_columns(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if len(line) > 80] == []


def test_the_help_of_tiny_names_the_defaults_of_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="needs the extra 'train'")
    from gem_lab.train import TinyOptions

    assert main(["tiny", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    defaults = TinyOptions()
    for name in ("hidden_size", "layers", "vocab_size", "max_positions", "warm_start_steps", "seed"):
        described = shown[shown.index(f" --{name.replace('_', '-')} N ") :]
        assert described[: described.index(")")].endswith(f"(default {getattr(defaults, name)}")
    assert f"default {defaults.env[0]})" in shown
