"""activehuber: robust kernel regression that says which labels it did not believe."""

from activehuber.displays import ViewDisplay
from activehuber.model_selection import LabelledKFold
from activehuber.regressor import HLRegressor
from activehuber.views import View

__version__ = "0.1.0"

__all__ = ["HLRegressor", "LabelledKFold", "View", "ViewDisplay", "__version__"]
