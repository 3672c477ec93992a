"""Customer service with an assistant, a user, and a database, and the table of its ids."""

from __future__ import annotations

from gem_core import register


def register_service() -> None:
    """Register the ids: the assistant's side against a scripted user; `user` and `agent` change that."""
    register(
        "service:Shop-v0",
        "gem_envs._service.ids:make_shop",
        description="Serve the customers of an outdoor shop with tools, following its policy",
    )
    register(
        "service:TauBenchRetail-v0",
        "gem_envs._service.ids:make_tau_bench",
        description="The retail tasks of tau-bench, from a checkout given as root",
        eval_kwargs={"split": "test"},
    )
