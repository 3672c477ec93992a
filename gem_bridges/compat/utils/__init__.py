"""GEM's helpers under GEM's module names."""
