"""The next prompts of gem_core against those of PrimeIntellect's renderers: record a table, or check it.

    python tools/renderers_equality.py FOLDER          # record the table, and a section of the page
    python tools/renderers_equality.py FOLDER --check  # fail if a cell has changed

FOLDER holds the packages of `chat_templates.py`, and the archives of `real_tokenizers.py`; `nox -s templates`
downloads and checks them.

For each template, a model answers or calls tools, and its response ends with each stop token, or is cut. The
prompt of the next turn is that of `AppendContext` and `ToolContext` here, and of
``bridge_to_next_turn`` in renderers.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from chat_templates import EQUALITY, read_templates
from next_turns import Case, Player
from real_tokenizers import GPT_OSS, read_tokenizer
from template_tables import ROOT, main, with_section

TABLE = ROOT / "docs/results/renderers_equality.json"
BYTES = "bytes"
_LOOKED_UP = re.compile(r"<?\uff5c[^<>\uff5c]+\uff5c>?")


class Family(NamedTuple):
    """A template, and what renderers has for its models.

    Attributes:
        template: Name of the template in `chat_templates.json`.
        renderer: Name of the class in the registry of renderers.
        model: Name of a model with this template; some classes look it up.
        tokenizer: Archive with the tokenizer, or `BYTES` for one token per byte and the special tokens of
            both sides.
    """

    template: str
    renderer: str
    model: str
    tokenizer: str = BYTES


FAMILIES = (
    Family("llama/Qwen-Qwen3-0.6B", "qwen3", "Qwen/Qwen3-0.6B", "qwen3"),
    Family("trl/qwen3", "qwen3", "Qwen/Qwen3-8B", "qwen3"),
    Family("trl/qwen3_instruct_2507", "qwen3", "Qwen/Qwen3-4B-Instruct-2507", "qwen3"),
    Family("trl/qwen3_vl", "qwen3-vl", "Qwen/Qwen3-VL-4B-Instruct", "qwen3"),
    Family("llama/Qwen3.5-4B", "qwen3.5", "Qwen/Qwen3.5-4B"),
    Family("trl/qwen3_5_nothink", "qwen3.5", "Qwen/Qwen3.5-0.8B"),
    Family("trl/qwen3_6", "qwen3.6", "Qwen/Qwen3.6-35B-A3B"),
    Family("trl/qwen3_8", "qwen3.8", "Qwen/Qwen3.8-27B"),
    Family(
        "llama/meta-llama-Llama-3.1-8B-Instruct", "llama-3", "meta-llama/Llama-3.1-8B-Instruct", "llama3_1"
    ),
    Family(
        "llama/meta-llama-Llama-3.2-3B-Instruct", "llama-3", "meta-llama/Llama-3.2-3B-Instruct", "llama3_1"
    ),
    Family("trl/deepseekv3", "deepseek-r1", "deepseek-ai/DeepSeek-R1", "deepseek_v3"),
    Family("llama/llama-cpp-deepseek-r1", "deepseek-r1", "deepseek-ai/DeepSeek-R1", "deepseek_v3"),
    Family("llama/deepseek-ai-DeepSeek-V4-Flash-0731", "deepseek-v4", "deepseek-ai/DeepSeek-V4-Flash-0731"),
    Family("llama/GLM-4.6", "glm-4.5", "zai-org/GLM-4.6"),
    Family("trl/glm4moe", "glm-4.5", "zai-org/GLM-4.5-Air"),
    Family("llama/GLM-4.7-Flash", "glm-5", "zai-org/GLM-4.7-Flash"),
    Family(
        "llama/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "nemotron-3",
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    ),
    Family("trl/nemotron_3_super", "nemotron-3", "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16"),
    Family("trl/nemotron_3_ultra", "nemotron-3-ultra", "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16"),
    Family("trl/nemotron_3_5_lightning", "nemotron-3.5", "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16"),
    Family("llama/MiniMax-M2", "minimax-m2", "MiniMaxAI/MiniMax-M2"),
    Family("llama/Kimi-K2-Instruct", "kimi-k2", "moonshotai/Kimi-K2-Instruct"),
    Family("llama/moonshotai-Kimi-K2", "kimi-k2", "moonshotai/Kimi-K2-Instruct"),
    Family("llama/tencent-Hy3", "hy3", "tencent/Hy3"),
    Family("llama/google-gemma-4-31B-it", "gemma4", "google/gemma-4-31B-it"),
    Family("trl/gemma4", "gemma4", "google/gemma-4-E2B-it"),
    Family("trl/gemma4_v5", "gemma4", "google/gemma-4-E2B-it"),
    Family("llama/poolside-Laguna-XS.2", "laguna-xs.2", "poolside/Laguna-XS.2"),
    Family("llama/poolside-Laguna-XS-2.1", "laguna-xs-2.1", "poolside/Laguna-XS-2.1"),
    Family("llama/poolside-Laguna-S-2.1", "laguna-s-2.1", "poolside/Laguna-S-2.1"),
    Family("llama/openai-gpt-oss-120b", "gpt-oss", "openai/gpt-oss-120b", GPT_OSS),
)

REASONS = {
    "no prompt": "renderers has no next prompt after this end, and renders the conversation again",
    "version": "renderers writes whole conversations with other text: it has another version of the template",
    "thought": "renderers closes a thought that was cut; gem-core adds only what the template writes",
    "whitespace": "renderers leaves out whitespace that the template writes around the end of an answer",
    "stop": "renderers ends a cut answer with a stop token that the template does not write, such as GLM's "
    "`<|endoftext|>`",
    "opening": "renderers writes more after the opening of the next answer than the template, such as "
    "`<|channel|>analysis<|message|>` of gpt-oss",
    "unexplained": "none of these reasons",
}
"""Why the prompts of a turn differ."""


class _Growing:
    """A tokenizer that gets each special token that a class of renderers looks up."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def convert_tokens_to_ids(self, text: str) -> int:
        """Return the id of a token, which is added if it is missing."""
        if self._tokenizer.convert_tokens_to_ids(text) is None:
            self._tokenizer.add_tokens([text], special_tokens=True)
        return int(self._tokenizer.convert_tokens_to_ids(text))

    def encode(self, text: str, **options: Any) -> list[int]:
        """Return the ids of a text; some classes look up tokens with it."""
        if _LOOKED_UP.fullmatch(text):
            self.convert_tokens_to_ids(text)
        return list(self._tokenizer.encode(text, **options))


def tokenizer_of(family: Family, template: str, folder: Path) -> Any:
    """Return the tokenizer for a template.

    Raises:
        SystemExit: The archive of the tokenizer is missing.
    """
    from gem_chat._report import stand_in_tokenizer

    if family.tokenizer == BYTES:
        tokenizer = stand_in_tokenizer(template)
    else:
        tokenizer = read_tokenizer(family.tokenizer, folder)
        tokenizer.chat_template = template
    tokenizer.name_or_path = family.model
    return tokenizer


def row_of(family: Family, template: str, folder: Path) -> dict[str, Any]:
    """Return the row of a family."""
    from renderers import config_from_name, create_renderer

    row: dict[str, Any] = {"renderer": family.renderer, "tokenizer": family.tokenizer}
    tokenizer = tokenizer_of(family, template, folder)
    config = type(config_from_name(family.renderer))(thinking_retention="all")
    try:
        create_renderer(_Growing(tokenizer), config)
    except Exception as error:
        return row | {"not compared": " ".join(str(error).split())}
    renderer = create_renderer(tokenizer, config)
    equal, differs = 0, Counter[str]()
    tool_cases = 0
    for case in Player(tokenizer, renderer).cases():
        tool_cases += case.name.startswith("tool")
        if case.ours == case.theirs:
            equal += 1
        else:
            differs[" + ".join(reasons(case, renderer, tokenizer))] += 1
    return row | {
        "cases": equal + differs.total(),
        "tool cases": tool_cases,
        "equal": equal,
        "differs": dict(differs),
    }


def reasons(case: Case, renderer: Any, tokenizer: Any) -> list[str]:
    """Return why the prompts of a case differ, as keys of `REASONS`."""
    if case.theirs is None:
        return ["no prompt"]
    found: list[str] = []
    ours, theirs = tokenizer.decode(case.ours), tokenizer.decode(case.theirs)
    if theirs != ours and theirs.startswith(ours):
        return ["opening"]
    if not case.same_version:
        return ["version"]
    if case.close and theirs.startswith(case.close):
        theirs = theirs.removeprefix(case.close)
        found.append("thought")
    for stop in [tokenizer.decode([token_id]) for token_id in renderer.get_stop_token_ids()]:
        if theirs.startswith(stop) and not ours.lstrip().startswith(stop):
            theirs = theirs.removeprefix(stop)
            found.append("stop")
            break
    if ours != theirs and "".join(ours.split()) == "".join(theirs.split()):
        theirs = ours
        found.append("whitespace")
    return found if ours == theirs and found else ["unexplained"]


def measure(folder: Path) -> dict[str, Any]:
    """Return the table of all families."""
    templates, versions = read_templates(folder)
    versions["renderers"] = importlib.metadata.version("renderers")
    rows = {family.template: row_of(family, templates[family.template], folder) for family in FAMILIES}
    return {"packages": versions, "templates": rows}


def section_of(table: Mapping[str, Any]) -> str:
    """Return the section of the page."""
    rows = table["templates"]
    compared = [row for row in rows.values() if "cases" in row]
    cases, equal = (sum(row[cell] for row in compared) for cell in ("cases", "equal"))
    why = Counter[str]()
    for row in compared:
        for names, count in row["differs"].items():
            why.update(dict.fromkeys(names.split(" + "), count))
    text = f"""{EQUALITY}
`renderers` {table["packages"]["renderers"]} of PrimeIntellect has classes for some families of models. In
{equal} of {cases} turns, the next prompt of gem-core has exactly the tokens of its `bridge_to_next_turn`
with `thinking_retention="all"`. A response is an answer, or makes one or two calls; it ends with each stop
token of the model, or is cut by length, also in a thought. Then follows a message of the user, the results of
the calls, or results and a message. The other turns differ, some for two reasons:

"""
    lines = [*text.split("\n")[:-1], "| reason | turns | |", "|---|---|---|"]
    lines += [f"| {name} | {count} | {_cell(REASONS[name])} |" for name, count in why.most_common()]
    lines += [
        "",
        "The tokenizer is a published one, or has one token per byte and the special tokens of both sides.",
        "",
        "| template | class | tokenizer | turns | of them with tools | equal | differ |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_line(name, row) for name, row in rows.items()]
    return "\n".join(lines) + "\n"


def _line(name: str, row: Mapping[str, Any]) -> str:
    cells = [name, row["renderer"], row["tokenizer"]]
    if "cases" in row:
        differs = [f"{count}: {reason}" for reason, count in row["differs"].items()]
        cells += [str(row[cell]) for cell in ("cases", "tool cases", "equal")]
        cells.append(", ".join(differs) or "-")
    else:
        cells += ["0", "0", "0", f"not compared: {row['not compared']}"]
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def page_with(page: str, table: Mapping[str, Any]) -> str:
    """Return a page with the section of the table."""
    return with_section(page, section_of(table))


if __name__ == "__main__":
    sys.exit(main(__doc__, TABLE, measure, page_with))
