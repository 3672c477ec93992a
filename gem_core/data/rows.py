"""What a data set is to an environment: rows by number."""

from __future__ import annotations

from random import Random
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, get_args

from gem_core._util.seeds import derive_rng
from gem_core.data.split import is_eval_item
from gem_core.errors import ConfigError

Row: TypeAlias = dict[str, Any]
Split: TypeAlias = Literal["train", "test"]
_DRAWS = 1000


class Rows(Protocol):
    """Rows of one split."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of what a row holds."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Row:
        """Row `index` as a new dict.

        Raises:
            DataError: The row cannot be read.
        """
        ...


class GeneratedRows:
    """Rows made from their number. A subclass says how one is drawn:

        class Sums(GeneratedRows):
            columns = ("problem", "answer")
            key = "problem"

            def draw(self, random):
                a, b = random.randrange(10), random.randrange(10)
                return {"problem": f"{a} + {b}", "answer": str(a + b)}

    A row belongs to the split that a checksum of its `key` column names, so no question of one split is
    in the other. Row i of a split is the first row of that split in the stream of draws seeded by i.

    Args:
        split: "train" or "test".
        size: Number of rows; a row does not depend on it.
        seed: Another seed is another data set.
    """

    columns: tuple[str, ...] = ()
    key: ClassVar[str]

    def __init__(self, split: Split = "train", size: int = 100_000, seed: int = 0) -> None:
        if split not in get_args(Split):
            raise ConfigError(f"split must be 'train' or 'test', not {split!r}")
        for label, value, low in (("size", size, 1), ("seed", seed, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise ConfigError(f"{label} must be a whole number from {low} on, not {value!r}")
        self.split, self.size, self.seed = split, size, seed
        self.name = f"{type(self).__name__}({split})"

    def draw(self, random: Random) -> Row:
        """One row, drawn from `random` only."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Row:
        random = derive_rng(self.seed, index)
        for _ in range(_DRAWS):
            row = self.draw(random)
            if is_eval_item(str(row[self.key])) == (self.split == "test"):
                return row
        raise ConfigError(f"{self.name}: these settings leave no question for the split; allow more of them")
