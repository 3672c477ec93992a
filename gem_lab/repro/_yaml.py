"""YAML, whose package is optional."""

from __future__ import annotations

from typing import Any

from gem_core.errors import ConfigError, MissingDependency


def parse_yaml(text: str) -> Any:
    """Return the content of a YAML text.

    Raises:
        ConfigError: The text is not YAML.
        MissingDependency: PyYAML is not installed.
    """
    yaml = _package("reading", ", or write the file as JSON")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {error}") from None


def to_yaml(content: Any) -> str:
    """Return plain values as YAML, with the keys in order.

    Raises:
        MissingDependency: PyYAML is not installed.
    """
    text: str = _package("writing").safe_dump(content, sort_keys=False, allow_unicode=True)
    return text


def _package(what: str, alternative: str = "") -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        raise MissingDependency(
            f"{what} YAML needs the package 'yaml': pip install pyyaml{alternative}"
        ) from None
    return yaml
