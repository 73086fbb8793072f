"""Q of the reduced problem, and solves with Q + diag(μ) on any set of free rows."""
