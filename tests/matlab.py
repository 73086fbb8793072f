"""Files as MATLAB writes them."""

import numpy as np


def cells(items):
    """A cell array of one row."""
    array = np.empty((1, len(items)), dtype=object)
    for j, item in enumerate(items):
        array[0, j] = item
    return array
