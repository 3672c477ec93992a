"""Independent random streams from one seed.

    order = derive_rng(seed, "update", step, epoch)

The name of a stream is a text that joins the seed and the parts that distinguish the stream. The random
numbers of recorded results depend on these names: do not change the parts of a name, their order, or the
separator.
"""

from __future__ import annotations

from random import Random


def derive_seed(*parts: object, sep: str = " ") -> str:
    """Return the name of a stream, which can seed `random.Random` or be part of further names.

    Args:
        *parts: The seed and the parts that distinguish the stream, each with a stable `str`.
        sep: Separator of the parts.
    """
    return sep.join(map(str, parts))


def seed_bytes(name: str) -> bytes:
    """Return what seeds a generator like the name of a stream, also a name that UTF-8 cannot hold.

    A path of foreign bytes has lone surrogates, which `random.Random` rejects.
    """
    return name.encode(errors="surrogatepass")


def derive_rng(*parts: object, sep: str = " ") -> Random:
    """Return a generator seeded with the stream name from `derive_seed`."""
    return Random(seed_bytes(derive_seed(*parts, sep=sep)))


def derive_int(*parts: object, sep: str = " ", bits: int = 31) -> int:
    """Return an integer seed of up to 64 bits, for libraries and servers that do not accept text."""
    import hashlib  # loads OpenSSL, a tenth of the time of `import gem_core`

    digest = hashlib.sha256(seed_bytes(derive_seed(*parts, sep=sep))).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - bits)
