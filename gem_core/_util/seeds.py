"""Independent random streams from one seed.

    order = derive_rng(seed, "update", step, epoch)

A stream is named by text: the seed and what tells this stream from the others, joined. The random numbers of
recorded results depend on these texts: do not change the parts of a stream, their order or the separator.
"""

from __future__ import annotations

import hashlib
from random import Random


def derive_seed(*parts: object, sep: str = " ") -> str:
    """Return the name of a stream, which seeds `random.Random` and from which further streams may be derived.

    Args:
        *parts: The seed and what tells this stream from others, each with a stable `str`.
        sep: What is put between them.
    """
    return sep.join(map(str, parts))


def derive_rng(*parts: object, sep: str = " ") -> Random:
    """Return the generator of the stream that `derive_seed` names."""
    return Random(derive_seed(*parts, sep=sep))


def derive_int(*parts: object, sep: str = " ") -> int:
    """Return an integer seed of 31 bits, for libraries and servers that take no text."""
    digest = hashlib.sha256(derive_seed(*parts, sep=sep).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
