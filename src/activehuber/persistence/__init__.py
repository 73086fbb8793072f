"""Model files that hold plain values only; anything else is refused, never run."""

from activehuber.persistence.model_files import Model, load_model, model_bytes, save_model

__all__ = ["Model", "load_model", "model_bytes", "save_model"]
