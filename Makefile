# Everything a fresh machine needs: Python >= 3.10 and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WHEELS_FOR ?= 3.14
# How many tests run at once; JOBS=0 runs them in one process, as a debugger needs it.
JOBS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

.PHONY: help install demo test test-core conformance-triton check-wheels soak lint format bench proto lock

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# The environment is made anew when the lock or the project file has changed.
$(VENV)/.installed: dev.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r dev.lock hatchling editables
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

install: $(VENV)/.installed ## make the environment

demo: install ## serve the example models and run real inferences
	$(BIN)/python examples/demo.py

test: install ## run all tests but the long ones
	$(PYTEST) -m "not soak and not gpu and not triton" $(PYTEST_ARGS)

test-core: install ## run the tests that every supported Python must pass
	$(PYTEST) -m "not soak and not gpu and not triton" tests/unit tests/contracts tests/integration $(PYTEST_ARGS)

conformance-triton: install ## put the same requests to the real C++ Triton and compare (fetches it once, 1 GB)
	NAIAD_REQUIRE_PROGRAMS=1 $(BIN)/python -m pytest -m triton tests/conformance/triton $(PYTEST_ARGS)

check-wheels: install ## see that every locked package has a wheel for Python 3.14 (WHEELS_FOR=), installing nothing
	$(BIN)/uv pip install --dry-run --python-version $(WHEELS_FOR) --only-binary :all: --no-deps \
		--target $(VENV)/wheels-$(WHEELS_FOR) -r dev.lock

soak: install ## run the long tests
	$(BIN)/python -m pytest -m soak $(PYTEST_ARGS)

lint: install ## format check, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	MYPYPATH=src:. $(BIN)/mypy -p bench
	$(BIN)/lint-imports

format: install ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install ## measure against the real C++ Triton and write a table to bench/results
	$(BIN)/python -m bench

proto: install ## compile proto/ into the descriptor set in the package
	$(BIN)/python scripts/compile_proto.py

lock: install ## resolve dev.lock again
	$(BIN)/uv pip compile --quiet --universal --fork-strategy requires-python --python-version 3.10 --no-annotate --no-header \
		--group dev --extra onnx pyproject.toml -o dev.lock
