"""GEM's vector environments under GEM's module names."""
