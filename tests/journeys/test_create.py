"""A reader of the tutorial writes an environment of about 40 lines; about 2 s on two CPU cores.

`tests/docs/test_blocks.py` runs the commands of the page, from `gem-core new` to the rows for a trainer.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gem_lab import main
from tests.docs.blocks import ROOT, blocks

(GAME,) = [block.code for block in blocks("docs/concepts/create.md") if "class Change" in block.code]
BROKEN = {
    '(*TurnBasedEnv.state_fields, "left")': "TurnBasedEnv.state_fields",
    "self.random.randint": "__import__('random').randint",
    "return integer(text)": "return int(text)",
}
"""Maps lines of the environment to mistakes that the page warns of."""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_passes_on_the_first_try(capsys: pytest.CaptureFixture[str]) -> None:
    Path("change.py").write_text(GAME)
    assert sum(bool(line.strip()) for line in GAME.splitlines()) <= 40
    assert main(["check", "change.py:Change", "--seeds", "1"]) == 0
    assert "change.py:Change: 28 rules hold" in capsys.readouterr().out


def test_mistakes_are_reported_once_with_rules_that_the_page_explains(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A saved state can only be checked once nothing but the seed determines an episode."""
    text, found = GAME, []
    for line, mistake in BROKEN.items():
        assert text.count(line) == 1
        text = text.replace(line, mistake)
    for fixed in ((), tuple(BROKEN)[1:]):
        for line in fixed:
            text = text.replace(BROKEN[line], line)
        file = f"change_{len(found)}.py"  # a process imports a file once
        Path(file).write_text(text)
        assert main(["check", f"{file}:Change", "--seeds", "1", "--json"]) == 1
        (result,) = json.loads(capsys.readouterr().out)
        found.append((set(result["broken"]), result["unchecked"].get("states_survive_json")))
    assert found == [
        ({"any_text_is_taken", "global_random_is_left_alone"}, "global_random_is_left_alone"),
        ({"states_survive_json"}, None),
    ]
    page = (ROOT / "docs/concepts/rules.md").read_text(encoding="utf-8")
    assert all(f"| `{rule}` |" in page for broken, _ in found for rule in broken)


def test_a_broken_rule_names_the_line_of_the_environment_that_raised(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = GAME.replace("return integer(text)", "return int(text)")
    Path("change.py").write_text(text)
    line = text[: text.index("return int(text)")].count("\n") + 1
    rules = ["--rules", "any_text_is_taken", "--rules", "attacks_change_nothing"]
    assert main(["check", "change.py:Change", "--seeds", "1", *rules, "--json"]) == 1
    (result,) = json.loads(capsys.readouterr().out)
    assert f"(change.py:{line} in parse)" in result["broken"]["any_text_is_taken"]
    assert result["unchecked"] == {"attacks_change_nothing": "any_text_is_taken"}
