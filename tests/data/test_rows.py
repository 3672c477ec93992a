from __future__ import annotations

import pytest

from gem_core.errors import ConfigError
from gem_envs.data import GeneratedRows


class Sums(GeneratedRows):
    columns = ("problem", "answer")
    key = "problem"

    def draw(self, random):
        a, b = random.randrange(30), random.randrange(30)
        return {"problem": f"{a} + {b}", "answer": str(a + b)}


def test_rows_depend_on_number_seed_and_split_alone():
    rows, twin = Sums(size=10), Sums(size=1000)
    assert [rows[n] for n in range(10)] == [twin[n] for n in range(10)]
    assert rows[3] == rows[3]
    assert Sums(seed=1)[3] != rows[3]


def test_splits_share_no_question():
    train, test = ({Sums(split)[n]["problem"] for n in range(2000)} for split in ("train", "test"))
    assert not train & test
    assert len(train) > 4 * len(test) > 100


@pytest.mark.parametrize(
    "kwargs", [{"split": "dev"}, {"size": 0}, {"size": True}, {"seed": -1}, {"seed": "a"}]
)
def test_bad_arguments_are_rejected(kwargs):
    with pytest.raises(ConfigError, match=next(iter(kwargs))):
        Sums(**kwargs)


def test_a_split_that_cannot_be_filled_is_an_error():
    class One(Sums):
        def draw(self, random):
            return {"problem": "1 + 1", "answer": "2"}

    sides = [One(split) for split in ("train", "test")]
    with pytest.raises(ConfigError, match="no question for the split"):
        [rows[0] for rows in sides]
