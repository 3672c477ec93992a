"""Who may ask: the checks of a request's headers, before its body is read."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gem_core.errors import ConfigError
from gem_envs._proxies import is_loopback

OPEN_PATHS = ("/health",)
"""Paths that need no token."""
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_PORTS = {"http": "80", "https": "443"}


class RequestRefused(Exception):
    """Raised for a request that gets an error as its answer.

    Args:
        status: HTTP status.
        text: What was wrong and what is expected.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Access:
    """Rules for the headers of a request; `for_address` creates them.

    Attributes:
        local: Whether the server listens on loopback, so that only loopback names are valid hosts.
        hosts: Further names that clients may use for the server, in lower case. If there are none and the
            server is not local, every name is valid.
        token: Token that clients must send; None admits everyone.
    """

    local: bool
    hosts: frozenset[str] = frozenset()
    token: str | None = None

    @classmethod
    def for_address(
        cls, host: str, token: str | None = None, hosts: Iterable[str] = (), public: bool = False
    ) -> Access:
        """Return the rules for a server.

        Args:
            host: Address to listen on.
            token: Token that clients must send; None admits everyone.
            hosts: Further names, without port, that clients may use for the server.
            public: Whether an address other than loopback may be served without a token.

        Raises:
            ConfigError: The address is not loopback and there is no token, or a name is not a host name.
        """
        local = is_loopback(host)
        if token is None and not local and not public:
            raise ConfigError(
                f"{host or 'every address'} is open to every machine that reaches it: set a token, or listen "
                "on 127.0.0.1"
            )
        if token is not None and not (token.isascii() and token.isprintable() and token.split() == [token]):
            raise ConfigError("expected a token of printable ASCII characters, without spaces")
        for name in hosts:
            found = _AUTHORITY.fullmatch(name)
            if found is None or found[2] is not None:
                raise ConfigError(f"{name!r} is not a host name: expected a name without scheme and port")
        return cls(local, frozenset(name.lower() for name in hosts), token)

    def check(
        self, path: str, host: Sequence[str], origin: Sequence[str], authorization: Sequence[str]
    ) -> None:
        """Check a request.

        A web page can make a browser send requests to loopback, and by DNS rebinding even under a name that
        both Host and Origin contain. Therefore only known names are valid.

        Args:
            path: Path of the request.
            host: Values of the header Host.
            origin: Values of Origin.
            authorization: Values of Authorization.

        Raises:
            Refusal: The request is not allowed.
        """
        if len(host) != 1 or (named := _parse(host[0])) is None:
            raise RequestRefused(400, "expected one header Host, with a name and at most a port")
        if not self._is_ours(named[0]):
            raise RequestRefused(421, f"this server is not {named[0][:200]!r}")
        if origin:
            self._check_origin(origin, named)
        if self.token is not None and path not in OPEN_PATHS:
            given = authorization[0].encode("utf-8", "replace") if len(authorization) == 1 else b""
            if not hmac.compare_digest(given, b"Bearer " + self.token.encode()):
                raise RequestRefused(401, "expected the header 'Authorization: Bearer TOKEN' with the token")

    def _is_ours(self, name: str) -> bool:
        if name in self.hosts:
            return True
        return is_loopback(name) if self.local else not self.hosts

    def _check_origin(self, origin: Sequence[str], host: tuple[str, str | None]) -> None:
        scheme, separator, authority = origin[0].partition("://")
        scheme = scheme.lower()
        page = _parse(authority) if separator and scheme in _PORTS else None
        if len(origin) > 1 or (page is None and scheme in _PORTS):
            raise RequestRefused(
                400, "expected at most one header Origin, with scheme, name, and at most a port"
            )
        if page is not None:
            port = _PORTS[scheme]
            if page[0] in self.hosts or (self.local and is_loopback(page[0])):
                return
            if not self.local and (page[0], page[1] or port) == (host[0], host[1] or port):
                return
        raise RequestRefused(403, f"requests from pages of {origin[0][:200]!r} are not allowed")


def _parse(authority: str) -> tuple[str, str | None] | None:
    """Return name (in lower case) and port of ``NAME`` or ``NAME:PORT``; None if it is something else."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None or int(found[2] or 0) > 65535:
        return None
    return found[1].lower(), found[2]
