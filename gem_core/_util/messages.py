"""Phrases that error messages share."""

from __future__ import annotations

from collections.abc import Iterable

from gem_core._util.urls import without_secrets
from gem_core._util.visible import visible


def error_line(error: BaseException, limit: int | None = None) -> str:
    """Return the type and text of an error on one line.

        >>> error_line(ValueError("two\\nlines"))
        'ValueError: two lines'

    Args:
        error: The error.
        limit: Maximum number of characters; None keeps all.
    """
    name, text = type(error).__name__, error_text(error)
    return (name if text == name else f"{name}: {text}")[:limit]


def error_place(error: BaseException, *callers: str) -> str:
    """Return where an error was raised, such as `` (shop/env.py:41)``, or "" if only `callers` ran.

    The innermost line outside of installed packages and the standard library is the user's own; an error that
    never passed through such a line has the innermost line of all.

    Args:
        error: The error.
        callers: Paths of the files that called the code that failed.
    """
    import sysconfig
    import traceback
    from pathlib import Path

    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename not in callers]
    libraries = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
    own = [frame for frame in frames if not frame.filename.startswith(libraries)]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f" ({'/'.join(Path(frame.filename).parts[-2:])}:{frame.lineno})"


def error_text(error: BaseException, limit: int | None = None) -> str:
    """Return the text of an error on one line without control characters and passwords, or its type."""
    return (visible(without_secrets(" ".join(str(error).split()))) or type(error).__name__)[:limit]


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the closest known names as a question with a leading space, or "" if none is close."""
    import difflib  # takes as long to import as this whole module

    by_lower = {k.lower(): k for k in known}
    close = [by_lower[k] for k in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)]
    return f" Did you mean {join_or(close)}?" if close else ""


def unknown(
    kind: str, name: str, known: Iterable[str], *, owner: str = "", prefix: str = "", hint: str | None = None
) -> str:
    """Return the error message for an unknown name.

        >>> unknown("option", "gama", ["gamma", "lam"])
        "unknown option 'gama'. Did you mean gamma? Available: gamma, lam"

    Args:
        kind: Kind of name, such as "option" or "wrapper".
        name: The unknown name.
        known: The names that exist.
        owner: Owner of the known names, if `kind` alone is not clear.
        prefix: Text that a user writes before the name.
        hint: Text that replaces the list of known names, if there are too many to list; None lists them.
    """
    names = list(known)
    rest = f"Available: {', '.join(names) or 'none'}" if hint is None else hint
    return f"unknown {kind} {prefix + name!r}{owner and f' of {owner}'}.{suggest(name, names)} {rest}"


def join_or(words: Iterable[str]) -> str:
    """Join words as in "a, b, or c"; an empty list gives "nothing"."""
    *first, last = list(words) or ["nothing"]
    comma = "," if len(first) > 1 else ""
    return f"{', '.join(first)}{comma} or {last}" if first else last
