"""The folder that the test sessions of all trainers share: what one session made, the others reuse.

It is ``GEM_CONSISTENCY``, or ``runs/consistency`` if that is not set.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gem_lab.train import TinyOptions

ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def shared_folder() -> Iterator[Path]:
    """Lock the folder against sessions that run at the same time; yield its path."""
    folder = Path(os.environ.get("GEM_CONSISTENCY") or ROOT / "runs" / "consistency")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield folder


def shared_model(name: str, options: TinyOptions) -> Path:
    """Return the folder of a tiny model; make it if no session of the same sources has made it.

    Args:
        name: Name of the model.
        options: Options of the model.
    """
    from gem_lab.train import save_tiny

    digest = hashlib.sha256(repr(options).encode())
    for source in sorted(ROOT.glob("gem_*/**/*.py")):
        digest.update(source.read_bytes())
    with shared_folder() as folder:
        model = folder / f"{name}-{digest.hexdigest()[:12]}"
        if not model.exists():
            save_tiny(model, options)
    return model
