# Two commands for a fresh machine: `make demo` and `make test`. Each makes .venv itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# BLAS with more threads than this machine has cores gets slower, not faster.
JOBS ?= 2
DEMO := demo
# With the environment, since the checkout may be read-only.
export RUFF_CACHE_DIR := $(abspath $(VENV))/.ruff_cache
export MYPY_CACHE_DIR := $(abspath $(VENV))/.mypy_cache
EXTRAS := plot,cli,oracle,crowd,dask
PYTEST := -m pytest -n $(JOBS) -m "not slow" --doctest-modules src/activehuber tests

.PHONY: demo test test-all test-random test-cores test-pythons test-elsewhere test-lowest test-newest \
  check docs paper bench fuzz mutants wheel-test clean

$(VENV)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) --editable ".[plot,cli]"
	@touch $@

$(VENV)/.test: $(VENV)/.core
	$(PIP) --editable ".[$(EXTRAS)]" --group test
	@touch $@

$(VENV)/.check: $(VENV)/.test
	$(PIP) --group check build
	@touch $@

$(VENV)/.docs: $(VENV)/.test
	$(PIP) --group docs
	@touch $@

demo: $(VENV)/.core  ## audit a table with wrong and missing labels; the page is demo/audit/report.html
	$(BIN)/python examples/audit_diabetes.py --output $(DEMO)

test: $(VENV)/.test  ## everything that runs in minutes
	@echo "The browser tests are left out here: make test-all runs them where chromium is installed."
	OPENBLAS_NUM_THREADS=1 $(BIN)/python $(PYTEST)

test-all: $(VENV)/.test  ## the rest: oracles at size, the page in a browser, the gallery
	$(BIN)/python -m pytest -m slow tests

fuzz: $(VENV)/.test  ## 20,000 drawn inputs: answered or refused, nothing else
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.fuzzing --tries 20000 --seed 0 --jobs $(JOBS)

# The seed is printed: make test-random SEED=… runs that order again.
SEED ?= $(shell date +%s)
test-random: $(VENV)/.test  ## the fast tests in another order each time
	OPENBLAS_NUM_THREADS=1 $(BIN)/python $(PYTEST) --shuffle=$(SEED)

# CORES="Haswell --numeric": the tests of the mathematics alone, with the kernels of one processor.
test-cores: $(VENV)/.test  ## the fast tests with the BLAS kernels of other processors
	$(BIN)/python tools/cores.py --jobs $(JOBS) $(CORES)

test-pythons:  ## the fast tests on each Python that is installed
	$(PYTHON) tools/pythons.py

test-elsewhere:  ## check, test and demo by a plain user whose checkout is read-only, far away
	$(PYTHON) tools/elsewhere.py

# Old packages call new ones that they depend on by names that have gone out of use since; that
# is no fault of ours, so such warnings are no errors here.
test-lowest: build/lowest/.made  ## the fast tests with the lowest versions that pyproject.toml allows
	OPENBLAS_NUM_THREADS=1 build/lowest/bin/python $(PYTEST) \
	  -W default::DeprecationWarning -W default::PendingDeprecationWarning

test-newest: build/newest/.made  ## the fast tests with the newest versions that pip finds
	OPENBLAS_NUM_THREADS=1 build/newest/bin/python $(PYTEST)

build/lowest/.made: pyproject.toml tools/lowest.py
	$(PYTHON) -m venv --clear build/lowest
	build/lowest/bin/python -m pip install --quiet --upgrade pip
	build/lowest/bin/python tools/lowest.py > build/lowest/constraints.txt
	build/lowest/bin/python -m pip install --quiet --constraint build/lowest/constraints.txt \
	  --editable ".[$(EXTRAS),peers]" --group test
	@touch $@

# Made anew each time: what is newest today is not tomorrow.
.PHONY: build/newest/.made
build/newest/.made:
	$(PYTHON) -m venv --clear build/newest
	build/newest/bin/python -m pip install --quiet --upgrade pip
	build/newest/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager \
	  --editable ".[$(EXTRAS),peers]" --group test

check: $(VENV)/.check  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs  ## the site in docs/_build/html; warnings are errors
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

paper: $(VENV)/.test  ## the paper's experiments, in experiments/paper/results; NAMES="uci curve" for some
	$(BIN)/python -m experiments.paper $(NAMES) -o experiments/paper/results

bench: $(VENV)/.test  ## ratios against peers, measured in one run
	$(BIN)/python -m benchmarks.speed

mutants: $(VENV)/.test  ## which changes of a line its tests do not notice; MODULES="solver.newton solver.path" for some
	$(BIN)/python tools/mutants.py --jobs $(JOBS) $(MODULES)

wheel-test: $(VENV)/.check  ## install wheel, sdist and each extra into empty environments, use them
	rm -rf build/wheel-test && mkdir -p build/wheel-test
	$(BIN)/python -m build --outdir build/wheel-test .
	$(BIN)/python tools/wheel_test.py build/wheel-test --jobs $(JOBS)

clean:
	rm -rf $(VENV) build dist demo docs/_build docs/gallery docs/api/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis
