"""`proxy_for`: which proxy a connection goes through, the same for every client of this package.

The client of the Hugging Face Hub decides for itself. It reads the same variables, but excepts no loopback
address: `named_for` is what it does.
"""

from __future__ import annotations

import ipaddress
import urllib.parse
import urllib.request

from gem_core._util.urls import without_secrets
from gem_core.errors import ConfigError


def is_loopback(host: str) -> bool:
    """Return whether an address or name stands for this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def proxy_for(url: str) -> str | None:
    """Return the URL of the proxy that the environment names for an address; None to connect directly.

    The variables are ``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY``, and ``NO_PROXY``, also in lowercase.
    A loopback address is never reached through a proxy, which has a loopback of its own.

    Args:
        url: Address of the server; its scheme is ``http``, ``https``, ``ws``, or ``wss``.

    Raises:
        ConfigError: The proxy is not one for HTTP, such as a SOCKS proxy.
    """
    host = urllib.parse.urlsplit(url).hostname or ""
    proxy = None if is_loopback(host) else named_for(url)
    if proxy is None:
        return None
    if not proxy.lower().startswith(("http://", "https://")):
        raise ConfigError(
            f"the environment names the proxy {without_secrets(proxy)} for {host}: expected one that begins "
            "with http://; set HTTP_PROXY and HTTPS_PROXY, or list the host in NO_PROXY"
        )
    return proxy


def named_for(url: str) -> str | None:
    """Return the URL of the proxy that the environment names for an address of any kind; None for none."""
    parts = urllib.parse.urlsplit(url)
    proxies = urllib.request.getproxies()
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def via(proxy: str | None) -> str:
    """Return the end of a phrase about an address: " through the proxy ...", or "" without one."""
    return f" through the proxy {without_secrets(proxy)}" if proxy else ""
