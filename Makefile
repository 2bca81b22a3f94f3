# What one does with a checkout. `make` lists it.
#
# Each target installs what it needs into VENV first, and only when the requirements changed. A machine needs
# Python 3.11 or newer and make; scripts/venv.sh says what else is missing, if anything.

VENV ?= .venv
PY = $(VENV)/bin/python
# This checkout goes first, also where the environment is another worktree's.
export PYTHONPATH = .:spark:admin
# Without files of bytecode each worker would compile all tests, and each broker itself: a minute and more of each run.
unexport PYTHONDONTWRITEBYTECODE

# Tests wait for the disk and for processes a third of their time: three at a time keep two cores busy. The pipeline's
# compute all the time, and each has a JVM.
WORKERS ?= 3
SPARK_WORKERS ?= 2
# Arguments for the program behind a target: make run ARGS='--port 5673', make test ARGS='-k topic'.
ARGS ?=

# What exists compiled and plain, and is tested as both. Tests that only the plain kernel can run are in these folders too.
CORE = $(addprefix tests/,audit connection exchanges kernel flow message methods model node publishing queues session wire transport/test_link.py)
# Whole brokers, other programs, JVMs and measurements: not what coverage is measured with.
LARGE = admin audit_proof clients cost faults model spark spark_cluster stalls suites
UNITS = $(filter-out $(addprefix tests/,$(addsuffix /,$(LARGE))),$(wildcard tests/*/)) $(wildcard tests/test_*.py)

# Some ten seconds of the suite, and what is most of quorum queues.
CLUSTERED = $(addprefix conformance/test_,basic_publish.py basic_consume.py ext_quorum.py ext_dead_letter.py)
# And of classic queues: what they are, and when they end, is decided by one node, and seen by the others.
CLUSTERED_CLASSIC = $(addprefix conformance/test_,queue.py ext_redeclare.py ext_single_active.py ext_dead_letter.py)

RUN_STAMP = $(VENV)/.installed-run
DEV_STAMP = $(VENV)/.installed-dev
DOCS_STAMP = $(VENV)/.installed-docs

.DEFAULT_GOAL := help
.PHONY: help run cluster build quick test test-spark spark-cluster audit-proof test-heavy coverage lint format site bench perf-test conformance client-suites cost stall-search simulate simulate-remote stalls damage crashes cluster-rounds cluster-starts takeover-times upgrade rolling-restart sanitize clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

run: build ## run a broker on this machine, port 5672 (ARGS: flags of amqpd serve)
	@exec $(PY) -m amqpd serve $(ARGS)

cluster: build ## run three nodes and etcd on this machine until Ctrl-C (ARGS: its own; ARGS=--help lists them)
	@exec $(PY) scripts/cluster.py $(ARGS)

build: $(RUN_STAMP) ## compile what is faster compiled, if there is a C compiler (run, test and bench do it)
	@sh scripts/build.sh $(PY)

quick: $(DEV_STAMP) ## check style, types, and the tests of what changed, within a minute (ARGS: arguments of pytest)
	@$(PY) scripts/quick.py $(ARGS)

# Without what is marked slow: `test-heavy` runs that of tests/, `conformance` that of the conformance suite.
# By worksteal: tests take from a millisecond to a minute. Shared out in advance, 3,836 s of them took three workers
# 1,608 s, of which 1,280 are the least. Neighbours stay together at first, so a file's fixtures are made once or twice.
test: $(DEV_STAMP) build ## run the tests and the conformance suite, without what is slow (ARGS: arguments of pytest)
	$(PY) -m pytest -q -rs -n $(WORKERS) --dist worksteal -m 'not slow' --ignore=tests/spark --ignore=tests/spark_cluster $(ARGS)
	@# And the core on the plain kernel, if what ran above was compiled; half of what is drawn.
	@if [ -z '$(ARGS)$(AMQPD_KERNEL)' ] && [ "$$($(PY) -c 'import amqpd; print(amqpd.KERNEL)')" = cython ]; then \
	    echo "the core again, on the plain kernel"; AMQPD_KERNEL=python AMQPD_TEST_EXAMPLES=10 AMQPD_MODEL_STEPS=3500 \
	        $(PY) -m pytest -q -rs -n $(WORKERS) --dist worksteal -m 'not slow' $(CORE); fi
	@# What quorum queues answer where they are replicated: a part of `make conformance CLUSTER=3`; then classic queues.
	@if [ -z '$(ARGS)' ]; then AMQPD_TEST_CLUSTER=3 $(PY) -m pytest -q -rs -n 0 -m 'not slow' $(CLUSTERED); fi
	@if [ -z '$(ARGS)' ]; then AMQPD_TEST_CLUSTER=3 AMQPD_TEST_QUEUE_TYPE=classic \
	    $(PY) -m pytest -q -rs -n 0 -m 'not slow' $(CLUSTERED_CLASSIC); fi
	@if [ -z '$(ARGS)' ]; then $(MAKE) --no-print-directory test-spark ARGS="-m 'not slow'"; fi

# A worker is a JVM of its own; a file's tests share it.
test-spark: $(DEV_STAMP) ## run the tests of the pipeline on a local Spark (ARGS: arguments of pytest)
	$(PY) -m pytest -q -n $(SPARK_WORKERS) --dist loadfile tests/spark $(ARGS)

spark-cluster: $(DEV_STAMP) ## run jobs on a standalone Spark of two workers, kill one of them (minutes; 4 GB)
	$(PY) -m pytest -q -s -n 0 -o faulthandler_timeout=0 tests/spark_cluster $(ARGS)

# A real broker, real clients, real jobs: the promises of docs/audit.md.
audit-proof: $(DEV_STAMP) build ## prove the audit log on two million messages, with kills (some 20 minutes; strace)
	AMQPD_HEAVY=1 $(PY) -m pytest -q -s -p no:cacheprovider -o faulthandler_timeout=0 tests/audit_proof tests/faults/test_audit_kill.py $(ARGS)

# All of tests/ that `test` leaves out, but for tests/spark (`test-spark`) and tests/spark_cluster (`spark-cluster`): what
# is heavy, what is slow, and more examples of what is drawn (20, where a test names no number). What measures a broker
# (stalls, cost) has the machine for itself.
test-heavy: $(DEV_STAMP) build ## run what `make test` leaves out: kills, a large backlog, fuzzing (long; 3 GB of disk)
	AMQPD_HEAVY=1 $(PY) -m pytest -q -s -m heavy $(ARGS)
	$(PY) -m pytest -q -rs -n $(WORKERS) --dist worksteal -m slow $(addprefix --ignore=tests/,spark spark_cluster stalls cost) tests
	$(PY) -m pytest -q -rs -n 0 -m slow tests/stalls tests/cost
	@if [ -z '$(AMQPD_KERNEL)' ]; then AMQPD_KERNEL=python $(PY) -m pytest -q -rs -n $(WORKERS) -m slow $(CORE); fi
	AMQPD_TEST_EXAMPLES=120 $(PY) -m pytest -q -n $(WORKERS) --dist worksteal -m hypothesis $(addprefix --ignore=tests/,spark admin bench) tests
	@if [ -z '$(AMQPD_KERNEL)' ]; then AMQPD_KERNEL=python AMQPD_TEST_EXAMPLES=120 $(PY) -m pytest -q -n $(WORKERS) -m hypothesis $(CORE); fi
	AMQPD_MODEL_STEPS=500000 AMQPD_MODEL_SEED=$$(date +%s) $(PY) -m pytest -q -n $(WORKERS) -o timeout=1200 tests/model/test_model.py
	AMQPD_FUZZ_STREAMS=100000 $(PY) -m pytest -q -s -o timeout=3600 -o faulthandler_timeout=0 tests/connection/test_fuzz.py

coverage: $(DEV_STAMP) ## which lines of amqpd/ the unit tests run, on the plain kernel (pages in htmlcov/; minutes)
	AMQPD_KERNEL=python $(PY) -m pytest -q -n $(WORKERS) -m 'not slow' --cov --cov-report=term --cov-report=html $(UNITS) $(ARGS)

lint: $(DEV_STAMP) ## check style and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: $(DEV_STAMP) ## write the style that lint checks
	$(PY) -m ruff check --fix-only --quiet .
	$(PY) -m ruff format .

# A warning is an error: a link that leads nowhere, a page that is in no contents.
site: $(DOCS_STAMP) ## build the documentation site (build/site/html/index.html; ARGS: arguments of sphinx)
	$(PY) -m scripts.site_source build/site/source
	$(PY) -m sphinx -q -W --keep-going -j auto -b html -d build/site/doctrees build/site/source build/site/html $(ARGS)
	@echo "open build/site/html/index.html"

bench: $(DEV_STAMP) build ## measure amqpd and Debian's RabbitMQ side by side (ARGS: python -m bench --help)
	@mkdir -p bench/results
	$(PY) -m bench --amqpd --rabbitmq --json bench/results/latest.json $(ARGS)

# PerfTest comes from the local Maven repository, or through Maven as it is set up on this machine.
perf-test: $(DEV_STAMP) build ## let RabbitMQ's PerfTest (Java, Maven) measure amqpd and RabbitMQ (ARGS: python -m bench.perf_test --help)
	@mkdir -p bench/results
	$(PY) -m bench.perf_test --amqpd --rabbitmq --json bench/results/perf-test.json $(ARGS)

stall-search: $(DEV_STAMP) build ## draw loads that one client can make and look how long others wait (SECONDS, SEED)
	$(PY) -m tests.stalls.search --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

simulate: $(DEV_STAMP) ## run forwarders in simulated clusters with faults, from seeds, on all cores (SEEDS, FIRST, DISK=sqlite)
	AMQPD_KERNEL=python $(PY) -m tests.replication.simulation --seeds $(or $(SEEDS),10000) --first $(or $(FIRST),0) --disk $(or $(DISK),memory) $(ARGS)

simulate-remote: $(DEV_STAMP) ## run both ends of remote queues with faults, from seeds (SEEDS, 1,000; FIRST)
	AMQPD_KERNEL=python $(PY) -m tests.remote.simulation --seeds $(or $(SEEDS),1000) --first $(or $(FIRST),0) $(ARGS)

stalls: $(DEV_STAMP) build ## how long the known loads keep other clients waiting
	$(PY) -m tests.stalls.measure $(ARGS)

damage: $(DEV_STAMP) build ## damage data directories and judge what a broker makes of them (ROUNDS, SEED)
	$(PY) -m tests.faults.damage $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

crashes: $(DEV_STAMP) build ## crash a broker under load, and count what is lost (KIND=kill|power|eio|enospc|full|all, ROUNDS of each, SEED)
	$(PY) -m tests.faults.crashes --kind $(or $(KIND),all) --rounds $(or $(ROUNDS),100) $(if $(SEED),--seed $(SEED)) $(ARGS)

# Each forwarder on a machine of its own (network namespaces: root), three etcds, disks whose power is cut.
cluster-rounds: $(DEV_STAMP) build ## make faults in a cluster under load, and judge (ROUNDS, 100; NODES, 3; SEED)
	AMQPD_HEAVY=1 AMQPD_FAULT_ROUNDS='$(ROUNDS)' AMQPD_TEST_NODES='$(NODES)' AMQPD_FAULT_SEED='$(SEED)' \
	    $(PY) -m pytest -q -s -rs -m heavy -o faulthandler_timeout=0 tests/faults/test_cluster_network.py $(ARGS)

cluster-starts: $(DEV_STAMP) build ## kill and pause nodes of a cluster while they start, stall etcd, and judge (STARTS, 200; SEED)
	$(PY) -m tests.faults.cluster_starts --starts $(or $(STARTS),200) $(if $(SEED),--seed $(SEED)) $(ARGS)

takeover-times: $(DEV_STAMP) build ## how long a lost leader is not served, beside RabbitMQ (ROUNDS, 20; FAULT=kill, stop or cut)
	$(PY) -m tests.faults.takeover_times --rounds $(or $(ROUNDS),20) --fault $(or $(FAULT),kill) $(ARGS)

# BEFORE: a checkout of another version, with `make build` run in it.
upgrade: $(DEV_STAMP) build ## open what another version wrote, and count what comes out (BEFORE=checkout, MESSAGES)
	$(PY) -m tests.faults.upgrade $(if $(BEFORE),--before '$(BEFORE)') --messages $(or $(MESSAGES),2000000) $(ARGS)

rolling-restart: $(DEV_STAMP) build ## restart three nodes of another version in this one, under load (BEFORE=checkout; ARGS=--back)
	$(PY) -m tests.faults.upgrade.rolling --before '$(BEFORE)' $(ARGS)

# One broker is asked: the one at URL, or a private one that is started, amqpd or Debian's RabbitMQ (BROKER=rabbitmq).
# CLUSTER: each file asks one of so many forwarders, drawn from SEED, or each connection does (ANY_NODE=1); queues are
# quorum queues, or of the type that QUEUES says. A worker has its own cluster.
conformance: $(DEV_STAMP) build ## run the conformance suite (URL=amqp://..., BROKER=rabbitmq for another broker; CLUSTER=3, SEED, ANY_NODE=1; QUEUES=classic)
	AMQPD_TEST_URL='$(URL)' AMQPD_TEST_BROKER='$(BROKER)' AMQPD_TEST_CLUSTER='$(CLUSTER)' AMQPD_TEST_CLUSTER_SEED='$(SEED)' \
	    AMQPD_TEST_QUEUE_TYPE='$(QUEUES)' AMQPD_TEST_ANY_NODE='$(ANY_NODE)' \
	    $(PY) -m pytest -q -n $(if $(CLUSTER),1,$(WORKERS)) -rxs conformance $(ARGS)

# SUITE: a name that tests/suites/catalogue.py knows; CHECKOUT: its repository; SUITE_PYTHON: of its own environment.
client-suites: $(DEV_STAMP) build ## run a client's own test suite on RabbitMQ and amqpd (SUITE=pika CHECKOUT=folder SUITE_PYTHON=...)
	$(PY) -m tests.suites '$(SUITE)' '$(CHECKOUT)' $(if $(SUITE_PYTHON),--python '$(SUITE_PYTHON)') $(ARGS)

cost: $(DEV_STAMP) build ## count what a message costs, beside the bounds (ARGS: names of loads, --quick, --where)
	$(PY) -m tests.cost.measure $(ARGS)

sanitize: $(DEV_STAMP) ## run the compiled kernel under gcc's sanitizers, with the fuzz corpus (gcc with libasan)
	sh scripts/sanitize.sh $(PY)

clean: ## remove what was built and cached; never data
	rm -rf build dist amqpd/_compiled *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
	if [ ! -L $(VENV) ]; then rm -rf $(VENV); fi

$(RUN_STAMP): pyproject.toml constraints.txt scripts/venv.sh
	@sh scripts/venv.sh $(VENV) build,etcd

$(DOCS_STAMP): pyproject.toml constraints.txt scripts/venv.sh
	@sh scripts/venv.sh $(VENV) docs

$(DEV_STAMP): pyproject.toml spark/pyproject.toml constraints.txt scripts/venv.sh
	@sh scripts/venv.sh $(VENV) dev
