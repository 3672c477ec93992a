"""What the trainer plugins share, and how gem-core finds them."""
