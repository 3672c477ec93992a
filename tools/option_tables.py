"""Write the tables of options in the documentation, from the declarations in the code.

    python tools/option_tables.py            # every page
    python tools/option_tables.py docs/trainers/verl.md

The part between ``<!-- options: MODULE:CLASS PREFIX -NAME=TEXT ... -->`` and ``<!-- end -->`` is replaced by
a table of the options of the class. PREFIX, which may be missing, is what a user writes before a name; after
``--``, words are joined by dashes. TEXT replaces the default of an option; without a text, it is left out.
"""

from __future__ import annotations

import argparse
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from gem_core._util.options import Option, list_options

DOCS = Path(__file__).resolve().parents[1] / "docs"
MARKED = re.compile(r"(<!-- options: (\S+)(.*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(path: str, words: list[str]) -> str:
    """Return the table of a class that is given as ``MODULE:CLASS``."""
    module, name = path.split(":")
    prefix = "".join(word for word in words if word.startswith("--") or not word.startswith("-"))
    changed = dict(
        word[1:].partition("=")[::2] for word in words if word.startswith("-") and word[:2] != "--"
    )
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for option in list_options(getattr(import_module(module), name)):
        default = changed.get(option.name, shown(option.default))
        if option.help and default:
            spelled = option.name.replace("_", "-") if prefix == "--" else option.name
            lines.append(f"| `{prefix}{spelled}` | {default} | {meaning(option)} |")
    return "\n".join(lines) + "\n"


def shown(value: Any) -> str:
    """Return a default as Markdown."""
    if value in (None, "") or (isinstance(value, list | tuple | dict) and not value):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"`{', '.join(value)}`" if isinstance(value, list) else f"`{value}`"


def meaning(option: Option) -> str:
    """Return the help of an option as Markdown, with the values that it may have."""
    text = re.sub(r"<\S+>|(?<!\w)'[^']+'(?!\w)", lambda match: f"`{match[0].strip(chr(39))}`", option.help)
    return text.replace("|", r"\|")


def fill(text: str) -> str:
    """Return a page with its tables."""
    return MARKED.sub(lambda match: f"{match[1]}\n{table(match[2], match[3].split())}\n{match[4]}", text)


def main() -> None:
    """Rewrite pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", type=Path)
    for page in parser.parse_args().pages or sorted(DOCS.rglob("*.md")):
        text = page.read_text("utf-8")
        if (filled := fill(text)) != text:
            page.write_text(filled, "utf-8")


if __name__ == "__main__":
    main()
