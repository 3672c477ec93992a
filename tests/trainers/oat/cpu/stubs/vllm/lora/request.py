class LoRARequest:
    """Placeholder for an import of Oat."""
