"""Options that several trainers have in common."""

from __future__ import annotations

from typing import Any

import pytest

from gem_core.errors import ConfigError
from gem_core.trainers.options import choose_rows, import_modules, read_object


@pytest.mark.parametrize(
    ("rows", "context", "kind"),
    [
        ("auto", "append", "episode"),
        ("auto", "rebuild", "turn"),
        ("episode", "append", "episode"),
        ("turn", "append", "turn"),
        ("turn", "rebuild", "turn"),
    ],
)
def test_rows_follow_the_context_unless_chosen(rows: Any, context: Any, kind: str) -> None:
    assert choose_rows(rows, context) == kind


def test_a_rebuilt_context_has_no_episode_rows() -> None:
    with pytest.raises(ConfigError, match=r"--rows=episode needs --context=append: .* share no prefix"):
        choose_rows("episode", "rebuild", prefix="--")


def test_an_object_is_a_mapping_or_json() -> None:
    assert read_object({"a": 1}, "x") == read_object('{"a": 1}', "x") == {"a": 1}
    assert read_object(None, "x") == read_object("", "x") == {}
    for wrong in ("[1]", "{", "1", 3):
        with pytest.raises(ConfigError, match=r"--kwargs=.*: expected a JSON object"):
            read_object(wrong, "--kwargs")  # type: ignore[arg-type]


def test_modules_of_the_user() -> None:
    import_modules(["json"], "--modules")
    with pytest.raises(ConfigError, match=r"--modules no_such_module: .* PYTHONPATH"):
        import_modules(["no_such_module"], "--modules")
