"""OpenEnv: its environments as ours (``openenv:URL``), and ours behind its WebSocket protocol.

`server` and `sessions` serve environments, `env` and `client` play them, and both sides use `wire` and
`frames`.
"""
