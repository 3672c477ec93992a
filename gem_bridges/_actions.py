r"""`ActionGrammar`: reads typed actions of other ecosystems from responses.

A JSON schema describes the action. The response holds it in its last ``\boxed{...}``:

| schema | content of the box |
|---|---|
| ``enum`` of names | the name; case and surrounding spaces do not matter |
| ``string`` | the text itself |
| ``integer`` | the number |
| any other type, or several | JSON |

With ``whole=True``, the whole response is the action, for environments that converse or parse their own
syntax.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple
from urllib.parse import unquote

from gem_chat._calls.schema import problem
from gem_core._core import InvalidKind
from gem_core._observations import encodable
from gem_core._util.foreign_json import read_json
from gem_core.errors import ConfigError
from gem_envs._text import boxes, plain, undecorated
from gem_envs.text import integer

_WORDS = ("yes", "no", "hello", "a")
_WIDE = 1000.0
"""Bound of random numbers where the schema sets none."""
_ITEMS = 3
_MOST_PARTS = 20_000
"""Maximum number of parts of a schema, because nested references multiply them."""
_DEEPEST = 100
_MOST_ITEMS = 1000


class Action(NamedTuple):
    """Result of reading a response.

    Attributes:
        value: The action; None if `invalid`.
        invalid: Why there is no action, as in ``info["invalid"]``; None if there is one.
        reason: Message for the model; "" if there is an action.
    """

    value: Any
    invalid: InvalidKind | None = None
    reason: str = ""


class ActionGrammar:
    """Text form of the actions that a JSON schema describes.

    Args:
        schema: Schema of an action. ``$ref`` and ``anyOf`` are resolved, as in the schemas that pydantic
            writes; the supported keywords are those of `gem_chat._calls.schema`.
        whole: Whether the whole response is the action; for a schema of type ``string`` only.

    Raises:
        ConfigError: ``whole=True`` with a schema of another type.
    """

    def __init__(self, schema: Mapping[str, Any], whole: bool = False) -> None:
        self.schema = without_references(schema)
        self.whole = whole
        if whole and self.schema.get("type") != "string":
            raise ConfigError(
                f"a whole response is text, but actions are of type {self.schema.get('type')}; use "
                "action='boxed'"
            )

    def read(self, response: str) -> Action:
        """Return the action in a response. Never raises because of its text."""
        if self.whole:
            return Action(encodable(response))
        reason = ""
        for content in boxes(response):
            for text in (content.strip(), undecorated(content), plain(content)):
                value, message = self._value(text)
                if message is None:
                    wrong = problem(self.schema, value)
                    return Action(value) if wrong is None else Action(None, "illegal", _about_action(wrong))
                reason = reason or message
        return Action(None, "format", reason or r"no \boxed{...} was found")

    def instructions(self) -> str:
        """Return one sentence that tells a model how to answer; "" if the whole response is the action."""
        if self.whole:
            return ""
        return f"Answer with \\boxed{{action}}, where the action is {describe_values(self.schema)}."

    def write(self, value: Any) -> str:
        """Return a response that `read` reads as `value`."""
        if self.whole:
            return str(value)
        text = value if isinstance(value, str) and not self._is_json() else json.dumps(value)
        return f"\\boxed{{{text}}}"

    def sample(self, random: Random) -> str:
        """Return a response with a random action that fits the schema."""
        return self.write(random_value(self.schema, random))

    def _is_json(self) -> bool:
        return "enum" not in self.schema and self.schema.get("type") not in ("string", "integer", "number")

    def _value(self, text: str) -> tuple[Any, str | None]:
        """Return the value in the text of a box, or None and a description of the problem."""
        names = self.schema.get("enum")
        if names is not None:
            for name in names:
                if str(name).lower() == text.lower():
                    return name, None
            return None, f"{text[:80]!r} is not {describe_values(self.schema)}"
        if self.schema.get("type") == "string":
            return encodable(text), None
        if self.schema.get("type") == "integer":
            number = integer(text)
            return number, None if number is not None else f"{text[:80]!r} is not a whole number"
        try:
            return read_json(text, finite=True), None
        except ValueError:
            return None, f"{text[:80]!r} is not {describe_values(self.schema)}"


def without_references(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without ``$ref``, and with ``anyOf`` reduced to a list of types.

    Args:
        schema: The schema, to which its references are relative.

    Raises:
        ConfigError: The schema is not an object, a reference names nothing or contains itself, or the schema
            has more than `_MOST_PARTS` parts without references.
    """
    return _Resolver(schema).resolved(schema, ())


class _Resolver:
    """Resolves the references to one schema."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.parts = 0

    def resolved(self, schema: Any, seen: tuple[str, ...]) -> dict[str, Any]:
        """Return a part of the schema without references.

        Args:
            schema: The part.
            seen: References within which the part is.
        """
        self.parts += 1
        if self.parts > _MOST_PARTS or len(seen) > _DEEPEST:
            raise ConfigError(
                f"the schema of actions has more than {_MOST_PARTS} parts or {_DEEPEST} levels; "
                "simplify it in the environment"
            )
        if schema is True:
            return {}
        while isinstance(schema, Mapping) and "$ref" in schema:
            reference = schema["$ref"]
            if reference in seen:
                raise ConfigError(
                    f"the schema of actions has the endless reference {str(reference)[:80]!r}; "
                    "correct it in the environment"
                )
            seen = (*seen, reference)
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**self._target(str(reference)), **rest}
        if not isinstance(schema, Mapping):
            raise ConfigError(f"expected the schema of an action, an object: {str(schema)[:80]!r}")
        out = {key: value for key, value in schema.items() if key != "$defs" and _is_usable(key, value)}
        seen = (*seen, "")  # counts the depth
        if isinstance(out.get("anyOf"), list):
            options = [self.resolved(option, seen) for option in out.pop("anyOf")]
            real = [option for option in options if option.get("type") != "null"]
            if len(real) == 1:
                out = {**real[0], **out}
            else:
                out["type"] = sorted({str(option.get("type", "object")) for option in options})
        if "const" in out:
            out["enum"] = [out.pop("const")]
        if isinstance(out.get("properties"), Mapping):
            out["properties"] = {name: self.resolved(item, seen) for name, item in out["properties"].items()}
        if isinstance(out.get("items"), Mapping):
            out["items"] = self.resolved(out["items"], seen)
        return out

    def _target(self, reference: str) -> Mapping[str, Any]:
        node: Any = self.root
        for part in reference.removeprefix("#").removeprefix("/").split("/") if reference != "#" else ():
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(node, list) and key.isdecimal() and int(key) < len(node):
                node = node[int(key)]
                continue
            if not isinstance(node, Mapping) or key not in node:
                raise ConfigError(
                    f"the schema of actions has the reference {reference[:80]!r} to nothing; correct "
                    "it in the environment"
                )
            node = node[key]
        if not isinstance(node, Mapping):
            raise ConfigError(
                f"the reference {reference[:80]!r} in the schema of actions does not name a schema; "
                "correct it in the environment"
            )
        return node


def _is_usable(keyword: str, value: Any) -> bool:
    """Return whether a keyword has a value of its kind; others are ignored, as in `gem_chat._calls.schema`.

    Raises:
        ConfigError: A list must be so long that no model writes it.
    """
    if keyword == "enum":
        return isinstance(value, list) and bool(value)
    if keyword in ("minItems", "maxItems", "minimum", "maximum"):
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if number and keyword == "minItems" and value > _MOST_ITEMS:
            raise ConfigError(
                f"the schema of actions asks for lists of at least {value} values: expected at most "
                f"{_MOST_ITEMS}"
            )
        return number and (isinstance(value, int) or keyword in ("minimum", "maximum"))
    if keyword == "required":
        return isinstance(value, list) and all(isinstance(name, str) for name in value)
    return keyword not in ("properties", "items") or isinstance(value, Mapping)


def describe_values(schema: Mapping[str, Any]) -> str:
    """Return the values that fit a resolved schema as a noun phrase."""
    if "enum" in schema:
        return f"one of: {', '.join(map(str, schema['enum']))}"
    kind = schema.get("type")
    low, high = schema.get("minimum"), schema.get("maximum")
    if kind in ("integer", "number"):
        noun = "a whole number" if kind == "integer" else "a number"
        if low is not None and high is not None:
            return f"{noun} from {low} to {high}"
        if low is not None or high is not None:
            return f"{noun} of at {'least' if low is not None else 'most'} {low if low is not None else high}"
        return noun
    if kind == "string":
        return "text"
    if kind == "array":
        length = schema.get("minItems")
        item = describe_values(schema.get("items", {}))
        if length is None or length != schema.get("maxItems"):
            return f"a JSON list, each value {item}"
        return f"a JSON list of {length} values, each {item}" if length > 1 else f"a JSON list with {item}"
    if kind == "object":
        fields = [f'"{name}": {describe_values(item)}' for name, item in schema.get("properties", {}).items()]
        return f"a JSON object with {'; '.join(fields)}" if fields else "a JSON object"
    return "a JSON value" if not isinstance(kind, str) else f"a value of type {kind}"


def random_value(schema: Mapping[str, Any], random: Random) -> Any:
    """Return a random value that fits a resolved schema."""
    if "enum" in schema:
        return random.choice(schema["enum"])
    kind = schema.get("type", "string")
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), "null")
    if kind == "integer":
        low = int(schema.get("minimum", 0))
        return random.randint(low, int(schema.get("maximum", low + 9)))
    if kind == "number":
        start, end = float(schema.get("minimum", -_WIDE)), float(schema.get("maximum", _WIDE))
        return random.uniform(max(start, -_WIDE), min(end, _WIDE))
    if kind == "boolean":
        return random.random() < 0.5
    if kind == "array":
        minimum = schema.get("minItems", 0)
        length = random.randint(minimum, max(minimum, min(schema.get("maxItems", _ITEMS), _MOST_ITEMS)))
        return [random_value(schema.get("items", {}), random) for _ in range(length)]
    if kind == "object":
        properties = schema.get("properties", {})
        return {
            name: random_value(properties.get(name, {}), random)
            for name in schema.get("required", properties)
        }
    return None if kind == "null" else random.choice(_WORDS)


def _about_action(message: str) -> str:
    return message.replace("the arguments", "the action").replace("the argument", "the field")
