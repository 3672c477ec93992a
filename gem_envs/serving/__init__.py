"""Servers: one HTTP layer for all of them, built on aiohttp, and the checks that every request passes.

`access` decides who may ask, `guard` limits connections, `http` serves requests, and `asgi` puts the same
checks before an application that brings its own HTTP server. A server on an address other than loopback needs
a token.
"""
