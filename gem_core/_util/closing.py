"""`Closing`: objects that a ``with`` block closes. `run_aside`: a close that holds up nothing else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class Closing:
    """Base class of objects that hold resources: ``with`` closes them at the end of the block."""

    def close(self) -> None:
        """Free all resources. May be called more than once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_aside(run: Callable[[], object]) -> None:
    """Run a close in a thread of its own, because one that never returns would block a shared one forever."""
    if sys.is_finalizing():  # no thread can start
        run()
        return
    try:
        threading.Thread(target=run, name="gem-env-close", daemon=True).start()
    except RuntimeError:  # too many threads
        from gem_core._util.threads import ENV_THREADS  # asyncio: a third of the time of `import gem_core`

        ENV_THREADS.submit(run)
