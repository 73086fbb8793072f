"""What all experiments share around their fits."""

import multiprocessing
import warnings

import pytest
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_info

from experiments.paper.outcome import standard_error, warnings_note
from experiments.paper.protocol import noted_warnings, two_processes, without_figures


def surroundings(_):
    import numpy as np  # the BLAS whose threads are counted

    blas = [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]
    return multiprocessing.get_start_method(), max(blas), np.__name__


def test_processes_start_anew_with_one_blas_thread(monkeypatch):
    # What `make test` sets for all must not be what makes it so.
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    with two_processes() as pool:
        found = list(pool.map(surroundings, range(2)))
    assert found == [("spawn", 1, "numpy")] * 2


def test_warnings_of_models_are_noted_without_figures():
    with noted_warnings() as warned:
        for residual in (0.1, 2.5e-3):
            warnings.warn(f"a residual of {residual}; do", ConvergenceWarning, stacklevel=1)
        warnings.warn("12 of 40 labels\nand more", UserWarning, stacklevel=1)
        assert warned == []
    assert warned == ["a residual of …", "a residual of …", "… of … labels"]
    (note,) = warnings_note(warned, 7)
    assert note == (
        "Warnings of HLR in 7 fits: “a residual of …” 2 times; “… of … labels” 1 times."
    )


def test_other_warnings_go_on():
    with pytest.warns(RuntimeWarning, match="overflow"), noted_warnings() as warned:
        warnings.warn("overflow", RuntimeWarning, stacklevel=1)
    assert warned == []


@pytest.mark.parametrize("figure", ["3", "0.25", "1e-07", "2.5e+3", "1e5"])
def test_a_figure_is_dots_whatever_its_form(figure):
    assert without_figures(f"gap {figure} left; do this") == "gap … left"


def test_the_standard_error_is_over_the_first_axis():
    assert standard_error([1.0, 3.0]) == pytest.approx(1.0)
    assert standard_error([[1.0, 0.0], [3.0, 0.0]]).tolist() == pytest.approx([1.0, 0.0])
