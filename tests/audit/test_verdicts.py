"""What a fit says of every label, in words."""

from types import SimpleNamespace

import numpy as np
import pytest

from activehuber.audit.summary import reasons_of
from activehuber.audit.verdicts import judge
from activehuber.estimators.target_scale import TargetScale
from activehuber.fitting.result import LabelEvidence
from activehuber.labels.error_scale import ErrorScale


def judged(errors, removed, *, values=None, scale=None, coverage=0.9):
    """What is said of labels with these leave-one-out errors, all with noise of 1."""
    everyone = np.ones(len(errors))
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
        estimator=model,
        regressor=SimpleNamespace(scale_=1.0),
        scale=scale or TargetScale(),
    )
    labels = SimpleNamespace(given=everyone > 0.0, values=errors if values is None else values)
    table = SimpleNamespace(labels=labels, trusted=everyone < 0.0, names=np.arange(len(errors)))
    return judge(choice, table, coverage)


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.99])
def test_no_label_within_the_interval_of_right_ones_is_flagged(coverage):
    """Nor is one that is outside kept for it: a fit may go round and drop what is near."""
    errors = np.append(np.linspace(-2.0, 2.0, 40), [0.1, 1.5, 4.0, 30.0])
    found = judged(errors, np.arange(44) >= 40, coverage=coverage)
    words = ["cannot judge", "cannot judge", "flagged", "flagged"]
    assert found.verdicts[40:].tolist() == words
    assert set(found.verdicts[:40]) == {"kept"}
    assert found.flagged.sum() == 2


def test_no_label_within_the_interval_that_is_shown_is_flagged():
    """What is expected below zero, where no label is, moves up to it with its upper end."""
    errors = np.append(np.linspace(-2.0, 2.0, 40), [4.0, 4.0])
    values = np.append(np.full(40, 50.0), [1.0, 50.0])  # the first is expected at −3
    scale = TargetScale(not_negative=True)
    found = judged(errors, np.arange(42) >= 40, values=values, scale=scale)
    assert found.expected[40] == found.lower[40] == 0.0 and found.upper[40] > 1.0
    assert found.verdicts[40:].tolist() == ["cannot judge", "flagged"]


def test_the_reason_tells_a_label_that_is_as_right_ones_from_a_row_nobody_knows():
    errors = np.append(np.linspace(-2.0, 2.0, 40), 1.5)
    found = judged(errors, np.arange(41) >= 40)
    nobody = np.empty(0, dtype=int)
    similar = SimpleNamespace(wanted=nobody, near=np.empty((0, 0), dtype=int))
    reasons = reasons_of(found, similar, SimpleNamespace(frame=None))
    assert reasons[40].endswith(
        "; the fit leaves it out, but right labels may be as far off here"
    )
    assert not any("too little" in reason for reason in reasons)
