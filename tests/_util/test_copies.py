from __future__ import annotations

import pytest

from gem_core._util.copies import copy_state


class Plain:
    def __init__(self) -> None:
        self.values = [1]


@pytest.mark.parametrize(
    "value", [None, 1.5, "a", [], {}, [[0, "a"], {"b": [None, True]}], {"a": {"b": [1.5]}}, ([1], {2})]
)
def test_a_copy_is_equal_and_of_the_same_type(value: object) -> None:
    assert copy_state(value) == value
    assert type(copy_state(value)) is type(value)


def test_a_copy_shares_nothing_with_the_original() -> None:
    shared = [0]
    value = {"grid": [[0], shared], "again": shared}
    result = copy_state(value)
    result["again"].append(1)
    assert value == {"grid": [[0], [0]], "again": [0]}
    assert result["grid"][1] is result["again"]


def test_objects_are_copied_too() -> None:
    class Local(Plain):
        """Cannot be pickled."""

    for kind in (Plain, Local):
        original = [kind()]
        (duplicate,) = copy_state(original)
        duplicate.values.append(2)
        assert (type(duplicate), original[0].values) == (kind, [1])
