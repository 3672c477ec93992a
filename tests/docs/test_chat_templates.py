"""The table of chat templates: its page, and how it is read from packages and compared."""

from __future__ import annotations

import copy
import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT
from tests.docs.test_env_tables import load
from tests.rollout.tokenizers import CHATML
from tests.support import needs

chat_templates: Any = load("chat_templates")
tables: Any = load("template_tables")
RECORDED: dict[str, Any] = json.loads(chat_templates.TABLE.read_text(encoding="utf-8"))


def test_the_page_shows_the_recorded_table() -> None:
    page, _, _ = tables.PAGE.read_text(encoding="utf-8").partition(chat_templates.EQUALITY)
    assert page == chat_templates.page_of(RECORDED)
    assert len(RECORDED["templates"]) > 120


def test_the_page_of_tools_has_the_numbers_of_the_table() -> None:
    rows = RECORDED["templates"].values()
    text = " ".join((ROOT / "docs/concepts/tools.md").read_text(encoding="utf-8").split())
    syntaxes, turns = sum(bool(row["calls"]) for row in rows), sum(bool(row["tool turns"]) for row in rows)
    assert f"lists {len(rows)} published templates: a syntax is found for {syntaxes} of them, " in text
    assert f" and the tool turn of {turns} is the template's own" in text


def test_no_template_lets_a_text_spell_a_special_token() -> None:
    counts = [row["forged"] for row in RECORDED["templates"].values() if row["accepted"]]
    assert len(counts) > 110
    assert set(counts) == {0}


@pytest.mark.parametrize("cell", ["accepted", "extra stop", "forged", "dropped"])
def test_a_changed_cell_is_named(cell: str) -> None:
    changed = copy.deepcopy(RECORDED)
    name = next(iter(changed["templates"]))
    changed["templates"][name][cell] = "other"
    (line,) = tables.changed_cells(RECORDED, changed)
    assert line.startswith(f"{name}, {cell}: ")
    assert tables.changed_cells(RECORDED, RECORDED) == []
    del changed["templates"][name]
    assert tables.changed_cells(RECORDED, changed) == [f"{name}: missing"]


def packages(folder: Path) -> Path:
    """Write small packages with the layout of the published ones."""
    archive = folder / "llama_cpp_python-0.1.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("vendor/llama.cpp/models/templates/one.jinja", "vendor/llama.cpp/models/other.jinja"):
            member = tarfile.TarInfo(f"llama_cpp_python-0.1/{name}")
            member.size = len(CHATML.encode())
            tar.addfile(member, io.BytesIO(CHATML.encode()))
    with zipfile.ZipFile(folder / "trl-0.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("trl/chat_templates/one.jinja", CHATML)
        wheel.writestr("trl/chat_templates/two.jinja", CHATML + " ")
        wheel.writestr("trl/chat_templates/two_training.jinja", CHATML + "  ")
    source = (
        "raise SystemExit('never executed')\n"
        "a_template = '{% for m in messages %}' + '{{ m.content }}{% endfor %}'\n"
        "b_template = a_template.replace('content', 'role')\n"
        "c_template = load(a_template)\n"
        "a_ollama_template = '{% for m in n %}'\n"
    )
    with zipfile.ZipFile(folder / "unsloth-0.3-py3-none-any.whl", "w") as wheel:
        wheel.writestr("unsloth/chat_templates.py", source)
    return folder


def test_templates_are_read_once_from_each_package(tmp_path: Path) -> None:
    texts, versions = chat_templates.read_templates(packages(tmp_path))
    assert versions == {"llama-cpp-python": "0.1", "trl": "0.2", "unsloth": "0.3"}
    assert texts == {
        "llama/one": CHATML,
        "trl/two": CHATML + " ",
        "unsloth/a_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
        "unsloth/b_template": "{% for m in messages %}{{ m.role }}{% endfor %}",
    }
    (tmp_path / "trl-0.2-py3-none-any.whl").unlink()
    with pytest.raises(SystemExit, match="expected one file trl-"):
        chat_templates.read_templates(tmp_path)


@needs("transformers", "train")
def test_a_row_tells_what_a_template_does() -> None:
    row = chat_templates.row_of(CHATML)
    assert (row["accepted"], row["self-test"], row["forged"]) == (True, "equal", 0)
    assert (row["ends"], row["extra stop"]) == (["<|im_end|>"], "<|im_end|>")
