"""The registry shared by all kinds of registered values."""

from __future__ import annotations

import pytest

from gem_core._util import registry as module
from gem_core._util.registry import Registry
from gem_core.errors import ConfigError, UnknownEnv, UnknownName


def test_a_name_is_registered_once() -> None:
    fruits: Registry[int] = Registry("fruit")
    fruits.register("pear", 1)
    fruits.register("apple", 2)
    fruits.register("pear", 1)
    assert fruits.get("pear") == 1
    assert fruits.names() == ["apple", "pear"]
    assert fruits.names("p*") == ["pear"]
    assert "pear" in fruits
    assert "plum" not in fruits
    with pytest.raises(ConfigError, match=r"^fruit 'pear' is already registered as 1; choose another name$"):
        fruits.register("pear", 3)
    assert fruits.get("pear") == 1


def test_an_unknown_name_is_reported_with_the_closest_ones() -> None:
    fruits: Registry[int] = Registry("fruit")
    with pytest.raises(UnknownName, match=r"^unknown fruit 'peer'\. Available: none$"):
        fruits.get("peer")
    fruits.register("Pear", 1)
    with pytest.raises(UnknownName, match=r"^unknown fruit 'peer'\. Did you mean Pear\? Available: Pear$"):
        fruits.get("peer")
    many: Registry[int] = Registry("fruit", error=UnknownEnv, hint="See the catalog.")
    many.register("pear", 1)
    with pytest.raises(UnknownEnv, match=r"^unknown fruit 'peer'\. Did you mean pear\? See the catalog\.$"):
        many.get("peer")


def test_values_are_loaded_when_a_name_is_missing_or_all_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    def load_entry_points(group: str, *, own: bool = False) -> None:
        log.append(f"{'own ' if own else ''}group {group}")

    monkeypatch.setattr(module, "load_entry_points", load_entry_points)

    def load(name: str) -> None:
        log.append(f"load {name}")
        if name.startswith("exotic"):
            fruits.register("exotic:mango", 7)

    fruits: Registry[int] = Registry("fruit", group="shop.fruits", load=load)
    fruits.register("pear", 1)
    assert log == ["own group shop.fruits"]  # the names of gem-core itself come first
    log.clear()
    assert fruits.get("pear") == 1
    assert log == []  # packages are not searched if the name is already registered
    assert fruits.get("exotic:mango") == 7
    assert log == ["group shop.fruits", "load exotic:mango", "own group shop.fruits"]
    log.clear()
    assert fruits.names() == ["exotic:mango", "pear"]
    assert log == ["group shop.fruits", "load *"]
    log.clear()
    with pytest.raises(UnknownName):
        fruits.get("plum")
    assert log == ["group shop.fruits", "load plum"]


def test_what_is_registered_can_be_copied() -> None:
    fruits: Registry[int] = Registry("fruit")
    fruits.register("pear", 1)
    copy = fruits.registered()
    copy["plum"] = 2
    assert fruits.registered() == {"pear": 1}


def test_a_copy_that_is_taken_first_does_not_keep_the_own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests replace `_values` by a copy for a while, and the own entry points are loaded only once."""
    herbs: Registry[int] = Registry("herb", group="shop.herbs")
    loaded: list[str] = []

    def load_entry_points(group: str, *, own: bool = False) -> None:
        if group not in loaded:
            loaded.append(group)
            herbs.register("mint", 1)

    monkeypatch.setattr(module, "load_entry_points", load_entry_points)
    with monkeypatch.context() as patch:
        patch.setattr(herbs, "_values", herbs.registered())
        assert herbs.get("mint") == 1
    assert herbs.get("mint") == 1
