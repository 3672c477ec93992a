"""`read_token_texts`: the texts of the tokens in a trace file."""

from __future__ import annotations

from pathlib import Path

from gem_core.errors import TraceError
from gem_core.rollout._traces import trace_records


def read_token_texts(path: str | Path) -> dict[int, str]:
    """Return the text of each token id in a trace file; empty if it was written without `decode`.

    Raises:
        TraceError: As in `read_traces`.
        OSError: The file cannot be read.
    """
    texts: dict[int, str] = {}
    for number, record in trace_records(path):
        try:
            texts.update(
                (int(token_id), str(text)) for token_id, text in record.get("token_text", {}).items()
            )
        except (ValueError, AttributeError) as error:
            raise TraceError(
                f"{path}, line {number}: token_text is not a map of ids to texts: {error}"
            ) from None
    return texts
