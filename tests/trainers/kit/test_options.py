"""Options that several trainers have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gem_core.errors import ConfigError
from gem_core.rollout._options import read_object
from gem_core.trainers import EstimatorOptions, PluginOptions, RowOptions
from gem_core.trainers._options import flag_fields, import_modules, option_at, reject_changed, reject_listed
from tests.trainers.kit.plugin import plugin_with


@pytest.mark.parametrize(
    ("rows", "context", "several"),
    [
        ("auto", "append", False),
        ("auto", "rebuild", True),
        ("auto", "template", True),
        ("turn", "append", True),
        ("turn", "rebuild", True),
    ],
)
def test_an_episode_has_several_rows_if_contexts_are_rebuilt_or_rows_are_turns(
    rows: Any, context: Any, several: bool
) -> None:
    assert RowOptions.read({"rows": rows, "context": context}).has_several_rows == several
    with pytest.raises(ConfigError, match="--rows"):
        RowOptions.read({"rows": "episode"}, prefix="--")


@pytest.mark.parametrize("rows", ["auto", "turn"])
def test_an_episode_of_an_agent_that_owns_its_loop_has_several_rows(rows: Any) -> None:
    pytest.importorskip("aiohttp", reason="needs the extra 'serve'")
    assert RowOptions.read({"rows": rows, "harness": "tests.trainers.talker:talk"}).has_several_rows


@dataclass(frozen=True)
class Section(EstimatorOptions, PluginOptions):
    """A section with the estimator."""


def test_a_section_names_the_estimator() -> None:
    section = {"estimator": "gem_grpo", "estimator_options": '{"ddof": 1}'}
    choice = Section.read(section, "gem.").read_estimator("gem.", gamma=0.5)
    assert (choice.name, choice.options, choice.gamma) == ("gem_grpo", {"ddof": 1}, 0.5)
    with pytest.raises(ConfigError, match=r"gem\.estimator: unknown estimator 'rbn'"):
        EstimatorOptions(estimator="rbn").read_estimator("gem.")
    with pytest.raises(ConfigError, match=r"'gem\.estimator_options\.dof'"):
        EstimatorOptions(estimator_options={"dof": 1}).read_estimator("gem.")


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


CONFIG = SimpleNamespace(adv={"clip": 3, "norm": None, "kind": "b"}, batch=8)


def test_a_value_at_a_path() -> None:
    assert (option_at(CONFIG, "adv.clip"), option_at(CONFIG, "batch")) == (3, 8)
    assert option_at(CONFIG, "adv.norm") is option_at(CONFIG, "adv.none.at.all") is None
    assert option_at(CONFIG, "adv.norm", 1) == option_at(CONFIG, "no", 1) == 1


def test_settings_keep_their_neutral_value() -> None:
    neutral = [("adv.norm", False, "x"), ("adv.kind", ("a", "b"), "x"), ("batch", 8, "x"), ("no", 0, "x")]
    reject_changed(CONFIG, neutral)
    reject_changed(SimpleNamespace(range=(1, 2)), [("range", ([1, 2],), "x")])
    with pytest.raises(ConfigError, match=r"^--adv.clip=3: has no effect; omit it$"):
        reject_changed(CONFIG, [*neutral, ("adv.clip", 0, "has no effect; omit it")], prefix="--")
    with pytest.raises(ConfigError, match=r"^ADV.KIND=b: wrong$"):
        reject_changed(CONFIG, [("adv.kind", ("a", "c"), "wrong")], written=str.upper)


def test_options_as_flags() -> None:
    flags = {flag.name: flag for flag in flag_fields(PluginOptions)}
    assert flags["max_turns"].kind == int | None
    assert flags["max_turns"].help.startswith("maximum turns per episode")
    assert flags["template_kwargs"][1:3] == (str, "{}")
    assert flags["modules"][1:3] == (list[str] | None, None)
    assert flags["wrappers"][1:3] == (str, "")
    assert all(flag.help for flag in flags.values())


def test_rejections_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {
        "always": {"adv.kind": [["a", "b"], "expected a or b"], "batch": [[], "has no effect on $name"]},
        "never": {"adv.clip": [0, "$missing"]},
    }
    trainer = plugin_with("unsupported.json", tables, tmp_path, monkeypatch)
    config = {"adv": {"kind": "b"}, "batch": None}
    reject_listed(trainer, config, {"always": True, "never": False, "other": False}, name="rebn")
    with pytest.raises(ConfigError, match="--batch=8: has no effect on rebn"):
        reject_listed(trainer, config | {"batch": 8}, {"always": True}, prefix="--", name="rebn")
    with pytest.raises(ConfigError, match="kind=c: expected a or b"):
        reject_listed(trainer, {"adv": {"kind": "c"}}, {"always": True}, name="rebn")
    for section in ("never", "other"):
        with pytest.raises(KeyError):
            reject_listed(trainer, config, {section: True})


def test_a_section_that_is_no_mapping_is_named() -> None:
    assert RowOptions.read(None) == RowOptions()
    for given in (["max_turns"], "yes", 3):
        with pytest.raises(ConfigError, match=r"gem=.*: expected a JSON object"):
            RowOptions.read(given)  # type: ignore[arg-type]
