"""`Rows`, the interface through which environments read datasets, and generated rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, get_args

from gem_core._util.checks import check_choice, check_int
from gem_core._util.seeds import derive_rng
from gem_core.errors import ConfigError
from gem_envs.data._split import is_eval_item

DataRow: TypeAlias = dict[str, Any]
DataSplit: TypeAlias = Literal["train", "test"]
_DRAWS = 1000


class Rows(Protocol):
    """Interface of the numbered rows of a split."""

    @property
    def name(self) -> str:
        """Name of the dataset, for messages."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> DataRow:
        """Return row `index` as a new dict.

        Raises:
            DataError: The row cannot be read.
        """
        ...


class ChosenRows:
    """Some rows of a dataset, numbered from 0.

    Args:
        rows: The dataset, with a method ``scan(columns)``.
        indices: Indices of the rows, in ascending order.
    """

    def __init__(self, rows: Any, indices: Sequence[int]) -> None:
        self._rows, self._indices = rows, indices
        self.name: str = rows.name
        self.columns: tuple[str, ...] = rows.columns

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> DataRow:
        row: DataRow = self._rows[self._indices[index]]
        return row

    def scan(self, columns: Sequence[str]) -> Iterator[list[Any]]:
        """Yield the values of some columns in every row, in order; None if a row lacks the column."""
        chosen = set(self._indices)
        return (values for index, values in enumerate(self._rows.scan(columns)) if index in chosen)


class GeneratedRows:
    """Rows that are generated from their index. A subclass defines how to draw a row:

        class Sums(GeneratedRows):
            columns = ("problem", "answer")
            key = "problem"

            def draw(self, random):
                a, b = random.randrange(10), random.randrange(10)
                return {"problem": f"{a} + {b}", "answer": str(a + b)}

    The split of a row is determined by a checksum of its `key` column, so the splits share no question. Row i
    of a split is the first row of that split in the stream of draws seeded by i.

    Args:
        split: "train" or "test".
        size: Number of rows; the rows do not depend on it.
        seed: Random seed of the dataset.
    """

    columns: tuple[str, ...] = ()
    key: ClassVar[str]

    def __init__(self, split: DataSplit = "train", size: int = 100_000, seed: int = 0) -> None:
        self.split = check_choice("split", split, get_args(DataSplit))
        self.size, self.seed = check_int("size", size, 1), check_int("seed", seed, 0)
        self.name = f"{type(self).__name__}({split})"

    def draw(self, random: Random) -> DataRow:
        """Return a row drawn with `random` as the only source of randomness."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> DataRow:
        random = derive_rng(self.seed, index)
        for _ in range(_DRAWS):
            row = self.draw(random)
            if is_eval_item(str(row[self.key])) == (self.split == "test"):
                return row
        raise ConfigError(
            f"{self.name}: these settings produce no question for the split; allow more questions"
        )
