"""`check_type`: the message about an argument of another type."""

from __future__ import annotations

from gem_core._util.checks import expected


def check_type(name: str, value: object, kind: type, advice: str) -> None:
    """Check the type of an argument.

    Args:
        name: Name of the argument, for the message.
        value: The argument.
        kind: Expected type.
        advice: How to get such an object, for the message.

    Raises:
        ConfigError: The argument has another type.
    """
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        raise expected(name, value, f"{article} {kind.__name__}, {advice}")
