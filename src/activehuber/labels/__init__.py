"""What labels say of each other: thresholds, refinements, quality, noise rates."""
