"""Files that users write by hand, or name for a program that reads them."""

from __future__ import annotations

from pathlib import Path

from gem_core.errors import ConfigError


def read_text(path: str | Path) -> str:
    """Return the text of a file that a person wrote, with any line breaks, in UTF-8, or UTF-16 from Windows.

    Raises:
        ConfigError: It has another encoding.
        OSError: It cannot be read.
    """
    data = Path(path).read_bytes()
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return data.decode(encoding).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: {error}; save it as text in UTF-8") from None


def check_ending(path: str | Path, reader: str, *endings: str) -> None:
    """Raise a `ConfigError` if `reader` would read a file of this name in another format; a pipe has none."""
    target = Path(path)
    if target.suffix not in endings and not (target.exists() and not target.is_file()):
        what = f"{reader} recognizes a format by the name of the file"
        raise ConfigError(f"{path}: {what}; end it with {endings[0]}")
