"""OpenEnv: its environments as ours (``openenv:URL``), and ours behind its WebSocket protocol.

`server` and `sessions` serve; `env` and `client` play; `wire` and `frames` are shared by both sides.
"""
