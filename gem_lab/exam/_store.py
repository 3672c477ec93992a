"""Finished parts of an exam in a folder, so that an interrupted exam can continue."""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import gem_core.advantages
from gem_core._util.files import write_atomically
from gem_core._util.messages import error_line
from gem_core.errors import ConfigError
from gem_lab.exam._bias import Gradients
from gem_lab.exam._inputs import Candidate
from gem_lab.exam._measure import Measured

logger = logging.getLogger(__name__)


class Store:
    """A folder of measurements, each in a file named after everything that it depends on.

    The names depend on the source files of the exam and of the estimators: after a change, everything is
    measured again.

    Args:
        folder: The folder; created if missing.
        candidates: The estimators of the exam.

    Raises:
        ConfigError: An estimator has no source file, so a change of it would go unnoticed.
    """

    def __init__(self, folder: str | Path, candidates: Sequence[Candidate]) -> None:
        self.folder = Path(folder)
        folders = (Path(__file__).parent, Path(gem_core.advantages.__file__).parent)
        files = {path for folder in folders for path in folder.glob("*.py")}
        files |= {_source(candidate) for candidate in candidates}
        self._code = _digest(path.read_bytes() for path in sorted(files))

    def path(self, *parts: Any) -> Path:
        """Return the file of a measurement.

        Args:
            *parts: Everything on which the measurement depends besides the code: arrays, and values with a
                stable repr.
        """
        blobs = (part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode() for part in parts)
        return self.folder / f"{_digest([self._code.encode(), *blobs])}.npz"

    @staticmethod
    def load(path: Path) -> Measured | None:
        """Return the measurement in a file, or None if there is none: it does not exist or is damaged.

        Raises:
            OSError: The file cannot be read; the error names it.
        """
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return _measured(content)
        except Exception as error:  # numpy, zipfile, and zlib raise errors of many types
            logger.warning("%s is damaged (%s), so its part is measured again", path, error_line(error))
            return None

    @staticmethod
    def save(path: Path, measured: Measured) -> None:
        """Write a measurement to a file."""
        gradients = list(measured.gradients.values())
        data = {
            "keys": list(measured.gradients),
            "numbers": [(each.variance, each.alignment) for each in gradients],
            "batches": measured.batches,
            "credit": measured.credit,
            "rejected": measured.rejected,
        }
        arrays = {f"blocks{index}": each.blocks for index, each in enumerate(gradients)}
        arrays |= {f"halves{index}": each.halves for index, each in enumerate(gradients)}
        file = io.BytesIO()
        np.savez_compressed(file, data=np.array(json.dumps(data)), **arrays)  # type: ignore[arg-type]
        write_atomically(path, [file.getvalue()])


def _measured(content: bytes) -> Measured:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        data = json.loads(str(arrays["data"]))
        gradients = {
            tuple(key): Gradients(arrays[f"blocks{index}"], arrays[f"halves{index}"], *data["numbers"][index])
            for index, key in enumerate(data["keys"])
        }
    return Measured(data["batches"], gradients, data["credit"], data["rejected"])


def _source(candidate: Candidate) -> Path:
    function = candidate.function
    while isinstance(function, partial):
        function = function.func
    try:
        path = Path(inspect.getfile(function))
    except TypeError:  # an object with __call__
        path = Path(inspect.getfile(type(function)))
    if not path.is_file():
        raise ConfigError(
            f"estimator {candidate.name!r} has no source file; resume needs one for each estimator"
        )
    return path


def _digest(blobs: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for blob in blobs:
        digest.update(len(blob).to_bytes(8, "big") + blob)
    return digest.hexdigest()[:32]
