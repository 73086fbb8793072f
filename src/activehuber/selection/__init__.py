"""The search for kernel, widths and alpha."""
