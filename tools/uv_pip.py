"""Run `uv pip` with pip's settings, which uv does not read, for machines behind a mirror.

    python tools/uv_pip.py install -c constraints/dev.txt -e .

It installs into the environment that VIRTUAL_ENV names, as uv does.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "constraint": "UV_CONSTRAINT",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
}
"""Variables of uv by the name of a setting of pip."""
SECTIONS = (":env:", "install", "global")
"""Sections of settings that ``pip install`` reads, the strongest first."""
MAY_BE_MISSING = {"extra-index-url", "find-links", "constraint"}
"""Settings that may name folders and files that do not exist."""


def settings() -> dict[str, str]:
    """Return pip's settings as variables of uv.

    Like pip, leave out folders that do not exist; uv takes them for errors.
    """
    command = (sys.executable, "-m", "pip", "config", "list")
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # the best version of all indexes, as pip does
    given = dict(line.split("=", 1) for line in listed.splitlines())
    for section, (setting, name) in product(SECTIONS, NAMES.items()):
        if written := given.get(f"{section}.{setting}"):
            values = [value.removeprefix("file://") for value in ast.literal_eval(written).split()]
            if setting in MAY_BE_MISSING:
                values = [value for value in values if "://" in value or Path(value).exists()]
            found.setdefault(name, ("," if name == "UV_FIND_LINKS" else " ").join(values))
    return found


if __name__ == "__main__":
    command = (sys.executable, "-m", "uv", "pip", *sys.argv[1:])
    sys.exit(subprocess.call(command, env={**settings(), **os.environ}))
