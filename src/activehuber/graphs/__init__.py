"""Affinities between rows, and the Laplacians made of them."""

from activehuber.graphs.laplacians import (
    build,
    check_affinity,
    is_matrix,
    largest_entry,
)

__all__ = ["build", "check_affinity", "is_matrix", "largest_entry"]
