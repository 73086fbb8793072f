"""One clear error that says what to do, before any work; the estimator stays as it was."""

import numpy as np
import pytest
from scipy import sparse

from activehuber import HLRegressor, LabelledKFold, View, huber_path
from activehuber.fitting import fit as fitting_module
from activehuber.fitting import validation

# Of eight labels one is soon in doubt; that is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.* labels were removed:UserWarning")

X = np.random.default_rng(0).normal(size=(12, 2))
Y = X[:, 0] + 1.0

PARAMETERS = [
    ({"alpha": 0.0}, ValueError, "alpha"),
    ({"alpha": -1}, ValueError, "alpha"),
    ({"alpha": np.nan}, ValueError, "alpha"),
    ({"alpha": "small"}, TypeError, "alpha"),
    ({"alpha": True}, TypeError, "alpha"),
    ({"threshold": 0.0}, ValueError, "threshold"),
    ({"threshold": -2.0}, ValueError, "threshold"),
    ({"threshold": np.nan}, ValueError, "threshold"),
    ({"threshold": "magic"}, ValueError, "'adaptive', 'refine'"),
    ({"threshold": None}, TypeError, "threshold"),
    ({"kernel": "gauss"}, ValueError, "'rbf'"),
    ({"kernel": 3}, ValueError, "kernel"),
    ({"gamma": 0}, ValueError, "gamma"),
    ({"gamma": "wide"}, ValueError, "gamma"),
    ({"degree": 0}, ValueError, "degree"),
    ({"degree": 2.5}, TypeError, "degree"),
    ({"coef0": np.inf}, ValueError, "coef0"),
    ({"kernel_params": {"a": 1}}, ValueError, "kernel_params"),
    ({"manifold": -1.0}, ValueError, "manifold"),
    ({"graph": "tree"}, ValueError, "'knn'"),
    ({"graph": 7}, TypeError, "graph"),
    ({"n_neighbors": 0}, ValueError, "n_neighbors"),
    ({"removal": 0}, ValueError, "removal"),
    ({"n_refinements": -1}, ValueError, "n_refinements"),
    ({"threshold_step": 0}, ValueError, "threshold_step"),
    ({"algorithm": "fast"}, ValueError, "algorithm"),
    ({"algorithm": "paper"}, ValueError, 'needs threshold="refine"'),
    ({"tol": 0}, ValueError, "tol"),
    ({"max_iter": 0}, ValueError, "max_iter"),
    ({"views": [1]}, TypeError, "views"),
    ({"agreement": 1.0}, ValueError, "agreement"),
    ({"agreement": -1.0}, ValueError, "agreement"),
    ({"view_weights": "learn"}, ValueError, "view_weights"),
    ({"view_weights": "best"}, ValueError, "view_weights"),
]

nan, inf = np.nan, np.inf
# None: said by scikit-learn, in its words.
DATA = [
    ((X, np.full(12, nan)), {}, ValueError, "at least one label"),
    ((X, np.where(np.arange(12) == 3, inf, Y)), {}, ValueError, None),
    ((np.where(np.arange(24).reshape(12, 2) == 3, nan, X), Y), {}, ValueError, None),
    ((np.where(np.arange(24).reshape(12, 2) == 3, inf, X), Y), {}, ValueError, None),
    ((X, Y[:5]), {}, ValueError, "12 rows but y has 5"),
    ((X, None), {}, ValueError, "y"),
    ((X, ["a", "b"] * 6), {}, ValueError, "y must hold numbers.*use HLClassifier"),
    ((X, Y, -np.ones(12)), {}, ValueError, "sample_weight must not be negative"),
    ((X, Y, np.zeros(12)), {}, ValueError, "sample_weight is zero"),
    ((X, Y, np.ones(3)), {}, ValueError, "sample_weight has shape"),
    (
        (X, np.where(np.arange(12) < 6, Y, nan), (np.arange(12) >= 6) * 1.0),
        {},
        ValueError,
        "every labelled row",
    ),
    ((X, Y, None, np.ones(12)), {}, ValueError, "boolean mask"),
    ((X, Y), {"kernel": "precomputed"}, ValueError, "square"),
    ((np.arange(144.0).reshape(12, 12), Y), {"kernel": "precomputed"}, ValueError, "symmetric"),
    ((1 - np.eye(12), Y), {"kernel": "precomputed"}, ValueError, "positive semi-definite"),
    ((sparse.csr_array(X), Y), {}, TypeError, None),
    ((X, Y), {"manifold": 1.0, "graph": np.eye(5)}, ValueError, "callable"),
    ((X, Y), {"manifold": 1.0, "graph": np.triu(np.ones((12, 12)))}, ValueError, "symmetric"),
    ((X, Y), {"manifold": 1.0, "graph": -np.ones((12, 12))}, ValueError, "not be negative"),
    (
        (X, Y),
        {"manifold": 1.0, "graph": lambda Z: np.eye(3)},
        ValueError,
        "callable returned shape",
    ),
    (
        (X, Y),
        {"manifold": 1.0, "graph": lambda Z: -np.eye(12)},
        ValueError,
        "positive semi-definite",
    ),
    (
        (X, Y),
        {"manifold": 1.0, "graph": lambda Z: np.triu(np.ones((12, 12)))},
        ValueError,
        "symmetric",
    ),
    ((X, Y), {"kernel": lambda A, B: np.ones(3)}, ValueError, "callable kernel returned shape"),
]


def check_error(call, params, error, message):
    model = HLRegressor(gamma=0.5).fit(X[:8], Y[:8])
    before = model.predict(X)
    model.set_params(**params)
    attributes = dict(vars(model))
    with pytest.raises(error, match=message) as caught:
        model.fit(*call)
    assert len(str(caught.value).splitlines()) <= 8
    assert vars(model) == attributes
    model.set_params(kernel="rbf")
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize("params, error, message", PARAMETERS)
def test_bad_parameters(params, error, message):
    check_error((X, Y), params, error, message)


@pytest.mark.parametrize("call, params, error, message", DATA)
def test_bad_data(call, params, error, message):
    check_error(call, params, error, message)


def test_a_gram_matrix_that_does_not_fit(monkeypatch):
    monkeypatch.setattr(validation, "memory_limit", lambda: 1000.0)
    message = r"12 rows needs .* GiB .*approximation=.*fewer labelled rows"
    with pytest.raises(ValueError, match=message):
        HLRegressor().fit(X, Y)
    HLRegressor(kernel="linear").fit(X, Y)  # forms no such matrix
    few = np.where(np.arange(12) < 3, Y, nan)
    HLRegressor().fit(X, few)  # only labelled rows count without a graph


@pytest.mark.parametrize(
    ("params", "remedy"),
    [
        ({"manifold": 1.0}, r'approximation="nystrom".* or fewer rows, labelled or not$'),
        ({"algorithm": "paper", "threshold": "refine"}, "GiB; use fewer labelled rows$"),
        ({"kernel": "precomputed"}, "GiB; use fewer labelled rows$"),
        (
            {"manifold": 1.0, "graph": np.ones((12, 12))},
            "GiB; use fewer rows, labelled or not$",
        ),
    ],
)
def test_what_to_do_about_memory_is_possible(monkeypatch, params, remedy):
    monkeypatch.setattr(validation, "memory_limit", lambda: 1000.0)
    rows = X @ X.T if params.get("kernel") == "precomputed" else X
    with pytest.raises(ValueError, match=remedy):
        HLRegressor(**params).fit(rows, Y)


def test_the_path_has_no_approximation_to_offer(monkeypatch):
    model = HLRegressor().fit(X, Y)
    monkeypatch.setattr(validation, "memory_limit", lambda: 1000.0)
    with pytest.raises(ValueError, match=r"GiB; use fewer labelled rows$"):
        huber_path(X, Y)
    with pytest.raises(ValueError, match=r"GiB; use fewer labelled rows$"):
        model.threshold_path()


@pytest.mark.parametrize("sysconf", [None, {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": -1}.get])
def test_without_a_word_from_the_system_memory_has_no_limit(monkeypatch, sysconf):
    if sysconf is None:  # Windows
        monkeypatch.delattr("os.sysconf", raising=False)
    else:
        monkeypatch.setattr("os.sysconf", sysconf, raising=False)
    monkeypatch.setattr("pathlib.Path.is_file", lambda path: False)
    assert validation.memory_limit() == np.inf
    HLRegressor().fit(X, Y)


def test_what_gamma_may_be_is_what_is_said():
    with pytest.raises(ValueError, match="'loo', a number > 0 or one for each feature, got"):
        HLRegressor(gamma="wide").fit(X, Y)
    with pytest.raises(ValueError, match="one of 'scale', 'auto', a number > 0 or one for"):
        HLRegressor(views=[View([0], gamma="loo")]).fit(X, Y)


def test_errors_of_a_graph_name_the_view_with_an_approximation_too():
    def asymmetric(X):
        return np.triu(np.ones((len(X), len(X))))

    views = [View([0]), View([1], graph=asymmetric, name="other")]
    for approximation in (None, "nystrom"):
        model = HLRegressor(views=views, manifold=1.0, approximation=approximation)
        with pytest.raises(ValueError, match=r"^view 'other': .*symmetric"):
            model.fit(X, Y)


def test_memory_limit_is_the_smaller_of_machine_and_cgroup():
    limit = validation.memory_limit()
    assert 2**28 < limit < 2**50


def test_interrupt_leaves_the_estimator_as_it_was(monkeypatch):
    model = HLRegressor().fit(X, Y)
    before = dict(vars(model))

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting_module, "recover", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, ::-1], Y)
    assert vars(model) == before
    fresh = HLRegressor()
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(X, Y)
    assert not hasattr(fresh, "dual_coef_")


def test_hopeless_precision_is_an_error_that_says_so():
    far = 1e9 + X
    with pytest.raises(ValueError, match=r"alpha=1e-10 is too small.*standardise"):
        HLRegressor(
            kernel="poly", gamma=1.0, alpha=1e-10, threshold=1e-6, fit_intercept=False
        ).fit(far, Y)


def test_splitter_errors():
    with pytest.raises(ValueError, match="needs y"):
        next(LabelledKFold().split(X))
    with pytest.raises(ValueError, match="more than the 2 labelled rows"):
        next(LabelledKFold(5).split(X, np.where(np.arange(12) < 2, Y, nan)))


def test_inputs_are_not_changed():
    K = X @ X.T
    arrays = X.copy(), Y.copy(), K.copy()
    HLRegressor(manifold=1e-2).fit(X, Y)
    HLRegressor(kernel="precomputed", alpha=1e-12).fit(K, Y)
    for now, before in zip((X, Y, K), arrays, strict=True):
        np.testing.assert_array_equal(now, before)
