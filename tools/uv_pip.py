"""Run `uv pip` with pip's settings, which uv does not read, for machines behind a mirror.

    python tools/uv_pip.py install -c constraints/dev.txt -e .

It installs into the environment that VIRTUAL_ENV names, as uv does.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "constraint": "UV_CONSTRAINT",
    "cert": "SSL_CERT_FILE",
}
"""Variables of uv by the name of a setting of pip."""


def settings() -> dict[str, str]:
    """Return pip's settings as variables of uv.

    Like pip, leave out folders that do not exist; uv takes them for errors.
    """
    command = (sys.executable, "-m", "pip", "config", "list")
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # the best version of all indexes, as pip does
    for line in listed.splitlines():
        key, value = line.split("=", 1)
        if name := NAMES.get(key.rpartition(".")[2]):
            places = [place.removeprefix("file://") for place in ast.literal_eval(value).split()]
            there = [place for place in places if "://" in place or Path(place).exists()]
            found.setdefault(name, ("," if name == "UV_FIND_LINKS" else " ").join(there))
    return found


if __name__ == "__main__":
    command = (sys.executable, "-m", "uv", "pip", *sys.argv[1:])
    sys.exit(subprocess.call(command, env={**settings(), **os.environ}))
