"""GEM's wrappers under GEM's module names."""
