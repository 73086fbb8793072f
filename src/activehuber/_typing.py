"""Names for the array types that cross module boundaries."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
