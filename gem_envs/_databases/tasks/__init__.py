"""The tasks, one module per group; importing a module registers its tasks."""
