"""Recipes as text: YAML, whose package is optional, and JSON; an option that is given twice is an error."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar

from gem_core._util.foreign_json import read_json
from gem_core.errors import ConfigError, MissingDependency

_TIMESTAMP = "tag:yaml.org,2002:timestamp"


def parse_json(text: str) -> Any:
    """Return the content of a JSON text.

    Raises:
        ValueError: The text is not JSON, or an object has a key twice.
    """
    read_json(text)  # bounds the text for the next line
    return json.loads(text, object_pairs_hook=_without_repeats)


def parse_yaml(text: str) -> Any:
    """Return the content of a YAML text, in which dates remain texts.

    Raises:
        ConfigError: The text is not YAML, or a mapping has a key twice.
        MissingDependency: PyYAML is not installed.
    """
    yaml = _package("reading", ", or write the file as JSON")

    class Loader(yaml.SafeLoader):  # type: ignore[misc,name-defined]
        yaml_implicit_resolvers: ClassVar = {
            start: [(tag, form) for tag, form in forms if tag != _TIMESTAMP]
            for start, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            _without_repeats((key.value, value) for key, value in node.value)
            mapping: dict[Any, Any] = super().construct_mapping(node, deep)
            return mapping

    try:
        return yaml.load(text, Loader)  # a subclass of SafeLoader
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {error}") from None


def to_yaml(content: Any) -> str:
    """Return plain values as YAML, with the keys in order.

    Raises:
        MissingDependency: PyYAML is not installed.
    """
    text: str = _package("writing").safe_dump(content, sort_keys=False, allow_unicode=True)
    return text


def _without_repeats(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return a dict of the pairs.

    Raises:
        ConfigError: A key occurs twice.
    """
    found: dict[Any, Any] = {}
    for key, value in pairs:
        if isinstance(key, str) and key in found:
            raise ConfigError(f"{key} is given twice; keep one of the two")
        found[str(key)] = value
    return found


def _package(what: str, alternative: str = "") -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        raise MissingDependency(
            f"{what} YAML needs the package 'yaml': pip install pyyaml{alternative}"
        ) from None
    return yaml
