"""Corpora for the tests of search."""

from __future__ import annotations

import random

from gem_envs.tools.search import Document


def random_documents(count: int, words: int = 12, vocabulary: int = 400, seed: int = 0) -> list[Document]:
    """Return documents whose words follow Zipf's law, like those of a natural language."""
    rng = random.Random(seed)
    weights = [1 / rank for rank in range(1, vocabulary + 1)]
    return [
        {
            "id": f"d{number}",
            "title": "",
            "text": " ".join(
                f"w{n}" for n in rng.choices(range(vocabulary), weights, k=rng.randint(1, words))
            ),
        }
        for number in range(count)
    ]
