"""Benchmarks hide nothing that goes wrong."""

import warnings

import pytest
from sklearn.exceptions import ConvergenceWarning

from benchmarks import scale
from benchmarks.protocol import removals_expected, summary


def test_of_warnings_only_the_one_on_removals_is_expected():
    with removals_expected():
        warnings.warn("40 of 90 labels were removed and 50 are left; or", stacklevel=1)
        with pytest.warns(ConvergenceWarning, match="duality gap"):
            warnings.warn("the duality gap is 0.1; do", ConvergenceWarning, stacklevel=1)


def test_a_failed_audit_gives_no_figures(monkeypatch):
    monkeypatch.setattr(scale, "write_parquet", lambda path, rows: path.write_text("no table"))
    with pytest.raises(SystemExit, match=r"the audit of rows\.parquet failed"):
        scale.audit(10)


def test_the_summary_of_one_seed_has_no_error():
    assert summary([0.5]) == "0.5000 ± nan"
    assert summary([1.0, 3.0]) == "2.0000 ± 1.0000"
