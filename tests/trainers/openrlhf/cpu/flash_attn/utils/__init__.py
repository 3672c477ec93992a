"""Part of the stub."""
