"""activehuber: robust kernel regression that says which labels it did not believe."""

import sys
from importlib import import_module
from types import ModuleType

# A variable of this name is true for type checkers; the module `typing` takes its time.
TYPE_CHECKING = False
if TYPE_CHECKING:
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

_HOMES = {
    "HLClassifier": "classifier",
    "HLClassifierCV": "search",
    "HLRegressor": "regressor",
    "HLRegressorCV": "search",
    "LabelQualityDisplay": "displays",
    "LabelledKFold": "model_selection",
    "ThresholdPath": "path",
    "ThresholdPathDisplay": "displays",
    "View": "views",
    "ViewDisplay": "displays",
    "audit": "audit",
    "huber_path": "regressor",
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
