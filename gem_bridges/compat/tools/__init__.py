"""GEM's tools under GEM's module names."""
