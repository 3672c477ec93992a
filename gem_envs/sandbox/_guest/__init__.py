"""Code that runs inside a sandbox, with the standard library only: gem_core cannot be imported there."""
