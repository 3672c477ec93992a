"""The table of info keys in docs/concepts/environments.md, against the code that sets and reads them."""

from __future__ import annotations

import re
from pathlib import Path

import gem_core
from gem_core import InfoKeys

ROOT = Path(gem_core.__file__).parents[1]
PAGE = (ROOT / "docs/concepts/environments.md").read_text()
ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
TABLE = [(re.findall(r"`(\w+)`", keys), *rest) for keys, *rest in ROW.findall(PAGE)]
OTHERS = {"forged_tokens", "reply", "tool_results"}
"""Keys that the text below the table names; wrappers and rollouts set them."""


def reads(path: Path) -> set[str]:
    """Return the keys that a module reads from an info dict."""
    text = path.read_text()
    return set(re.findall(r"""info(?:\.get|\.pop)\(["'](\w+)["']""", text)) | set(
        re.findall(r"""info\[["'](\w+)["']\](?! *=[^=])""", text)
        + re.findall(r"""["'](\w+)["'] in info\b""", text)
    )


def test_the_table_has_every_reserved_key_once():
    listed = [key for keys, *_ in TABLE for key in keys]
    assert sorted(listed) == sorted(InfoKeys.__annotations__)


def test_every_named_reader_reads_its_keys():
    named = [(keys, file) for keys, *_, by in TABLE for file in re.findall(r"`([\w/]+\.py)`", by)]
    assert len(named) >= 9
    for keys, file in named:
        assert set(keys) <= reads(ROOT / file), f"{file} does not read {keys}"


def test_every_key_of_an_environment_is_set_by_one():
    """Built-in environments, or environments of the tests, set the keys that the table assigns to them."""
    files = [*(ROOT / "gem_envs").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    modules = [path.read_text() for path in files if path != Path(__file__)]
    for keys, by, *_ in TABLE:
        for key in keys if "the environment" in by else ():
            assert any(f'"{key}":' in text or f'info["{key}"] =' in text for text in modules), key


def test_every_key_that_is_read_is_documented():
    listed = {key for keys, *_ in TABLE for key in keys} | OTHERS
    for folder in ("gem_core", "gem_lab/eval", "gem_lab/train", "gem_lab/_cli"):
        files = list((ROOT / folder).rglob("*.py"))
        assert len(files) > 5
        for path in files:
            own = set(re.findall(r"""info\[["'](\w+)["']\](?:, info\[.*\])? = """, path.read_text()))
            new = reads(path) - listed - own
            assert not new, f"{path} reads {new}, which no page explains"
    assert all(f"`{key}`" in PAGE for key in OTHERS)
