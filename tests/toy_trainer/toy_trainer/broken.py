"""A plugin that fails when it is imported."""

raise RuntimeError("this plugin fails\non import")
