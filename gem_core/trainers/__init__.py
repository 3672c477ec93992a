"""What the plugins of all trainers share.

A plugin adapts one trainer: its inference engine to a `gem_core.rollout.Policy`, its batch to
`gem_core.rollout.Row`, its config to the options here. Everything that does not depend on the trainer is in
this package. Importing it needs neither torch nor a trainer.
"""
