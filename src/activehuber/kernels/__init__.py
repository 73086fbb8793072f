"""Kernels, and finitely many functions in place of one: landmarks, random Fourier features."""
