"""Shared code of all trainer plugins.

A plugin adapts one trainer: its inference engine to a `gem_core.rollout.Policy`, its batch to
`gem_core.rollout.Row`, and its config to the options in this package. Everything that does not depend on the
trainer is here. Importing this package requires neither torch nor a trainer.
"""
