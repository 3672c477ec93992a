"""The tasks, a module a group; importing one files its tasks."""
