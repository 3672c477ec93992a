"""Real chat templates against gem_core: record a table of what contexts do with each, or check it.

    python tools/chat_templates.py FOLDER          # record docs/results/chat_templates.json and the page
    python tools/chat_templates.py FOLDER --check  # fail if a cell has changed

FOLDER holds the packages with the templates, as pip downloads them: the source archive of llama-cpp-python
and the wheels of trl and unsloth. `nox -s templates` downloads and checks them.
"""

from __future__ import annotations

import ast
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from template_tables import ROOT, main

TABLE = ROOT / "docs/results/chat_templates.json"
EQUALITY = "## Equality with renderers\n"
"""Heading of the section of the page that `renderers_equality.py` generates, the first one."""
LLAMA_CPP = "vendor/llama.cpp/models/templates/"


def read_templates(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the distinct templates by name, and the versions of the packages.

    Raises:
        SystemExit: A package is missing.
    """
    found: dict[str, str] = {}
    versions: dict[str, str] = {}
    for package, pattern, read in (
        ("llama-cpp-python", "llama_cpp_python-*.tar.gz", _in_archive),
        ("trl", "trl-*.whl", _in_wheel),
        ("unsloth", "unsloth-*.whl", _in_source),
    ):
        paths = sorted(folder.glob(pattern))
        if len(paths) != 1:
            raise SystemExit(f"{folder}: expected one file {pattern}, found {len(paths)}")
        versions[package] = paths[0].name.removesuffix(".tar.gz").split("-")[1]
        prefix = package.split("-")[0]
        for name, text in sorted(read(paths[0])):
            if text not in found.values():
                found[f"{prefix}/{name}"] = text
    return found, versions


def _in_archive(path: Path) -> Iterator[tuple[str, str]]:
    with tarfile.open(path) as archive:
        for member in archive:
            if LLAMA_CPP in member.name and member.name.endswith(".jinja"):
                content = archive.extractfile(member)
                assert content is not None, member.name
                yield Path(member.name).stem, content.read().decode()


def _in_wheel(path: Path) -> Iterator[tuple[str, str]]:
    with zipfile.ZipFile(path) as wheel:
        for name in wheel.namelist():
            if name.endswith(".jinja") and "training" not in Path(name).stem:
                yield Path(name).stem, wheel.read(name).decode()


def _in_source(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the Jinja texts that unsloth assigns to module variables; nothing is executed."""
    with zipfile.ZipFile(path) as wheel:
        source = wheel.read("unsloth/chat_templates.py").decode()
    texts: dict[str, str] = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name, text = node.targets[0].id, _text_of(node.value, texts)
        if text is None:
            continue
        texts[name] = text
        if "ollama" not in name and "template" in name and "{" in text and "for " in text:
            yield name, text


def _text_of(node: ast.expr, texts: Mapping[str, str]) -> str | None:
    """Return the text of an expression of literals, names of texts, ``+``, and ``.replace(a, b)``."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return texts.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text_of(node.left, texts), _text_of(node.right, texts)
        return None if left is None or right is None else left + right
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "replace":
        parts = [_text_of(part, texts) for part in (node.func.value, *node.args)]
        if len(parts) == 3 and None not in parts:
            whole, old, new = map(str, parts)
            return whole.replace(old, new)
    return None


def row_of(template: str) -> dict[str, Any]:
    """Return the row of a template."""
    from gem_chat import AppendContext, RebuildContext
    from gem_chat._report import describe_template, stand_in_tokenizer
    from gem_chat._template_context import TemplateContext

    tokenizer = stand_in_tokenizer(template)
    report = describe_template(tokenizer)
    context: Any = None
    if report.rejected is None:
        context = AppendContext(tokenizer)
    elif report.template_rejected is None:
        context = TemplateContext(tokenizer)
    elif report.rebuild_rejected is None:
        context = RebuildContext(tokenizer)
    return {
        "accepted": report.rejected is None,
        "why not": report.rejected,
        "template": report.template_rejected is None,
        "rebuilt": report.rebuild_rejected is None,
        "ends": list(report.ends),
        "extra stop": report.extra_stop,
        "thoughts": None if report.thinking is None else list(report.thinking),
        "calls": report.calls,
        "tool turns": not report.tool_turns if report.rejected is None else None,
        "dropped": list(report.dropped),
        "dated": report.dated,
        "self-test": report.self_test,
        "forged": None if context is None else forged_tokens(context, tokenizer),
    }


def forged_tokens(context: Any, tokenizer: Any) -> int:
    """Return how many special tokens a message adds to a prompt that spells all of them, twice."""
    from gem_chat._template import spellings_in

    texts = spellings_in(tokenizer, None).texts
    guarded = {number for number, token in tokenizer.added_tokens_decoder.items() if str(token) in texts}
    forged = 0
    for text in (" ".join(sorted(texts)), "".join(sorted(texts))):
        for made, neutral in (
            (context.first(text), context.first("x")),
            (context.extend(text, [5]), context.extend("x", [5])),
        ):
            forged += sum(i in guarded for i in made) - sum(i in guarded for i in neutral)
    return forged


def measure(folder: Path) -> dict[str, Any]:
    """Return the table of all templates."""
    templates, versions = read_templates(folder)
    return {"packages": versions, "templates": {name: row_of(text) for name, text in templates.items()}}


def page_of(table: Mapping[str, Any]) -> str:
    """Return the page up to the sections of other scripts."""
    rows, packages = table["templates"], table["packages"]
    accepted = [row for row in rows.values() if row["accepted"]]
    tests = Counter(row["self-test"] for row in accepted)
    whole = sum(row["template"] for row in rows.values())
    refused = {name: row["why not"] for name, row in rows.items() if not row["accepted"]}
    forged = sum(row["forged"] or 0 for row in rows.values())
    dropped = Counter(name for row in rows.values() for name in row["dropped"])
    text = f"""# The table of chat templates

{len(accepted)} of {len(rows)} distinct chat templates of published models work in contexts that only append
tokens, and {whole} in contexts that render the whole history. In {tests["equal"]}, an appended episode of
four turns has the tokens of the template's own rendering. In {tests["keeps"]}, it differs only by marks of
thoughts and answers, and by whitespace, that the template drops from the history; the model saw them, so
they stay.
{tests["differs"]} differ otherwise.

[Chat templates](../concepts/chat-templates.md) explains the columns, and how to get the row of your model.

A message of an environment that spells every special token of its template adds {forged} special tokens to
a prompt; see [Texts that spell special tokens](../concepts/rollout.md#texts-that-spell-special-tokens).
{dropped["tools"]} templates do not show schemas of tools, and {dropped["system prompt"]} no system prompt.

The templates come from {_listed(packages)};
copies of the same text count once, and each has a tokenizer with one token per byte and its own special
tokens. `python tools/chat_templates.py FOLDER` generates the table, and `nox -s templates` fails if a cell
changes.

"""
    lines = [
        *text.split("\n")[:-1],
        "| template | contexts | ends of an answer | engine must also stop at | thoughts | calls "
        "| tool turns | dropped | depends on the day | four turns |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_line(name, row) for name, row in rows.items()]
    if refused:
        lines += ["", "## Rejected templates", "", "| template | reason |", "|---|---|"]
        lines += [f"| {name} | {_cell(reason)} |" for name, reason in refused.items()]
    return "\n".join(lines) + "\n\n"


def _listed(packages: Mapping[str, str]) -> str:
    *first, last = [f"{name} {version}" for name, version in packages.items()]
    return f"{', '.join(first)}, and {last}"


def _line(name: str, row: Mapping[str, Any]) -> str:
    kinds = {"append": "accepted", "template": "template", "rebuild": "rebuilt"}
    contexts = [kind for kind, key in kinds.items() if row[key]]
    thoughts = row["thoughts"]
    cells = [
        name,
        "all" if len(contexts) == len(kinds) else ", ".join(contexts) or "none",
        " ".join(map(_code, row["ends"])) or "text",
        _code(row["extra stop"]) if row["extra stop"] else "-",
        f"{_code(thoughts[0])} {_code(thoughts[1])}" if thoughts else "-",
        row["calls"] or "-",
        {True: "yes", False: "no", None: "-"}[row["tool turns"]],
        ", ".join(row["dropped"]) or "-",
        "yes" if row["dated"] else "no",
        row["self-test"] or "-",
    ]
    return f"| {' | '.join(cells)} |"


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    shown = " ".join(text.split())
    return (shown if len(shown) <= 240 else f"{shown[:240]}...").replace("|", "\\|")


def page_with(page: str, table: Mapping[str, Any]) -> str:
    """Return a page with the table, and the sections of other scripts unchanged."""
    _, begin, sections = page.partition(EQUALITY)
    return page_of(table) + begin + sections


if __name__ == "__main__":
    sys.exit(main(__doc__, TABLE, measure, page_with))
