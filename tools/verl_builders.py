"""verl's builders of continuous tokens against chat templates: record a table, or check it.

    python tools/verl_builders.py FOLDER          # record the table, and a section of the page
    python tools/verl_builders.py FOLDER --check  # fail if a cell has changed

The interpreter needs verl and gem_core, as that of `nox -s verl` has; FOLDER is that of `chat_templates.py`.

For each template that a context accepts, a model answers once, up to and including the token that ends the
answer. A next prompt is exact if it adds the tokens that the template writes after that token.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chat_templates import read_templates
from next_turns import ANSWER, MESSAGES, QUESTION
from template_tables import ROOT, main, with_section

TABLE = ROOT / "docs/results/verl_builders.json"
BUILDERS = ("", "GptOss", "Qwen", "MiniMax", "GLM", "Gemma4", "DeepSeek")
"""Begins of the names of the builders for texts; the first one is the generic builder."""


def row_of(template: str) -> dict[str, Any] | None:
    """Return the row of a template; None if no context accepts it."""
    from verl.utils.tokenizer import continuous_token

    from gem_chat import AppendContext
    from gem_chat._inputs import checked_renderer
    from gem_chat._report import stand_in_tokenizer
    from gem_core.errors import UnsupportedTemplate

    tokenizer = stand_in_tokenizer(template)
    try:
        context = AppendContext(tokenizer)
        stop = context.extra_stop_id(())
    except UnsupportedTemplate:
        return None

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    before = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]
    after = [*before, {"role": "user", "content": MESSAGES[0]}]
    end = checked_renderer(tokenizer)(after, generate=True).rpartition(ANSWER)[2]
    written, rest = "", end
    if stop is not None:
        mark = tokenizer.decode([stop])
        if mark not in end:  # a template in the manner of gpt-oss has another token after earlier answers
            mark = tokenizer.decode(encode(end)[:1])
        written, rest = end.partition(mark)[0] + mark, end.partition(mark)[2]
    response, expected = encode(ANSWER + written), encode(rest)
    runtime = [*context.first(QUESTION), *response]
    exact: list[str] = []
    failed = False
    for name in BUILDERS:
        try:
            builder = getattr(continuous_token, f"{name}ContinuousTokenBuilder")(tokenizer)
            merged = builder.merge_context_tokens(before, after, runtime).token_ids
        except Exception:  # a builder of another family, or a template that takes no two questions in a row
            failed |= not name
            continue
        if merged == [*runtime, *expected]:
            exact.append(name or "generic")
    return {
        "gem-core": context.extend(MESSAGES[0], response) == expected,
        "verl": exact,
        "generic fails": failed,
    }


def measure(folder: Path) -> dict[str, Any]:
    """Return the table of all templates that a context accepts."""
    templates, versions = read_templates(folder)
    versions["verl"] = importlib.metadata.version("verl")
    rows = {name: row_of(text) for name, text in templates.items()}
    return {"packages": versions, "templates": {name: row for name, row in rows.items() if row is not None}}


def section_of(table: Mapping[str, Any]) -> str:
    """Return the section of the page."""
    rows = table["templates"].values()
    ours = sum(row["gem-core"] for row in rows)
    generic = sum("generic" in row["verl"] for row in rows)
    fails = sum(row["generic fails"] for row in rows)
    others = len(rows) - generic - fails
    some = sum(bool(row["verl"]) for row in rows)
    both = sum(bool(row["verl"]) and row["gem-core"] for row in rows)
    return f"""## Builders of verl

After an answer up to the token that ends it, the next prompt of gem-core has the tokens of the template's
own rendering for {ours} of the {len(rows)} templates that contexts accept. The generic builder of verl
{table["packages"]["verl"]}, `ContinuousTokenBuilder`, has them for {generic}. It has others for {others},
such as no line break after the end of an answer, and fails for {fails}, such as those that take no two
questions in a row. At least one of verl's seven builders for texts has them for {some} templates; gem-core
has them for {both} of these.
"""


def page_with(page: str, table: Mapping[str, Any]) -> str:
    """Return a page with the section of the table."""
    return with_section(page, section_of(table))


if __name__ == "__main__":
    sys.exit(main(__doc__, TABLE, measure, page_with))
