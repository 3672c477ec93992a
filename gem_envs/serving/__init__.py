"""Servers: one HTTP layer for all of them, built on aiohttp, and the checks that every request passes.

`access` decides who may ask, `guard` limits connections, `http` serves requests, and `asgi` puts the same
checks before an application that brings its own HTTP server. A server on an address other than loopback needs
a token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core._util.lazy import lazy_names

if TYPE_CHECKING:
    from gem_envs.serving._access import Access
    from gem_envs.serving._http import HttpServer, json_response

__all__ = [
    "Access",
    "HttpServer",
    "json_response",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gem_envs.serving._access": ["Access"],
        "gem_envs.serving._http": ["HttpServer", "json_response"],
    },
)
