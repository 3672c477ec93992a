"""Agents that own their loop: a gateway in front of a policy, through which any program plays episodes."""

from __future__ import annotations

from gem_agents.gateway import Gateway, GatewayLimits
from gem_agents.session import Session, SessionLimits

__all__ = ["Gateway", "GatewayLimits", "Session", "SessionLimits"]
