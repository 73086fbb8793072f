"""Experiments that are run from the repository: the paper's, and counting people."""
