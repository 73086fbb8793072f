"""Naive twins of what the library computes: loops, dense algebra, CVXPY. No library code."""

import numpy as np
from sklearn.gaussian_process.kernels import Matern
from sklearn.metrics.pairwise import pairwise_kernels

KERNELS = ("linear", "poly", "rbf", "laplacian", "matern", "cosine")


def gram(kernel, X, Z=None, gamma=None, degree=2, coef0=1):
    gamma = 1.0 / (X.shape[1] * X.var()) if gamma is None else gamma
    if kernel == "matern":
        return Matern(length_scale=1.0 / np.sqrt(2.0 * gamma), nu=2.5)(X, Z)
    params = {
        "poly": {"gamma": gamma, "degree": degree, "coef0": coef0},
        "rbf": {"gamma": gamma},
        "laplacian": {"gamma": gamma},
    }.get(kernel, {})
    return pairwise_kernels(X, Z, metric=kernel, **params)


def huber(r, xi):
    return np.array([0.5 * t * t if abs(t) <= xi else xi * (abs(t) - 0.5 * xi) for t in r])


def knn_laplacian(X, k):
    """M = I − D^-½ W D^-½ of the union k-nearest-neighbour graph, ties included."""
    n = len(X)
    W = np.zeros((n, n))
    for i in range(n):
        d = np.array([np.inf if j == i else np.sum((X[i] - X[j]) ** 2) for j in range(n)])
        kth = np.sort(d)[min(k, n - 1) - 1]
        W[i, d <= kth * (1 + 1e-10)] = 1.0
    W = np.maximum(W, W.T)
    return normalised(W), W


def normalised(W):
    degree = W.sum(axis=1)
    scale = np.where(degree > 0, 1 / np.sqrt(np.where(degree > 0, degree, 1)), 0.0)
    return np.diag((degree > 0) * 1.0) - scale[:, None] * W * scale[None, :]


def objective(K, y, w, b, xi, lam, gam=0.0, M=None, s=None):
    """J(f, b), eq. 3, f = K w; NaN in y is no label."""
    f = K @ w
    use = ~np.isnan(y)
    s = np.ones(len(y)) if s is None else s
    loss = np.sum(s[use] * huber(y[use] - b - f[use], xi)) / s[use].sum()
    return loss + lam * w @ f + (gam * f @ M @ f if M is not None else 0.0)


def kkt(K, y, w, b, xi, lam, gam=0.0, M=None, s=None, intercept=True):
    """Residual of Theorem 1 beyond 4 rounding errors, and the rounding itself."""
    n = len(y)
    use = ~np.isnan(y)
    s = np.where(use, np.ones(n) if s is None else s, 0.0)
    S = s.sum()
    f = K @ w
    r = np.where(use, np.nan_to_num(y) - b - f, 0.0)
    psi = np.clip(r, -xi, xi)
    M = np.zeros((n, n)) if M is None else M
    E = 2 * S * lam * w + 2 * S * gam * M @ f - s * psi
    size = 2 * S * lam * abs(w) + 2 * S * gam * abs(M) @ (abs(K) @ abs(w))
    size = size + s * (abs(np.nan_to_num(y)) + abs(b) + abs(K) @ abs(w))
    rho = np.finfo(float).eps * size
    middle = np.median(y[use]) if intercept else 0.0
    tau = min(xi, np.max(abs(y[use] - middle)))
    value = np.max(np.maximum(abs(E) - 4 * rho, 0)) / (tau * s.max())
    if intercept:
        value = max(value, abs(np.sum(s * psi)) / (S * tau))
    return value, np.max(rho) / (tau * s.max())


def cvxpy_objective(K, y, xi, lam, gam=0.0, M=None, intercept=True, s=None):
    """Least value of J by an interior-point solver on the primal problem."""
    import cvxpy as cp

    n = len(y)
    use = np.flatnonzero(~np.isnan(y))
    s = np.ones(n) if s is None else s
    values, vectors = np.linalg.eigh((K + K.T) / 2)
    keep = values > 1e-13 * values.max()
    root = vectors[:, keep] * np.sqrt(values[keep])  # K = root rootᵀ, f = root θ
    theta = cp.Variable(root.shape[1])
    b = cp.Variable() if intercept else 0.0
    r = y[use] - root[use] @ theta - b
    weights = s[use] / s[use].sum()
    if np.isfinite(xi):
        loss = 0.5 * cp.sum(cp.multiply(weights, cp.huber(r, xi)))
    else:
        loss = 0.5 * cp.sum(cp.multiply(weights, cp.square(r)))
    penalty = lam * cp.sum_squares(theta)
    if M is not None and gam > 0:
        mv, mw = np.linalg.eigh((M + M.T) / 2)
        half = (mw * np.sqrt(np.maximum(mv, 0))).T @ root
        penalty = penalty + gam * cp.sum_squares(half @ theta)
    problem = cp.Problem(cp.Minimize(loss + penalty))
    options = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}
    problem.solve(solver=cp.CLARABEL, **options)
    return problem.value


def curve(n, seed, noise=0.1, bad=0.1, d=2):
    """A smooth function with noise and a share of labels pushed up by 3."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    truth = np.sin(2 * X[:, 0]) + (0.5 * X[:, 1] if d > 1 else 0)
    y = truth + noise * rng.normal(size=n)
    wrong = np.zeros(n, dtype=bool)
    wrong[rng.permutation(n)[: int(bad * n)]] = True
    y[wrong] += 3.0
    return X, y, wrong, truth
