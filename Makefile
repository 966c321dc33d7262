# Two commands do everything on a fresh machine (Python 3.11, pip, make, gcc): `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := install -qq --disable-pip-version-check
PIP := $(BIN)/pip $(INSTALL) -c constraints.txt
CODE := src tests benchmarks examples conftest.py .ci
SUITE := $(BIN)/python tests/suite.py
TOOLS := hypothesis pytest pytest-xdist pytest-timeout pytest-rerunfailures
# torch keeps compiled extensions, and the locks of those who compile, in a folder of the user's that all clones share;
# a compiler that was killed in another clone would be waited for here.
export TORCH_EXTENSIONS_DIR := $(CURDIR)/$(VENV)/torch_extensions

.PHONY: help setup demo quick test test-unit test-launch test-all test-lowest test-newest test-python test-sanitized kernels mutants ci check format lint types docs changelog bench bench-scale bench-table bench-check package clean

help:
	@echo "make demo       train on real text, crash, resume, find a planted fault and block it (at most two minutes)"
	@echo "make quick      format, lint, types, architecture and the quick tests: what to run before a commit (under 3 minutes)"
	@echo "make test       install everything and run the whole suite; every group runs, one summary at the end"
	@echo "make check      lint, types, docs and the tests, with one summary: what .ci/run runs"
	@echo "make test-all   everything, the long tests included"
	@echo "make test-lowest, make test-newest   the suite on the lowest and the newest versions that pyproject.toml allows"
	@echo "make test-python PYTHON=python3.13   what needs no torch, on another Python"
	@echo "make kernels    compile the kernels again, after a change of src/kernels; make test-sanitized watches their memory"
	@echo "make mutants    change the heart in one line, many times: each change is caught by the test named for it"
	@echo "make lint, types, docs, package      each installs only what it needs"
	@echo "make changelog  what the fragments in changelog.d will say"
	@echo "make bench      measure beside the peers, one JSON line a case; make bench-table renders it, make bench-check compares with the goals"
	@echo "make bench-scale  a ledger of 10 000 simulated ranks (about five minutes, 3 GB)"

$(VENV)/.made:
	@echo "» creating $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -U pip setuptools wheel
	@touch $@

# What the demo needs: the package, torch, the report's charts.
$(VENV)/.demo: $(VENV)/.made pyproject.toml constraints.txt
	@echo "» installing what the demo needs"
	@$(PIP) torch numpy
	@$(PIP) -e '.[torch,report,ui]'
	@$(BIN)/python -m compileall -q src/lading  # as pip does for a package: some machines forbid Python to write bytecode
	@touch $@

# Each of these installs what it uses: ruff; mypy and what its answers depend on; mkdocs; the builder; the changelog's.
$(VENV)/.lint: $(VENV)/.made constraints.txt
	@$(PIP) ruff
	@touch $@

$(VENV)/.types: $(VENV)/.made pyproject.toml constraints.txt
	@echo "» installing mypy and what its answers depend on"
	@$(PIP) mypy types-PyYAML torch numpy
	@$(PIP) -e '.[torch,jax,lightning,transformers,ui]'
	@touch $@

$(VENV)/.docs: $(VENV)/.made constraints.txt
	@$(PIP) mkdocs-material mkdocstrings-python ruff
	@touch $@

$(VENV)/.package: $(VENV)/.made constraints.txt
	@$(PIP) build hatchling setuptools
	@touch $@

$(VENV)/.changelog: $(VENV)/.made constraints.txt
	@$(PIP) towncrier
	@touch $@

# Everything, the optional frameworks included; in small groups, because one huge call can backtrack for minutes.
$(VENV)/.full: $(VENV)/.demo $(VENV)/.lint $(VENV)/.types $(VENV)/.docs $(VENV)/.package $(VENV)/.changelog
	@echo "» installing the test tools and the optional frameworks"
	@$(PIP) $(TOOLS) 'pyright[nodejs]' pandas polars
	@$(PIP) -e '.[torch,lightning,accelerate,jax,audio,hdf5,jasper,report,ui,tokens,sign,store,trace]'
	@$(PIP) datasets tensorboard grain orbax-checkpoint playwright kaleido
	@$(PIP) transformers trl 'ray[train,data]' wandb mlflow-skinny tokenizers zstandard
	@$(PIP) starlette uvicorn httpx jinja2 jsonargparse 'moto[s3,server]'
	@$(PIP) --no-deps torchdata==0.11.0 megatron-core
	@DS_BUILD_OPS=0 $(PIP) --no-build-isolation deepspeed
	@echo "» compiling DeepSpeed's CPU extension and Lading's kernels once"
	@$(BIN)/python benchmarks/warm_up.py
	@touch $@

# What the client in JavaScript needs; without npm its tests are skipped, and say so.
$(VENV)/js/.made: $(VENV)/.made clients/js/package-lock.json
	@mkdir -p $(VENV)/js && cp clients/js/package.json clients/js/package-lock.json $(VENV)/js
	@npm ci --prefix $(VENV)/js --silent --no-audit --no-fund && touch $@ || { rm -rf $(VENV)/js/node_modules; echo "» npm is missing or failed: the tests of clients/js will be skipped"; }

setup: $(VENV)/.full $(VENV)/js/.made

# mosaicml-streaming and litdata want torchvision and older packages: an environment of their own, for the tests of MDS and
# the benchmark of resuming.
.venv-mds/.made: constraints.txt
	@echo "» creating .venv-mds with mosaicml-streaming and litdata"
	@test -x .venv-mds/bin/python || $(PYTHON) -m venv .venv-mds
	@.venv-mds/bin/pip $(INSTALL) -c constraints.txt torch numpy tqdm brotli python-snappy zstd xxhash pillow catalogue lightning-utilities filelock boto3 requests urllib3 tifffile obstore
	@.venv-mds/bin/pip $(INSTALL) -c constraints.txt --no-deps mosaicml-streaming litdata==0.2.76
	@touch $@

demo: $(VENV)/.demo
	@$(BIN)/lading demo

# What to run before a commit: everything that is quick, few examples of each law.
QUICK := tests/identity tests/order tests/runtime tests/batch tests/source/tokens tests/source/stream tests/ledger/tracker tests/loader/torch

quick: setup lint types
	$(BIN)/python -m pytest -p no:cacheprovider -q tests/test_architecture.py
	HYPOTHESIS_PROFILE=brief $(BIN)/python -m pytest -p no:cacheprovider -q -n 2 --jax=without -m "not launch and not slow" $(QUICK)

test: setup
	@$(SUITE) unit jax launch

test-unit: setup
	@$(SUITE) unit jax

test-launch: setup
	@$(SUITE) launch

test-all: setup .venv-mds/.made
	@HYPOTHESIS_PROFILE=more $(SUITE) --slow unit jax launch

ci check: setup
	@$(SUITE) lint types docs unit jax launch

# Other versions, each in an environment of its own. What needs a framework that is not there is skipped, by name, and
# counted; torch is the one build of constraints.txt. Not installed here: deepspeed and trl, which choose their own torch
# and transformers.
OTHERS := torch,lightning,accelerate,transformers,jax,audio,hdf5,jasper,report,ui,tensorboard,wandb,tokens,ray,sign,store,trace

.venv-lowest/.made: pyproject.toml constraints.txt .ci/lowest.py
	@test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	@.venv-lowest/bin/pip $(INSTALL) -U pip setuptools wheel
	@$(PYTHON) .ci/lowest.py > .venv-lowest/lowest.txt
	@.venv-lowest/bin/pip $(INSTALL) -c .venv-lowest/lowest.txt $(TOOLS) pandas polars httpx 'moto[s3,server]' -e '.[$(OTHERS)]'
	@touch $@

.venv-newest/.made: pyproject.toml constraints.txt
	@test -x .venv-newest/bin/python || $(PYTHON) -m venv .venv-newest
	@.venv-newest/bin/pip $(INSTALL) -U pip setuptools wheel
	@grep ^torch== constraints.txt > .venv-newest/newest.txt
	@.venv-newest/bin/pip $(INSTALL) -U -c .venv-newest/newest.txt $(TOOLS) pandas polars httpx 'moto[s3,server]' -e '.[$(OTHERS)]'
	@touch $@

test-lowest: .venv-lowest/.made
	@.venv-lowest/bin/python tests/suite.py unit jax --missing=skip

test-newest: .venv-newest/.made
	@.venv-newest/bin/python tests/suite.py unit jax --missing=skip

# There is a torch for the Python of constraints.txt only: here everything that needs none, the NumPy and JAX faces included.
NAMED = .venv-$(notdir $(PYTHON))

test-python:
	@test -x $(NAMED)/bin/python || $(PYTHON) -m venv $(NAMED)
	@$(NAMED)/bin/pip $(INSTALL) -U pip setuptools wheel
	@$(NAMED)/bin/pip $(INSTALL) -U $(TOOLS) pandas polars httpx 'moto[s3,server]' -e '.[jax,hdf5,report,ui,tokens,sign,store,trace]'
	@$(NAMED)/bin/python tests/suite.py unit jax --missing=skip

# Kernels that watch their own memory: laws and fuzz of what they are given, without a framework, under both sanitizers.
SANITIZED := $(VENV)/sanitized
CAREFUL := LADING_COMPILED=sanitized PYTHONPATH=$(SANITIZED) PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 \
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)"

test-sanitized: $(VENV)/.package
	@rm -rf $(SANITIZED) && mkdir -p $(SANITIZED) && cp -r src/lading $(SANITIZED)/lading
	@LADING_COMPILED=sanitized $(BIN)/python hatch_build.py $(SANITIZED)/lading/_kernels.abi3.so
	@$(PIP) $(TOOLS) numpy pyarrow
	$(CAREFUL) HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -p no:cacheprovider -q --jax=without tests/runtime/test_compiled_fuzz.py
	$(CAREFUL) $(BIN)/python -m pytest -p no:cacheprovider -q -m "not slow" --jax=without tests/runtime/test_compiled.py \
		tests/runtime/test_compiled_fitting.py tests/ledger/test_packed.py \
		tests/order/packing tests/order/mixture/test_tree.py tests/identity tests/ledger/tracker

kernels: $(VENV)/.package  # after a change of src/kernels
	@$(BIN)/python hatch_build.py

mutants: setup
	@$(BIN)/python tests/mutants.py

format: $(VENV)/.lint
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

lint types docs: %: $(VENV)/.%
	@$(SUITE) $@

changelog: $(VENV)/.changelog
	$(BIN)/towncrier build --draft

bench: setup .venv-mds/.made
	$(BIN)/python -m benchmarks.run

bench-scale: setup
	$(BIN)/python -m benchmarks.bench_scale 1000 10000

bench-table: setup
	$(BIN)/python -m benchmarks.table

bench-check: setup
	$(BIN)/python -m benchmarks.check

package: $(VENV)/.package
	rm -rf dist
	$(BIN)/python -m build --no-isolation

clean:
	rm -rf $(VENV) dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis runs
