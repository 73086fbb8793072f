"""LAPACK in place, robust statistics, the Gaussian likelihood."""
