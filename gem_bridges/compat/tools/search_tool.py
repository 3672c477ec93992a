"""`SearchTool`: search on a retrieval server, with GEM's arguments."""

from __future__ import annotations

from typing import Any

from gem_bridges.compat.tools.base_tool import NativeTool
from gem_envs.tools.search._tool import SearchTool as NativeSearch


class SearchTool(NativeTool):
    """Searches on a retrieval server.

    Args:
        num_workers: Ignored.
        search_url: URL of the server; None reads ``SEARCH_URL`` on first use.
        topk: Number of documents that a search returns.
        timeout: Seconds to wait for the server.
    """

    tool_type = "search"

    def __init__(
        self, num_workers: int = 1, search_url: str | None = None, topk: int = 3, timeout: float = 5
    ) -> None:
        options: dict[str, Any] = {} if search_url is None else {"url": search_url}
        super().__init__(
            lambda: NativeSearch(backend="server", k=topk, timeout=timeout, **options),
            lambda result: result.text,
        )
