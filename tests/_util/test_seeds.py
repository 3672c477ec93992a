"""Streams derived from a seed; recorded results depend on the numbers here."""

from __future__ import annotations

from random import Random

from gem_core._util.seeds import derive_int, derive_rng, derive_seed


def test_a_stream_is_named_by_its_parts() -> None:
    assert derive_seed(3, "update", 0) == "3 update 0"
    assert derive_seed(3, "update", 0, sep="/") == "3/update/0"
    assert derive_seed(derive_seed(3, "eval", sep="/"), "task", sep="/") == "3/eval/task"


def test_generators_match_the_named_streams() -> None:
    assert derive_rng(3, 5).random() == Random("3 5").random()
    assert derive_rng("3/train", 5, sep="/").random() == Random("3/train/5").random()
    assert derive_rng(3, 5).random() != derive_rng(35).random()
    assert derive_rng("tasks", "train", 0).getrandbits(31) == 1154798837


def test_integers_have_31_bits_and_stay_the_same() -> None:
    assert derive_int(7, "game 0", 12, sep="/") == 1394788573
    seeds = {derive_int(0, f"env/{n}", turn, sep="/") for n in range(100) for turn in range(5)}
    assert len(seeds) == 500
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert derive_int(1, "env/0", 0, sep="/") != derive_int(0, "env/0", 0, sep="/")
