"""Event loop, encryption, and token of a server."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Coroutine
from typing import Any, TypeVar

from gem_chat._files import read_text
from gem_core.errors import ConfigError

T = TypeVar("T")


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine like `asyncio.run`, on uvloop if it is installed.

    uvloop takes less CPU time per message than asyncio's own event loop.
    """
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    result: T = uvloop.run(main)
    return result


def tls_context(certificate: str, key: str | None = None) -> ssl.SSLContext:
    """Return the TLS settings of a server.

    Args:
        certificate: PEM file with the certificate chain.
        key: PEM file with the private key; None if it is in the same file.

    Raises:
        ConfigError: A file is missing or does not hold a certificate or key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot load the certificate {certificate!r} and its key: {error}") from error
    return context


def read_token(file: str | None, variable: str) -> str | None:
    """Return the token in a file or else in an environment variable; None if there is no token.

    Raises:
        ConfigError: The file holds no token of printable ASCII characters.
    """
    token = os.environ.get(variable) if file is None else read_text(file).strip()
    if file is None and not token:
        return None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{file or '$' + variable}: expected a token of printable ASCII characters")
    return token
