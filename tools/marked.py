"""Pages with a part that a script writes, between ``<!-- NAME -->`` and ``<!-- end -->``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path


def with_part(text: str, name: str, part: str) -> str:
    """Return a page with another text for its part `name`."""
    marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not marked.search(text):
        raise SystemExit(f"the page has no <!-- {name} --> ... <!-- end -->")
    return marked.sub(lambda match: f"{match[1]}{part}{match[2]}", text)


def rewrite_page(about: str | None, fill: Callable[[str], str]) -> None:
    """Rewrite the page that the command line names."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    page = parser.parse_args().page
    page.write_text(fill(page.read_text("utf-8")), "utf-8")
