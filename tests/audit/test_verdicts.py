"""What a fit says of every label, in words."""

from types import SimpleNamespace

import numpy as np
import pytest

from activehuber.audit.verdicts import judge
from activehuber.estimators.target_scale import TargetScale
from activehuber.fitting.result import LabelEvidence
from activehuber.labels.error_scale import ErrorScale


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.99])
def test_no_label_within_the_interval_of_right_ones_is_flagged(coverage):
    """Nor is one that is outside kept for it: a fit may go round and drop what is near."""
    errors = np.append(np.linspace(-2.0, 2.0, 40), [0.1, 1.5, 4.0, 30.0])
    removed, everyone = np.arange(44) >= 40, np.ones(44)
    evidence = LabelEvidence(
        ErrorScale(1.0, 1e4), errors, everyone, everyone / 3.0, everyone > 0.0
    )
    result = SimpleNamespace(
        evidence=(evidence,),
        targets=[SimpleNamespace(removed=removed)],
        data=SimpleNamespace(weights=everyone),
    )
    model = SimpleNamespace(
        removed_=removed,
        loo_residuals_=errors,
        label_quality_=evidence.label_quality,
        judged_=evidence.judged,
        threshold_=2.0,
        result_=result,
    )
    choice = SimpleNamespace(
        estimator=model, regressor=SimpleNamespace(scale_=1.0), scale=TargetScale()
    )
    labels = SimpleNamespace(given=removed | ~removed, values=errors)
    table = SimpleNamespace(
        labels=labels, trusted=np.zeros(44, dtype=bool), names=np.arange(44)
    )
    found = judge(choice, table, coverage)
    words = ["cannot judge", "cannot judge", "flagged", "flagged"]
    assert found.verdicts[40:].tolist() == words
    assert set(found.verdicts[:40]) == {"kept"}
    assert found.flagged.sum() == 2
