"""What every part of gem_core needs and none of them owns. Not part of the public interface."""
