"""Agents that own their loop: a gateway in front of a policy, through which any program plays episodes."""
