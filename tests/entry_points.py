"""The entry points declared in pyproject.toml, for an editable install that is older than they are."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def use_declared() -> None:
    """Put metadata with the declared entry points first on the import path, also for child processes.

    An editable install follows the code but keeps the entry points of its installation.
    """
    if sys.version_info < (3, 11):  # no tomllib; environments of older Pythons are reinstalled for each run
        return
    import tomllib

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    declared["console_scripts"] = {"gem-core": "gem_core.cli:main"}
    installed = metadata.distribution("gem-core")
    if {(each.group, each.name, each.value) for each in installed.entry_points} == {
        (group, name, value) for group, entries in declared.items() for name, value in entries.items()
    }:
        return
    folder = Path(tempfile.mkdtemp(prefix="gem-core-metadata-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    info = folder / f"gem_core-{installed.version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(installed.read_text("METADATA") or "")
    lines = [
        line
        for group, entries in declared.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()), "")
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
