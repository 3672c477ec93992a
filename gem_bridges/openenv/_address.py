"""Addresses of OpenEnv servers, and the errors of a session with one."""

from __future__ import annotations

import ssl
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from gem_core._util.urls import without_secrets
from gem_core.errors import ConfigError, EnvError


class SessionLost(Exception):
    """Raised when the session or its episode is gone: a new session may work."""


class ServerFull(SessionLost):
    """Raised when the server has as many sessions as it allows."""


class ServerError(EnvError):
    """Raised when the server answers with an error; `code` is OpenEnv's code."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Address(NamedTuple):
    """Address at which a server listens.

    Attributes:
        secure: Whether connections are encrypted.
        host: Name or IP address.
        port: Port.
        path: Path before ``/ws``, without a slash at the end.
    """

    secure: bool
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read ``http://HOST:PORT/PATH``; the scheme may be http, https, ws, wss, or missing.

        Raises:
            ConfigError: The text is not such an address.
        """
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            secure = {"http": False, "ws": False, "https": True, "wss": True}[parts.scheme]
            port = parts.port or (443 if secure else 80)
            if not parts.hostname or parts.query or parts.fragment or parts.username:
                raise ValueError(url)
        except (KeyError, ValueError):
            shown = without_secrets(url if "://" in url else f"http://{url}")
            raise ConfigError(f"url={shown!r}: expected an address such as 'http://127.0.0.1:8000'") from None
        path = quote(unquote(parts.path.rstrip("/").removesuffix("/ws")), safe="/:")
        return cls(secure, parts.hostname, port, path)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """TLS settings with the certificates that the system trusts (and ``SSL_CERT_FILE``)."""
        return ssl.create_default_context() if self.secure else None

    @property
    def url(self) -> str:
        """The address as ``http://HOST:PORT/PATH`` or ``https://...``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.path}"


def access_headers(token: str | None) -> dict[str, str]:
    """Return the header that carries a token; none without a token."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}
