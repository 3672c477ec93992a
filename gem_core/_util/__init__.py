"""Helpers that all parts of gem_core share. Not part of the public interface."""
