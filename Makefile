# The one place where commands are defined; README, CONTRIBUTING and .ci/run use these targets.
PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
       $(BIN)/python -m pip install --quiet

.DEFAULT_GOAL := help
.PHONY: help venv demo explore screenshots test test-slow test-clusters test-trackers test-browser test-kernels test-package test-floors test-faults hostile chromium lint types format docs pages check-pages record check-record fuzz mutants bench validation calibration clean test-adapters audit
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

venv: .venv/.dev ## make .venv with everything that tests and documentation need

demo: .venv/.core ## train the small example and write its report
	$(BIN)/unseam demo

explore: .venv/.explore ## look around the example's models in the browser, until Ctrl-C
	@test -f runs/demo/run.json || $(BIN)/unseam demo
	@test ! -f docs/pages/showcase.html || echo "A 64x64 model to look at without a server: $(CURDIR)/docs/pages/showcase.html"
	@$(BIN)/unseam explore runs/demo

test: .venv/.dev ## run tests and doctests, warnings as errors
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --benchmark-disable

test-slow: .venv/.dev ## run the tests that make test leaves out for their time
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --benchmark-disable -m "slow and not browser"

test-clusters: .venv/.dev ## run sweeps on a local Ray cluster, killing one of its nodes, and by submitit (minutes)
	$(PIP) -e '.[ray,slurm,search]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --benchmark-disable tests/clusters -m slow

test-trackers: | .venv/bin/python ## send histories to TensorBoard, MLflow and Weights & Biases themselves, and read them back
	rm -rf build/trackers && $(PYTHON) -m venv build/trackers
	PIP_CONSTRAINT=constraints.txt build/trackers/bin/python -m pip install --quiet -e . pytest pytest-benchmark hypothesis
	build/trackers/bin/python -m pip install --quiet tensorboard 'mlflow-skinny>=3' wandb
	build/trackers/bin/python -m pytest -m slow tests/training/test_tracker_libraries.py

test-browser: .venv/.browser chromium ## run the tests of pages in Chromium, which is installed where it is absent
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) tests/browser -m "browser and not slow"

test-kernels: .venv/kernels ## run the tests of the CUDA kernels on the host, by Triton's interpreter
	OMP_NUM_THREADS=1 TRITON_INTERPRET=1 PYTHONPATH=.venv/kernels $(BIN)/python -m pytest -n $(WORKERS) tests/training/test_kernels.py

test-adapters: | .venv/bin/python ## run the adapters on pythae, diffusers, scvi-tools, DRVI, Lightning and ONNX themselves, and on data of anndata and datasets (minutes)
	rm -rf build/adapters && $(PYTHON) -m venv build/adapters
	PIP_CONSTRAINT=constraints.txt build/adapters/bin/python -m pip install --quiet -e . diffusers lightning scvi-tools datasets onnx onnxruntime onnxscript cloudpickle
	build/adapters/bin/python -m pip install --quiet --no-deps pythae drvi-py
	build/adapters/bin/python tools/adapters.py
	build/adapters/bin/python tools/own_data.py

test-package: .venv/.dev ## build wheel and sdist, install each into an empty environment and use it there (minutes)
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	for kind in whl tar.gz; do \
	  rm -rf build/package && $(PYTHON) -m venv build/package && \
	  PIP_CONSTRAINT=constraints.txt build/package/bin/python -m pip install --quiet dist/*.$$kind && \
	  (cd build && package/bin/python ../tools/installed.py) || exit 1; \
	done

test-floors: | .venv/bin/python ## run the tests of the library with the lowest versions that pyproject.toml allows (torch's apart)
	rm -rf build/floors && $(PYTHON) -m venv build/floors
	$(BIN)/python tools/floors.py > build/floors/constraints.txt
	PIP_CONSTRAINT=build/floors/constraints.txt build/floors/bin/python -m pip install --quiet -e '.[explore]' pytest pytest-benchmark hypothesis pytest-xdist
	OMP_NUM_THREADS=1 build/floors/bin/python -m pytest -n $(WORKERS) --benchmark-disable -W default $(FLOORS)

test-faults: .venv/.dev ## break trainings by kills, full disks and second writers (FAULTS="--points 0 --kills 100" for hours)
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore tools/faults.py $(FAULTS)

hostile: .venv/.dev ## open damaged and hostile files, and count those that are not refused with one line
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore tools/hostile.py $(HOSTILE)

screenshots: .venv/.browser chromium ## retake the pictures of the documentation, of the example's report and explorer
	$(BIN)/unseam demo
	$(BIN)/python tools/screenshots.py runs/demo

chromium:
	@command -v chromium >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium; \
	  else \
	    echo "tests and pictures of pages need Chromium as the command 'chromium'; on Debian: sudo apt-get install chromium" >&2; \
	    exit 1; \
	  fi; }

lint: .venv/.dev types ## check style, format, types and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: .venv/.dev ## check types
	$(BIN)/mypy

format: .venv/.dev ## rewrite the code in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.dev ## build the documentation, warnings as errors
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

pages: .venv/.dev ## write outcome tables and figures of the papers from the committed results
	$(BIN)/python tools/pages.py

check-pages: .venv/.dev ## fail where these are not what the committed results give
	$(BIN)/python tools/pages.py --check

record: .venv/.dev ## write down what every command prints as JSON on a few fixed runs, after a change that is meant to change it
	$(BIN)/python tools/record.py

check-record: .venv/.dev ## fail where the commands print something else than that
	$(BIN)/python tools/record.py --check

mutants: .venv/.mutants ## change the code in 300 places, one at a time, and count how many changes the tests notice (an hour)
	$(BIN)/python tools/mutants.py $(MUTANTS)

audit: .venv/audit ## look up known vulnerabilities of the pinned and of the lowest allowed versions (needs the network)
	$(BIN)/python tools/audit.py .venv/audit/bin/pip-audit

fuzz: .venv/.dev ## call every public numeric function with what users may pass; FUZZ="--seconds 600" for longer
	OMP_NUM_THREADS=1 $(BIN)/python tools/fuzz.py $(FUZZ)

bench: .venv/.core ## measure speed (minutes to hours, by hardware)
	$(BIN)/python -m benchmarks

validation: .venv/.core ## score synthetic encoders by every metric: the grid in the documentation
	$(BIN)/python -m benchmarks.validation

calibration: .venv/.core ## count how often the tests of independence reject (an hour, less with more cores)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.calibration

clean: ## remove everything that make has made
	rm -rf .venv build dist docs/_build docs/api/generated docs/jupyter_execute .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests docs -name __pycache__ -type d -prune -exec rm -rf {} +

# Stages of one environment: .core runs the package, .explore its explorer, .dev checks and documents it, .browser drives
# its pages.
.venv/.core: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e .
	@touch $@

.venv/.explore: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e '.[explore]'
	@touch .venv/.core $@

.venv/.dev: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e '.[test,docs,explore]'
	@touch .venv/.core .venv/.explore $@

.venv/.browser: .venv/.dev
	$(PIP) -e '.[browser]'
	@touch $@

# beside the environment, since torch would try to compile with it
.venv/kernels: constraints.txt | .venv/.dev
	$(PIP) --no-deps --upgrade --target $@ triton
	@touch $@

# in an environment of its own, so that it is always the newest
.venv/audit: constraints.txt | .venv/bin/python
	$(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	@touch $@

.venv/.mutants: .venv/.dev
	$(PIP) -e '.[mutants]'
	@touch $@

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "unseam needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1);" \
	       "name another one, for example: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv .venv
