"""activehuber: robust kernel regression that flags doubtful labels."""

import sys
from importlib import import_module
from types import ModuleType

from activehuber._version import __version__

# A variable of this name is true for type checkers; the module `typing` takes its time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from activehuber.audit import audit
    from activehuber.estimators.classifier import HLClassifier
    from activehuber.estimators.classifier_cv import HLClassifierCV
    from activehuber.estimators.regressor import HLRegressor, huber_path
    from activehuber.estimators.regressor_cv import HLRegressorCV
    from activehuber.estimators.splitters import LabelledKFold
    from activehuber.inspection.displays import (
        LabelQualityDisplay,
        ThresholdPathDisplay,
        ViewDisplay,
    )
    from activehuber.solver.path import ThresholdPath
    from activehuber.views import View


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

_HOMES = {
    "HLClassifier": "estimators.classifier",
    "HLClassifierCV": "estimators.classifier_cv",
    "HLRegressor": "estimators.regressor",
    "HLRegressorCV": "estimators.regressor_cv",
    "LabelQualityDisplay": "inspection.displays",
    "LabelledKFold": "estimators.splitters",
    "ThresholdPath": "solver.path",
    "ThresholdPathDisplay": "inspection.displays",
    "View": "views",
    "ViewDisplay": "inspection.displays",
    "audit": "audit",
    "huber_path": "estimators.regressor",
}


def __getattr__(name: str) -> object:
    """A public name, imported when it is asked for: the command line starts without them."""
    if name not in _HOMES:
        raise AttributeError(f"module 'activehuber' has no attribute {name!r}")
    value = getattr(import_module(f"activehuber.{_HOMES[name]}"), name)
    setattr(sys.modules[__name__], name, value)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """A module whose `audit` is the function, whoever imports the package of that name."""

    def __setattr__(self, name: str, value: object) -> None:
        is_package = name == "audit" and isinstance(value, ModuleType)
        super().__setattr__(name, getattr(value, name) if is_package else value)


sys.modules[__name__].__class__ = _Package
