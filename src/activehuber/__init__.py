"""activehuber: robust kernel regression that says which labels it did not believe."""

from activehuber.audit import audit
from activehuber.classifier import HLClassifier
from activehuber.displays import LabelQualityDisplay, ThresholdPathDisplay, ViewDisplay
from activehuber.model_selection import LabelledKFold
from activehuber.path import ThresholdPath
from activehuber.regressor import HLRegressor, huber_path
from activehuber.search import HLClassifierCV, HLRegressorCV
from activehuber.views import View

__version__ = "0.1.0"

__all__ = [
    "HLClassifier",
    "HLClassifierCV",
    "HLRegressor",
    "HLRegressorCV",
    "LabelQualityDisplay",
    "LabelledKFold",
    "ThresholdPath",
    "ThresholdPathDisplay",
    "View",
    "ViewDisplay",
    "__version__",
    "audit",
    "huber_path",
]
