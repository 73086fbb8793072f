"""Affinities between rows, and the Laplacians made of them."""

from activehuber.graphs.laplacians import (
    build,
    chain_affinity,
    check_affinity,
    is_matrix,
    largest_entry,
)

__all__ = ["build", "chain_affinity", "check_affinity", "is_matrix", "largest_entry"]
