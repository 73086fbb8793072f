"""The reduced problem, the way to it and back, and the certificate."""
