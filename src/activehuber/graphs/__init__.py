"""Affinities between rows, and the Laplacians made of them."""

from activehuber.graphs.laplacians import (
    GRAPH_NAMES,
    build,
    chain_affinity,
    check_affinity,
    checked_penalty,
    degrees,
    is_matrix,
    knn_affinity,
    largest_entry,
    normalised_laplacian,
    plain_laplacian,
    rbf_affinity,
    without_loops,
)

__all__ = [
    "GRAPH_NAMES",
    "build",
    "chain_affinity",
    "check_affinity",
    "checked_penalty",
    "degrees",
    "is_matrix",
    "knn_affinity",
    "largest_entry",
    "normalised_laplacian",
    "plain_laplacian",
    "rbf_affinity",
    "without_loops",
]
