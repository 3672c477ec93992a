"""GEM's environments under GEM's module names."""
