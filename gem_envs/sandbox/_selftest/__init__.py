"""Attacks on the sandbox, to measure what each isolation level blocks on this machine."""
