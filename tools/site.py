"""Pages that mkdocs makes while it builds the site: the notebooks, and ``llms.txt``, a list of all pages.

It also lets long code in the first column of a table break, so that the other columns keep their width.

mkdocs loads this file as a hook; see ``mkdocs.yml``.
"""

from __future__ import annotations

import contextlib
import json
import re
from io import StringIO
from typing import Any

from mkdocs.structure.files import File, Files

INTRODUCTION = """\
# gem-core

> Environments for agents that are language models, advantage estimators such as ReBN, and plugins for six RL
> trainers (verl, OpenRLHF, Oat, RL2, ROLL, TRL). The base package needs only numpy.
"""


def on_files(files: Files, config: Any) -> Files:
    """Replace each notebook with a page, and add ``llms.txt``."""
    notebooks = [file for file in files if file.src_uri.endswith(".ipynb")]
    pages = {file.src_uri: file.content_string for file in files if file.src_uri.endswith(".md")}
    for file in notebooks:
        files.remove(file)
        name = file.src_uri.replace(".ipynb", ".md")
        pages[name] = notebook_page(json.loads(file.content_string))
        files.append(File.generated(config, name, content=pages[name]))
    files.append(File.generated(config, "llms.txt", content=list_pages(config["nav"], pages)))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Allow long code in the first column of a table to break after punctuation; the style keeps it whole."""
    return re.sub(
        r"(?<=<tr>\n<td><code>)[^<]{41,}", lambda code: re.sub(r"[.,=(]", r"\g<0><wbr>", code[0]), html
    )


def notebook_page(notebook: dict[str, Any]) -> str:
    """Run a notebook and return it as Markdown, with what each cell prints."""
    parts = []
    namespace: dict[str, Any] = {"__name__": "__notebook__"}
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] != "code":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        printed = StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(StringIO()):
            exec(text, namespace)
        if printed.getvalue():
            parts.append(f"```text\n{printed.getvalue().rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def list_pages(nav: list[Any], pages: dict[str, str]) -> str:
    """Return the text of ``llms.txt``: the pages by section, each with its first paragraph.

    Args:
        nav: The navigation in ``mkdocs.yml``.
        pages: Maps the path of each page to its Markdown.
    """
    lines = [INTRODUCTION]
    for section in nav:
        ((title, entries),) = section.items()
        lines += [f"## {title}", ""]
        for name, page in _entries(entries):
            address = page.removesuffix(".md") + ".html"
            lines.append(f"- [{name}]({address}): {summarize(pages[page])}")
        lines.append("")
    return "\n".join(lines)


def summarize(text: str) -> str:
    """Return the first paragraph of a page as one line, without links and marks."""
    for part in re.split(r"\n\s*\n", text):
        if not part.startswith(("#", "<!--", "!", "|", "```", ":::")):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(part.split()))
            return plain.replace("`", "").replace("**", "")
    return "Python API"


def _entries(entries: list[Any]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for entry in entries:
        ((title, value),) = entry.items()
        found += [(title, value)] if isinstance(value, str) else _entries(value)
    return found
