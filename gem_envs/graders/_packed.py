"""Packed text as in LiveCodeBench's private tests: base64 of zlib of a pickled string.

A pickle can run code when it is loaded. Nothing is loaded here: the text is taken out of a pickle that
consists of a string and nothing else, and any other pickle is refused.
"""

from __future__ import annotations

import base64
import pickletools
import zlib

from gem_core.errors import DataError

_MOST = 2**30
"""Maximum number of bytes of the unpacked text."""
_STRINGS = frozenset(("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"))
_QUIET = frozenset(("PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"))


def unpacked_text(packed: str | bytes) -> str:
    """Return the text.

    Raises:
        DataError: The text is not packed in this way, is too long, or its pickle holds anything but a string.
    """
    try:
        reader = zlib.decompressobj()
        data = reader.decompress(base64.b64decode(packed, validate=True), _MOST)
    except (ValueError, zlib.error) as error:
        raise DataError(f"expected JSON, or base64 of zlib of a pickled string ({error})") from None
    if reader.unconsumed_tail or not reader.eof:
        raise DataError(f"expected complete packed text of at most {_MOST >> 20} MiB")
    text: str | None = None
    try:
        for code, argument, _ in pickletools.genops(data):
            if code.name in _STRINGS and text is None:
                text = argument
            elif code.name not in _QUIET:
                raise DataError(f"expected a pickled string and nothing else, not the operation {code.name}")
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"expected a pickled string ({error})") from None
    if text is None:
        raise DataError("expected a pickled string, but there is none")
    return text
