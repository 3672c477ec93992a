"""Second solvers of generated items, for `Env.verify`: they read what an episode shows, not the label."""
