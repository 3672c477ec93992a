class LoRARequest:
    """Named by Oat's imports."""
