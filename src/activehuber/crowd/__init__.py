"""Frames of a camera -> features by view -> counts: what `activehuber crowd` runs."""
