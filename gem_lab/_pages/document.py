"""HTML pages in one style: `write_document`."""

from __future__ import annotations

import html
import re
from pathlib import Path

from gem_core._util.files import write_atomically
from gem_core.errors import ConfigError

PAGE_MARK = '<meta name="generator" content="gem-core">'
"""Text near the start of every page that this package writes."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c2321; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 2rem; }
th, td { text-align: left; padding: .45rem .7rem; border-bottom: 1px solid #dde3e0; vertical-align: top; }
@media (max-width: 40rem) {
  body { margin: 1rem auto; }
  table { display: block; overflow-x: auto; }
  th, td { padding: .3rem .5rem; min-width: 5rem; }
}
.number { white-space: nowrap; }
.equal { color: #12664a; } .differs { color: #a4262c; font-weight: 600; } .unknown { color: #6b7471; }
code, pre { font: 13px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; white-space: pre-wrap; }
"""


def check_page(path: str | Path) -> None:
    """Check that a page may be written: over nothing, an empty file, a page of this package, or to a stream.

    Raises:
        ConfigError: There is a link, another file, or something that is not a file.
    """
    path = Path(path)
    if path.parts[:2] in (("/", "dev"), ("/", "proc")):
        return
    if path.is_symlink():
        raise ConfigError(f"{path} is a link, and no page is written through it; choose a page with --out")
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return
    start = ""
    if path.is_file():
        with open(path, encoding="utf-8", errors="replace") as file:
            start = file.read(500)
    if PAGE_MARK not in start:
        raise ConfigError(f"{path} is not a page of gem-core; choose another page with --out")


def write_document(out: str | Path, title: str, body: str, style: str = "") -> None:
    """Write an HTML page in the common style, followed by the rules in `style`."""
    head = (
        f"<meta charset='utf-8'>{PAGE_MARK}"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>gem-core: {title}</title><style>{_STYLE}{style}</style>"
    )
    text = f"<!doctype html><html lang='en'><head>{head}</head><body><h1>{title}</h1>{body}</body></html>\n"
    write_atomically(out, [text])


def verdict_cell(equal: bool | None, text: str) -> str:
    """Return a table cell in the color of its verdict; a number in parentheses stays on one line."""
    kind = {None: "unknown", True: "equal", False: "differs"}[equal]
    shown = re.sub(r"\([-+.\de]+\)", r"<span class='number'>\g<0></span>", html.escape(text))
    return f"<td class='{kind}'>{shown}</td>"
