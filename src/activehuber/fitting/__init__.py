"""Settings and data in, one certified fit out."""
