"""The built documentation site shows the contents of its Markdown sources.

markdown-it reads the sources and Python-Markdown builds the site; a difference between the two means that the
site does not show a text as intended.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks, code_cells, pages
from tests.docs.test_env_tables import load

pytest.importorskip("mkdocs", reason="needs the extra 'docs'")
markdown_it = pytest.importorskip("markdown_it", reason="needs the extra 'test'")

site = load("site")

DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
NOTEBOOKS = {path.relative_to(DOCS).with_suffix(".md").as_posix(): path for path in DOCS.rglob("*.ipynb")}
WIDTH = 110
"""Characters of a line of code that fit beside the sidebars; see ``docs/stylesheets.css``."""
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")


class Article(HTMLParser):
    """Collects headings, code blocks, and counts of the other parts of a page's own text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.headings: list[tuple[str, str]] = []
        self.code: list[str] = []
        self.counts: Counter[str] = Counter()
        self._text = ""
        self._in_permalink = False
        self.feed(html[html.index("<article") : html.index("</article>")])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] += 1
        if tag in (*HEADINGS, "pre"):
            self._text = ""
        elif ("class", "headerlink") in attrs:
            self._in_permalink = True

    def handle_endtag(self, tag: str) -> None:
        if tag in HEADINGS:
            self.headings.append((tag, self._text.strip()))
        elif tag == "pre":
            self.code.append(self._text.strip())
        elif tag == "a":
            self._in_permalink = False

    def handle_data(self, data: str) -> None:
        if not self._in_permalink:
            self._text += data


def source(text: str) -> tuple[list[tuple[str, str]], list[str], Counter[str]]:
    """Return headings, code blocks, and counts of table rows and list items in Markdown."""
    tokens = markdown_it.MarkdownIt("commonmark").enable("table").parse(text)
    headings = [
        (token.tag, "".join(part.content for part in following.children))
        for token, following in pairwise(tokens)
        if token.type == "heading_open"
    ]
    code = [token.content.strip() for token in tokens if token.type in ("fence", "code_block")]
    return headings, code, Counter(token.tag for token in tokens if token.nesting == 1)


def test_code_fits_into_a_window_of_1400_pixels() -> None:
    wide = [
        f"{block.where}: {line}"
        for page in pages()
        for block in blocks(page)
        for line in block.code.splitlines()
        if len(line) > WIDTH
    ]
    assert not wide, "\n".join(wide)
    cells = [line for path in NOTEBOOKS.values() for code in code_cells(path) for line in code.splitlines()]
    assert max(map(len, cells)) <= WIDTH


def test_long_code_in_the_first_column_can_break() -> None:
    row = "<tr>\n<td><code>{}</code></td>\n<td><code>{}</code></td>\n</tr>"
    long, short = "+a.b." + "c" * 40 + "=d", "a.b=c"
    shown = site.on_page_content(row.format(long, long) + row.format(short, long))
    broken = "+a.<wbr>b.<wbr>" + "c" * 40 + "=<wbr>d"
    assert shown == row.format(broken, long) + row.format(short, long)


@pytest.mark.long
def test_the_site_builds_without_a_warning_and_each_page_shows_its_source(tmp_path: Path) -> None:
    """One test, because building the site takes most of the time and workers share no fixtures."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "SITE_SIGNATURE_LENGTH": "10000"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    listed = (tmp_path / "llms.txt").read_text(encoding="utf-8")
    for page in (*PAGES, *NOTEBOOKS):
        assert f"]({page.removesuffix('.md')}.html): " in listed
    for page, path in NOTEBOOKS.items():
        built = Article((tmp_path / page).with_suffix(".html").read_text(encoding="utf-8"))
        cells = [code.strip() for code in code_cells(path)]
        assert [code for code in built.code if code in cells] == cells
        assert len(built.code) > len(cells)  # what the cells print
        assert len(built.headings) > 1
    for page in PAGES:
        text = (DOCS / page).read_text(encoding="utf-8")
        headings, code, counts = source(text)
        built = Article((tmp_path / page).with_suffix(".html").read_text(encoding="utf-8"))
        if "\n::: " in text:  # mkdocstrings adds the contents of docstrings
            assert (page, built.headings[: len(headings)]) == (page, headings)
            assert len(built.headings) > len(headings), page
            continue
        assert (page, built.headings) == (page, headings)
        assert (page, built.code) == (page, code)
        for tag in ("tr", "li"):
            assert (page, tag, built.counts[tag]) == (page, tag, counts[tag])
