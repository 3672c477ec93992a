"""`Closing`: objects that a ``with`` block closes."""

from __future__ import annotations

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
