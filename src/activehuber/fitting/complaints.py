"""The warnings that a fit deserves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from activehuber.fitting.settings import Settings
from activehuber.fitting.target import Target
from activehuber.labels import refinement
from activehuber.solver.leave_one_out import units
from activehuber.solver.newton import Status
from activehuber.solver.polishing import CertifiedFit

# Learnt view weights further from their optimum than this raise a warning.
WEIGHTS_TOLERANCE = 1e-6
# A warning comes when more than this share of the labels goes, or fewer than so many remain.
MANY_REMOVED = 0.3
FEW_LEFT = 10

Complaint = tuple[type[Warning], str]


def complaints_of(
    settings: Settings, trace: refinement.Trace, fit: CertifiedFit, target: Target
) -> Iterator[Complaint]:
    """Warnings if the certificate is not good enough or nothing could be refined."""
    weights_residual = target.view_weights_residual
    if weights_residual > WEIGHTS_TOLERANCE:
        yield (
            ConvergenceWarning,
            f"the learnt view weights are not optimal (residual {weights_residual:.1e}); "
            "use a larger alpha, or give view_weights",
        )
    yield from _doubts(settings, trace, target.unit)
    refined = settings.threshold == "refine" and settings.n_refinements > 0
    if refined and len(trace.history) == 1:
        if target.unit * trace.threshold <= settings.threshold_step:
            yield (
                UserWarning,
                f"no refinement was possible: threshold_step={settings.threshold_step:g} is "
                f"not below the largest residual {target.unit * fit.threshold:.3g}; choose a "
                'smaller threshold_step (it is in units of y) or threshold="adaptive"',
            )
    if not trace.minimiser:
        return
    proof = fit.certificate
    if proof.kkt_rounding >= 0.125:
        yield (
            ConvergenceWarning,
            "in double precision it cannot be decided which labels lie within the threshold "
            f"(rounding is {proof.kkt_rounding:.1g} of it); use a larger alpha or "
            "threshold, or standardise the features",
        )
    elif proof.duality_gap > 10.0 * settings.tol or proof.kkt_residual > 100.0 * settings.tol:
        status = trace.solution.status
        reason = status.value if status is not Status.CONVERGED else Status.STALLED.value
        yield (
            ConvergenceWarning,
            f"the fit is not certified: duality gap {proof.duality_gap:.1e} (tol "
            f"{settings.tol:g}), KKT residual {proof.kkt_residual:.1e}; {reason}",
        )


def _doubts(settings: Settings, trace: refinement.Trace, unit: float) -> Iterator[Complaint]:
    """Warnings if a rule did not settle, or if more labels went than can be right."""
    if not trace.settled:
        yield (
            ConvergenceWarning,
            f"the rule threshold={settings.threshold!r} did not settle; the fit is exact at "
            f"{unit * trace.threshold:.3g}, where it stopped",
        )
    active, weights = trace.problem.active, trace.problem.weights
    # Labels of weight two are two labels.
    left, total = units(weights, active), units(weights, np.ones_like(active))
    many = total - left > MANY_REMOVED * total
    if settings.threshold == "adaptive" and (many or left < min(float(FEW_LEFT), total)):
        yield (
            UserWarning,
            f"{np.sum(~active)} of {len(active)} labels were removed and {np.sum(active)} are "
            "left; likely causes "
            "are an alpha or a kernel width that is too small (the fit follows single labels), "
            "a second population among the rows, or labels in different units",
        )
