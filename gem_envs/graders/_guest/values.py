"""Values as a table of JSON, between the process of the program and the one of its tests.

A value is packed as a slot: itself if it is None, a bool, a number, or a text, and otherwise the list of one
index into the table. An entry of the table is ``[tag, parts]``, where the parts are slots. The table is flat,
so values of any depth, shared values, and cycles can be packed.

Nothing of the sender runs when a table is read: an entry becomes a value of a type of the standard library,
an object of a class that the dataset itself defines, or a stand-in for an object that stays where it is.
"""

from __future__ import annotations

import builtins
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

_PLAIN = (type(None), bool, int, float, str)


class PackedType(NamedTuple):
    """How the values of a type are packed."""

    parts: Callable[[Any], Any]
    fill: Callable[[Any, list[Any]], None] | None = None
    """Makes a value what the parts say; None for a type whose values cannot change."""
    build: Callable[..., Any] | None = None
    """Makes a value of the parts; None: the type itself does, or makes an empty value to be filled."""


def _pairs(value: Mapping[Any, Any]) -> list[Any]:
    return [part for pair in value.items() for part in pair]


def _fill_list(value: Any, parts: list[Any]) -> None:
    value.clear()
    value.extend(parts)


def _fill_set(value: Any, parts: list[Any]) -> None:
    value.clear()
    value.update(parts)


def _fill_dict(value: Any, parts: list[Any]) -> None:
    value.clear()
    for key, item in zip(parts[::2], parts[1::2], strict=True):
        value[key] = item


def _fill_bytes(value: Any, parts: list[Any]) -> None:
    value[:] = parts[0].encode("latin-1")


def _awaited(value: Any) -> list[Any]:
    import asyncio  # imported here, because few programs need it

    return [asyncio.run(value)]


async def _finished(result: Any) -> Any:
    return result


def _named_tuple(name: str, fields: str, parts: Sequence[Any]) -> Any:
    """Return a named tuple; none of its values hides a method of tuples."""
    value: Any = namedtuple(name, fields)(*parts)
    if any(
        callable(part) and hasattr(tuple, field) for field, part in zip(value._fields, parts, strict=True)
    ):
        raise TypeError("a value hides a method")
    return value


def _iso(type_name: str) -> PackedType:
    def build(text: str) -> Any:
        return _type(type_name).fromisoformat(text)

    return PackedType(lambda value: [value.isoformat()], build=build)


KINDS = {
    "builtins.list": PackedType(list, _fill_list),
    "builtins.set": PackedType(list, _fill_set),
    "builtins.dict": PackedType(_pairs, _fill_dict),
    "builtins.bytearray": PackedType(lambda value: [value.decode("latin-1")], _fill_bytes),
    "builtins.tuple": PackedType(list, build=lambda *parts: parts),
    "builtins.frozenset": PackedType(list, build=lambda *parts: frozenset(parts)),
    "builtins.bytes": PackedType(
        lambda value: [value.decode("latin-1")], build=lambda text: text.encode("latin-1")
    ),
    "builtins.int": PackedType(lambda value: [int.__int__(value)]),
    "builtins.float": PackedType(lambda value: [float.__float__(value)]),
    "builtins.str": PackedType(lambda value: [str.__str__(value)]),
    "builtins.complex": PackedType(lambda value: [value.real, value.imag]),
    "builtins.range": PackedType(lambda value: [value.start, value.stop, value.step]),
    "builtins.coroutine": PackedType(_awaited, build=lambda result: _finished(result)),
    "collections.deque": PackedType(list, _fill_list),
    "collections.Counter": PackedType(_pairs, _fill_dict),
    "collections.OrderedDict": PackedType(_pairs, _fill_dict),
    "collections.defaultdict": PackedType(_pairs, _fill_dict),
    "decimal.Decimal": PackedType(lambda value: [str(value)]),
    "fractions.Fraction": PackedType(lambda value: [value.numerator, value.denominator]),
    "datetime.datetime": _iso("datetime.datetime"),
    "datetime.date": _iso("datetime.date"),
    "datetime.time": _iso("datetime.time"),
    "datetime.timedelta": PackedType(lambda value: [value.days, value.seconds, value.microseconds]),
    "named tuple": PackedType(
        lambda value: [type(value).__name__, " ".join(value._fields), *value],
        build=lambda name, fields, *parts: _named_tuple(name, fields, parts),
    ),
    "iterator": PackedType(list, build=lambda *parts: iter(parts)),
}
"""Types that are packed by value, by module and name. A module is imported once one of its values arrives."""


def _type(name: str) -> Any:
    module, _, name = name.rpartition(".")
    return getattr(__import__(module), name)


def _tag(kind: type) -> str | None:
    name = f"{kind.__module__}.{kind.__qualname__}"
    return name if name in KINDS else None


class Packer:
    """Packs and reads tables for one of the two processes.

    Args:
        export: Returns the number of an object that stays here, or raises TypeError.
        imported: Returns what stands for an object of the other process, by its number.
        number_of: Returns the number of such a stand-in; None for other values.
        exported: Returns an object that stayed here, by its number.
    """

    def __init__(
        self,
        export: Callable[[Any], int],
        imported: Callable[[int], Any],
        number_of: Callable[[Any], int | None],
        exported: Callable[[int], Any],
    ) -> None:
        self._export, self._imported = export, imported
        self._number_of, self._exported = number_of, exported
        self.classes: dict[str, type] = {}
        """Classes that the dataset defines, by name; their objects are packed by value."""

    def pack(
        self, values: Sequence[Any], known: Sequence[Any] = ()
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Return the slots of values, the table, and the objects of the table.

        The table begins with the objects in `known`.
        """
        objects = list(known)  # also keeps them alive, so that their ids stay theirs
        places = {id(value): place for place, value in enumerate(objects)}

        def slot(value: Any) -> Any:
            if type(value) in _PLAIN:
                return value
            if id(value) not in places:
                places[id(value)] = len(objects)
                objects.append(value)
            return [places[id(value)]]

        slots = [slot(value) for value in values]
        table: list[Any] = []
        while len(table) < len(objects):
            tag, parts = self._entry(objects[len(table)])
            table.append([tag, [slot(part) for part in parts]])
        return slots, table, objects

    def _entry(self, value: Any) -> tuple[str, list[Any]]:
        if (number := self._number_of(value)) is not None:
            return "yours", [number]
        tag = _tag(type(value))
        if tag is None and type(value).__name__ in self.classes:
            name = type(value).__name__
            if type(value) is self.classes[name]:
                return "object", [name, *_pairs(vars(value))]
        own = getattr(value, "__name__", None)
        if isinstance(own, str) and callable(value) and getattr(builtins, own, None) is value:
            return "builtin", [own]
        if tag is None and isinstance(value, tuple) and hasattr(value, "_fields"):
            tag = "named tuple"
        if tag is None and type(value).__module__ == "numpy" and hasattr(value, "tolist"):
            return "same", [value.tolist()]
        if tag is None:
            tag = next(filter(None, map(_tag, type(value).__mro__)), None)
        if tag is None:
            try:
                return "mine", [self._export(value)]
            except TypeError:
                if not hasattr(value, "__iter__"):
                    raise
                tag = "iterator"
        return tag, list(KINDS[tag].parts(value))

    def read(
        self, slots: Sequence[Any], table: Sequence[Any], known: Sequence[Any] = (), sent: Sequence[Any] = ()
    ) -> tuple[list[Any], list[Any]]:
        """Return the values of slots, and the objects of the table.

        The first objects are those in `known`, which were sent as the entries `sent`; what can change of them
        becomes as in the table.
        """
        objects: list[Any] = [_MISSING] * len(table)
        objects[: len(known)] = known
        fills: list[tuple[Any, Any, list[Any]]] = []
        for place, (tag, parts) in enumerate(table):
            if place < len(known):
                before = sent[place]
                if not _can_change(before[0]) or [tag, parts] == before:
                    continue
                if tag != before[0]:
                    raise TypeError("an argument became a value of another type")
            elif tag == "object":
                objects[place] = object.__new__(self.classes[parts[0]])
            elif _can_change(tag):
                objects[place] = _type(tag)()
            if _can_change(tag):
                fills.append((objects[place], tag, parts))

        def value_of(slot: Any) -> Any:
            if not isinstance(slot, list):
                return slot
            (place,) = slot
            if objects[place] is _MISSING:
                objects[place] = self._built(table[place], value_of)
            return objects[place]

        for target, tag, parts in fills:
            values = [value_of(part) for part in parts]
            fill = _fill_object if tag == "object" else KINDS[tag].fill
            assert fill is not None
            fill(target, values)
        return [value_of(slot) for slot in slots], objects

    def _built(self, entry: Sequence[Any], value_of: Callable[[Any], Any]) -> Any:
        tag, parts = entry
        if tag == "mine":
            return self._imported(parts[0])
        if tag == "yours":
            return self._exported(parts[0])
        if tag == "builtin":
            return getattr(builtins, parts[0])
        values = [value_of(part) for part in parts]
        if tag == "same":
            return values[0]
        return (KINDS[tag].build or _type(tag))(*values)


def _can_change(tag: str) -> bool:
    return tag == "object" or (tag in KINDS and KINDS[tag].fill is not None)


def _fill_object(value: Any, parts: list[Any]) -> None:
    """Set the attributes of an object; none of them hides a method of its class."""
    attributes: dict[str, Any] = {}
    _fill_dict(attributes, parts[1:])
    for name in attributes:
        if callable(getattr(type(value), name, None)):
            raise TypeError("an attribute hides a method")
    vars(value).clear()
    vars(value).update(attributes)


_MISSING = object()
