# Two commands for a fresh machine: `make demo` and `make test`. Each makes .venv itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# BLAS with more threads than this machine has cores gets slower, not faster.
JOBS ?= 2

.PHONY: demo test test-all check bench wheel-test clean

$(VENV)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) --editable ".[plot,cli]"
	@touch $@

$(VENV)/.test: $(VENV)/.core
	$(PIP) --editable ".[plot,cli,oracle,crowd]" --group test
	@touch $@

$(VENV)/.check: $(VENV)/.test
	$(PIP) --group check build
	@touch $@

demo: $(VENV)/.core  ## audit a table with wrong and missing labels; the page is demo/out/report.html
	$(BIN)/python examples/audit_diabetes.py --output demo

test: $(VENV)/.test  ## everything that runs in minutes
	@echo "The browser tests are left out here: make test-all runs them where chromium is installed."
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) -m "not slow" --doctest-modules src/activehuber tests

test-all: $(VENV)/.test  ## the rest: oracles at size, the page in a browser
	$(BIN)/python -m pytest -m slow tests

check: $(VENV)/.check  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.test  ## ratios against peers, measured in one run
	$(BIN)/python -m benchmarks.speed

wheel-test: $(VENV)/.check  ## build the wheel, install it into an empty environment, use it
	rm -rf build/wheel-test && mkdir -p build/wheel-test
	$(BIN)/python -m build --outdir build/wheel-test .
	$(PYTHON) -m venv build/wheel-test/venv
	build/wheel-test/venv/bin/python -m pip install --quiet --disable-pip-version-check build/wheel-test/*.whl
	cd build/wheel-test && venv/bin/python ../../tests/smoke.py

clean:
	rm -rf $(VENV) build dist demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
