from __future__ import annotations

import json
from pathlib import Path

import pytest

from gem_lab import main
from tests.rollout.tokenizers import CHATML, LLAMA3, MISTRAL, QWEN3
from tests.support import needs

pytestmark = needs("transformers", "train")
NUMBERED = "{% for m in messages %}{{ loop.index ~ '. ' + m.content + '\n' }}{% endfor %}"
TOOLS = "{% if tools %}{{ tools | tojson }}{% endif %}" + CHATML


def file(folder: Path, template: str, name: str = "template.jinja") -> str:
    (folder / name).write_text(template, encoding="utf-8")
    return str(folder / name)


def facts(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, str]:
    """Return the facts of the page by label, and check its width."""
    assert main(["template", *arguments]) == code
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5
    assert max(map(len, lines)) <= 80
    found: dict[str, str] = {}
    for line in lines:
        label, text = line[:15].strip(), line[15:]
        if label:
            found[label] = text
        else:
            last = next(reversed(found))
            found[last] += f" {text}"
    return found


@pytest.mark.parametrize(
    ("template", "end", "thoughts", "header", "self_test"),
    [
        (CHATML, "'<|im_end|>'", "none in the template", "the same every day", "the whole conversation"),
        (QWEN3, "'<|im_end|>'", "'<think>' ... '</think>'", "the same every day", "as the model saw them"),
        (LLAMA3, "'<|eot_id|>'", "none in the template", "depends on the day", "the whole conversation"),
    ],
)
def test_the_page_of_a_template(tmp_path, capsys, template, end, thoughts, header, self_test):
    page = facts(capsys, file(tmp_path, template))
    assert page["accepted"] == "yes"
    assert page["answer ends"] == end
    assert page["thoughts"] == thoughts
    assert page["header"] == header
    assert page["self-test"].endswith(self_test)
    assert page["engine stops"] == f"</s>; must also stop at {end[1:-1]}"
    assert page["system prompt"] == "shown"
    assert page["tools"].startswith("schemas dropped")


def test_a_rejected_template_says_why_and_what_else_is_possible(tmp_path, capsys):
    page = facts(capsys, file(tmp_path, NUMBERED), code=1)
    assert "depends on the number of turns before it" in page["accepted"]
    assert page["accepted"].endswith("It is accepted with context=template or context=rebuild.")
    assert main(["template", file(tmp_path, NUMBERED), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["self_test"] is None
    assert (report["template_rejected"], report["rebuild_rejected"]) == (None, None)


def test_tools_can_be_required(tmp_path, capsys):
    facts(capsys, file(tmp_path, CHATML), "--tools", code=1)
    page = facts(capsys, file(tmp_path, TOOLS), "--tools")
    assert page["tools"].startswith("schemas shown")


def test_what_a_template_keeps_or_changes_is_named(tmp_path, capsys):
    quiet = CHATML.replace("assistant\n' }}{% endif %}", "assistant\n<think>\n\n</think>\n\n' }}{% endif %}")
    assert quiet != CHATML
    assert "stay in the history" in facts(capsys, file(tmp_path, quiet))["self-test"]
    changed = CHATML.replace("message['content'] +", "message['content'] | replace('Alpha', 'Beta') +")
    assert changed != CHATML
    page = facts(capsys, file(tmp_path, changed))
    assert "differ" in page["self-test"]
    assert "Alpha" in page["self-test"]
    assert "Beta" in page["self-test"]


def test_roles_that_a_template_rejects_are_named(tmp_path, capsys):
    page = facts(capsys, file(tmp_path, MISTRAL))
    assert page["system prompt"] == "dropped"
    assert page["tool turns"].startswith("no: the chat template")


@pytest.mark.parametrize("name", ["none.jinja", "folder/none.txt"])
def test_a_file_that_is_not_there_is_one_line(capsys, name):
    assert main(["template", name]) == 2
    assert "there is no such file" in capsys.readouterr().err


def test_doctor_checks_a_template_too(tmp_path, capsys):
    assert main(["doctor", "--model", file(tmp_path, NUMBERED)]) == 1
    assert "depends on the number of turns" in " ".join(capsys.readouterr().out.split())
    main(["doctor", "--json", "--model", file(tmp_path, CHATML)])
    report = json.loads(capsys.readouterr().out)
    assert (report["template"]["rejected"], report["template"]["self_test"]) == (None, "equal")
