# Two commands do everything on a fresh machine (Python 3.11, pip, make, gcc): `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt
PYTEST := $(BIN)/python -m pytest -p no:cacheprovider

.PHONY: help setup demo quick test test-unit test-launch test-all check format lint types bench bench-scale bench-table bench-check docs package clean

help:
	@echo "make demo       train on real text, crash, resume, and answer what was in it (about two minutes)"
	@echo "make quick      format, lint, types, architecture and the quick tests: what to run before a commit (under 3 minutes)"
	@echo "make test       install everything and run the whole suite"
	@echo "make check      format, lint, types, then the tests"
	@echo "make bench      measure beside the peers, one JSON line a case; make bench-table renders it, make bench-check compares with the goals"
	@echo "make bench-scale  a ledger of 10 000 simulated ranks (about five minutes, 3 GB)"
	@echo "make docs       build the documentation"
	@echo "make test-all   everything, the long tests included"

# What the demo needs: the package, torch, the report's charts.
$(VENV)/.demo: pyproject.toml constraints.txt
	@echo "» creating $(VENV) with what the demo needs"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -U pip setuptools wheel
	@$(PIP) torch numpy
	@$(PIP) -e '.[torch,report,ui,fast]'
	@$(BIN)/python -m compileall -q src/lading  # as pip does for a package: some machines forbid Python to write bytecode
	@touch $@

# Everything, the optional frameworks included; in small groups, because one huge call can backtrack for minutes.
$(VENV)/.full: $(VENV)/.demo
	@echo "» installing the test tools and the optional frameworks"
	@$(PIP) hypothesis pytest pytest-xdist pytest-timeout pytest-rerunfailures ruff mypy 'pyright[nodejs]' types-PyYAML pandas polars build hatchling
	@$(PIP) -e '.[torch,lightning,accelerate,jax,audio,hdf5,jasper,report,ui,tokens,fast]'
	@$(PIP) datasets tensorboard grain orbax-checkpoint playwright kaleido mkdocs-material mkdocstrings-python
	@$(PIP) transformers trl 'ray[train,data]' wandb tokenizers zstandard
	@$(PIP) starlette uvicorn httpx jinja2 jsonargparse obstore 'moto[s3,server]'
	@$(PIP) --no-deps torchdata==0.11.0 megatron-core
	@DS_BUILD_OPS=0 $(PIP) --no-build-isolation deepspeed
	@echo "» compiling DeepSpeed's CPU extension and Lading's kernels once"
	@$(BIN)/python benchmarks/warm_up.py
	@touch $@

setup: $(VENV)/.full

# mosaicml-streaming and litdata want torchvision and older packages: an environment of their own, for the tests of MDS and
# the benchmark of resuming.
.venv-mds/.made: constraints.txt
	@echo "» creating .venv-mds with mosaicml-streaming and litdata"
	@test -x .venv-mds/bin/python || $(PYTHON) -m venv .venv-mds
	@.venv-mds/bin/pip install -qq --disable-pip-version-check -c constraints.txt torch numpy tqdm brotli python-snappy zstd xxhash pillow catalogue lightning-utilities filelock boto3 requests urllib3 tifffile obstore
	@.venv-mds/bin/pip install -qq --disable-pip-version-check -c constraints.txt --no-deps mosaicml-streaming litdata==0.2.76
	@touch $@

demo: $(VENV)/.demo
	@$(BIN)/lading demo

# What to run before a commit: everything that is quick, few examples of each law.
QUICK := tests/identity tests/order tests/runtime tests/batch tests/source/tokens tests/source/stream tests/ledger/tracker tests/loader/torch

quick: lint types
	$(PYTEST) -q tests/test_architecture.py
	HYPOTHESIS_PROFILE=brief $(PYTEST) -q -n 2 --jax=without -m "not launch and not slow" $(QUICK)

test: setup test-unit test-launch

# JAX runs threads and torch's workers fork: files about JAX get processes of their own (see conftest.py).
UNIT := --durations=20 --doctest-modules tests src/lading

test-unit: setup
	$(PYTEST) -n 2 --jax=without -m "not launch and not slow" $(UNIT)
	$(PYTEST) -n 2 --jax=only -m "not launch and not slow" $(UNIT)

# torch 2.13 with gloo now and then aborts a process while it exits, after all its work, with or without Lading
# (plain DDP: 1 of 56 runs of two processes). A launch is tried again only if a process of it ended by an abort.
EXIT_ABORT := --reruns 2 --only-rerun "terminate called without an active exception" --only-rerun "exitcode *: -6" --only-rerun "return code = -6"

test-launch: setup
	$(PYTEST) -m "launch and not slow" $(EXIT_ABORT) --durations=20 tests

test-all: setup .venv-mds/.made
	$(PYTEST) -n 2 --jax=without -m "not launch" $(UNIT)
	$(PYTEST) -n 2 --jax=only -m "not launch" $(UNIT)
	$(PYTEST) -m launch $(EXIT_ABORT) --durations=20 tests

check: setup lint types test

format: setup
	$(BIN)/ruff format src tests benchmarks examples
	$(BIN)/ruff check --fix src tests benchmarks examples

lint: setup
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/ruff check src tests benchmarks examples

types: setup
	$(BIN)/mypy

bench: setup .venv-mds/.made
	$(BIN)/python -m benchmarks.run

bench-scale: setup
	$(BIN)/python -m benchmarks.bench_scale 1000 10000

bench-table: setup
	$(BIN)/python -m benchmarks.table

bench-check: setup
	$(BIN)/python -m benchmarks.check

docs: setup
	$(BIN)/mkdocs build --strict

package: setup
	rm -rf dist
	$(BIN)/python -m build --no-isolation

clean:
	rm -rf $(VENV) dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis runs
