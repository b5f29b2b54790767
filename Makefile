# Every command that this project has. `make` alone prints them; docs/HACKING.md says when to use which.

VENV   := .venv
PYTHON := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
JAVA   := . tools/java.sh
ARGS   ?=
# Tests and benchmarks start nodes by the hundred: each loads compiled files, as it does where pip installed it.
unexport PYTHONDONTWRITEBYTECODE
# Test files at once. Most tests wait, for brokers, clients and time: two and a half for each of two processors.
JOBS   ?= 5
MINUTES ?= 60
RATE   ?= 5800
# What `make check` is made of, the longest first.
CHECKS := check-types check-tidy check-layers check-lint
# What `make test` has before its workers start: packages of Debian; and each worker would compile all test modules, each
# JVM load Spark's classes.
READY  := ready-packages ready-modules ready-classes
# What `make check` has just run.
CHECKED := --ignore=tests/test_tidy.py --ignore=tests/test_words.py
# What `make test` gives the fuzzers of each of the five kinds of input: kept inputs and some more; `make test-all`: 20.
FUZZ_SECONDS ?= 2

.DEFAULT_GOAL := help
.PHONY: $(CHECKS) $(READY) checked-and-ready help setup demo big-state unit test test-slow test-all check format docs pictures manifests site generate golden bench bench-log bench-spark bench-groups bench-link bench-security bench-validation bench-cluster interop measures soak sim sim-nightly sim-bugs sim-coverage fuzz mutants chaos lock clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements/dev.txt requirements/kerberos.txt pyproject.toml
	@tools/venv.sh $(VENV)
	@touch $(STAMP)

setup: $(STAMP) ## Make .venv with the locked packages (every other target does it by itself)

demo: $(STAMP) ## Three nodes, 336,776 real flights through PySpark, kill -9 of a leader, the proof (ARGS=--keep)
	@$(JAVA) && $(PYTHON) -m examples.flights $(ARGS)

big-state: $(STAMP) ## A query with a million keys killed: how long until it is live, restarted and with a standby (KEYS=1000000)
	@$(JAVA) && $(PYTHON) -m examples.bigstate --keys $(or $(KEYS),1000000)
	@$(JAVA) && $(PYTHON) -m examples.bigstate --keys $(or $(KEYS),1000000) --standby

unit: $(STAMP) ## The tests between two edits, without a wait, a socket or a process (ARGS="-k NAME")
	@$(PYTHON) -m pytest -q -m "not slow" -n 2 --dist worksteal tests/unit tests/scenarios/test_scenario_files.py $(ARGS)

test: checked-and-ready ## What CI runs (JOBS=5 test files at once, FUZZ_SECONDS=2 of fuzzing for each kind of input, PACKAGES=no: root installs none)
	@$(JAVA) && FUZZ_SECONDS=$(FUZZ_SECONDS) $(PYTHON) -m pytest -m "not slow" -n $(JOBS) --dist loadfile --no-loadscope-reorder $(CHECKED) $(ARGS)

test-slow: ready-packages ## The tests that `make test` leaves out: more seeds, whole suites of other projects, kills of Spark
	@$(JAVA) && $(PYTHON) -m pytest -m slow $(ARGS)

test-all: checked-and-ready ## Every test, before an issue is called resolved (hours)
	@$(JAVA) && FUZZ_SECONDS=20 $(PYTHON) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(CHECKED) $(ARGS)

AT_ONCE = $(MAKE) --no-print-directory -k -j $(if $(filter output-sync,$(.FEATURES)),-O)

check: $(STAMP) ## Fast checks, all at once: format, lint, types, layering, tidiness
	@$(AT_ONCE) $(CHECKS)

checked-and-ready: $(STAMP)
	@$(AT_ONCE) $(CHECKS) $(READY)

# Where no test module is newer than at the last time, nor the packages, they are compiled.
ready-modules: $(STAMP)
	-@[ -z "$$(find $(STAMP) tests \( -name '*.py' -o -name .installed \) -newer .cache/modules 2>&1 | head -n 1)" ] || { \
		mkdir -p .cache && touch .cache/modules.begun && \
		$(PYTHON) -m pytest --collect-only -qq -p no:cacheprovider > /dev/null && mv .cache/modules.begun .cache/modules; }

ready-packages: $(STAMP)
	-@VENV=$(VENV) tools/packages.sh && tools/kerberos.sh $(VENV) --if-missing

# Java may be among the packages, and two calls of apt-get would be in each other's way.
ready-classes: ready-packages
	-@$(JAVA) && $(PYTHON) -m tests.spark.jvm

check-types:
	@$(VENV)/bin/mypy

check-layers:
	@$(VENV)/bin/lint-imports --no-logo

check-tidy:
	@$(PYTHON) -m pytest -q tests/test_tidy.py tests/test_words.py

check-lint:
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .

format: $(STAMP) ## Format, and apply the linter's fixes
	@$(VENV)/bin/ruff format .
	@$(VENV)/bin/ruff check --fix .

docs: $(STAMP) ## Generate the pages of docs/ again
	@$(PYTHON) -m tools.generate_docs
	@$(PYTHON) -m tools.figures

pictures: ready-packages ## Take the pictures of docs/console.md again, in a journey through the console (Chromium)
	@mkdir -p docs/pictures .cache && touch .cache/pictures-begun
	@CONSOLE_PICTURES=$(CURDIR)/docs/pictures $(PYTHON) -m pytest -q tests/integration/test_console_browser.py
	@[ -n "$$(find docs/pictures -name '*.png' -newer .cache/pictures-begun)" ] || \
		{ echo "no picture was taken: what pytest skipped says why" >&2; exit 1; }

site: $(STAMP) ## The documentation as a site in build/site/html, with search; a broken link is an error
	@[ -x .cache/site/bin/zensical ] || { $(PYTHON) -m venv .cache/site && \
		.cache/site/bin/pip install -q --disable-pip-version-check --require-hashes -r requirements/site.txt; }
	@$(PYTHON) -m tools.site_pages .cache/site/bin

manifests: $(STAMP) ## Render deploy/kubernetes from the chart of deploy/helm (builds Helm with Go where it is missing)
	@$(PYTHON) -m tools.render_manifests

generate: $(STAMP) ## Generate protocol/messages again from Kafka's definitions and show what changed (needs Maven)
	@$(PYTHON) -m tools.generate_messages
	@git diff --stat -- src/odradek/protocol/messages

golden: $(STAMP) ## Generate the golden bytes of the protocol tests again with Kafka's own classes (needs Maven)
	@$(JAVA) && $(PYTHON) -m tools.golden_java

bench: $(STAMP) ## Compare with Apache Kafka on this machine (needs Maven; ARGS=--quick for a first look)
	@$(JAVA) && $(PYTHON) -m bench $(ARGS)

bench-spark: $(STAMP) ## Spark's own Kafka connector and ours, in turns, on the same brokers (ARGS="--brokers kafka")
	@$(JAVA) && $(PYTHON) -m bench.spark_connectors $(ARGS)

bench-log: $(STAMP) ## The log beside Apache Kafka's on the same files (needs Maven; ARGS=--quick for a first look)
	@$(JAVA) && $(PYTHON) -m bench.log_bench $(ARGS)

bench-groups: $(STAMP) ## Groups and transactions beside Apache Kafka's (needs Maven; ARGS=--quick for a first look)
	@$(JAVA) && $(PYTHON) -m bench.groups_bench $(ARGS)

bench-link: $(STAMP) ## A link beside MirrorMaker 2, between the same two nodes (needs Maven; ARGS=--quick for a first look)
	@$(JAVA) && $(PYTHON) -m bench.link_bench $(ARGS)

bench-security: $(STAMP) ## The cost of authorizer, quotas, metrics and TLS (needs Maven; ARGS=--quick for a first look)
	@$(JAVA) && $(PYTHON) -m bench.security_bench $(ARGS)

bench-validation: $(STAMP) ## The cost of validating every produced record (ARGS="--seconds 0.5" for a first look)
	@$(PYTHON) -m bench.validation $(ARGS)

bench-cluster: $(STAMP) ## Three nodes beside three of Apache Kafka: throughput, failover, catching up (needs Maven; ARGS=--quick)
	@$(JAVA) && $(PYTHON) -m bench.cluster_bench $(ARGS)

soak: $(STAMP) ## Three brokers under a steady load, one of them restarted half-way (MINUTES=60, RATE=5800 records of 1 KB)
	@$(PYTHON) -m bench.soak --minutes $(MINUTES) --rate $(RATE) $(ARGS)

interop: ready-packages ## The suites of librdkafka, kafka-python and aiokafka, and clients in other languages, in full
	@$(JAVA) && $(PYTHON) -m pytest -m interop tests/interop $(ARGS)

measures: $(STAMP) ## Counts for a review: size, complexity, comments, the path of a Produce (ARGS="--tree OTHER --tree .")
	@$(PYTHON) -m tools.measures $(ARGS)

sim: $(STAMP) ## Simulated worlds: SEEDS=200 of each, or WORLD=cluster SEED=17 with its timeline, SHRINK=1 leaves out what it does not need
	@PYTHONHASHSEED=0 $(PYTHON) -m tests.sim $(if $(WORLD),--world $(WORLD)) $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),200) --first $(or $(FIRST),1)) $(if $(SHRINK),--shrink) $(if $(WITHOUT),--without '$(WITHOUT)')

sim-nightly: $(STAMP) ## 10,000 seeds of each simulated world, FIRST=1 (about a day; WORLD=node about two hours)
	@PYTHONHASHSEED=0 $(PYTHON) -m tests.sim $(if $(WORLD),--world $(WORLD)) --seeds $(or $(SEEDS),10000) --first $(or $(FIRST),1)

sim-bugs: $(STAMP) ## Seeds that each planted bug survives, into docs/simulation-bugs.md (some hours)
	@PYTHONHASHSEED=0 $(PYTHON) -m tests.sim.bugs

sim-coverage: $(STAMP) ## Branches of the product that no simulated run takes, SEEDS=100, SHOW=log/log.py lists them
	@PYTHONHASHSEED=0 $(PYTHON) -m tests.sim.coverage --seeds $(or $(SEEDS),100) $(if $(SHOW),--show $(SHOW))

fuzz: $(STAMP) ## Fuzz all that reads bytes from elsewhere, MINUTES=5; failing inputs go into tests/fuzz/corpus (ARGS="--target NAME --engine own")
	@$(PYTHON) -m tests.fuzz --minutes $(or $(MINUTES),5) $(ARGS)

mutants: $(STAMP) ## Small wrong changes that no test of their room notices (ROOM=raft SAMPLE=40 SEED=1, LINE=raft/node.py:212); ARGS=--unentered: what no test enters; SIM=20: which of the others so many seeds of simulated worlds notice
	@$(PYTHON) -m tests.mutants $(ROOM) --sample $(or $(SAMPLE),40) --seed $(or $(SEED),1) $(if $(LINE),--line $(LINE)) $(if $(SIM),--simulate $(SIM)) $(ARGS)

chaos: $(STAMP) ## Real nodes killed, paused, cut off, without disk, power or the right time, under load, some minutes (ARGS="one-way --rounds 20")
	@$(PYTHON) -m tests.chaos $(ARGS)

lock: $(STAMP) ## Resolve requirements/dev.txt again from pyproject.toml, runtime.txt, and kerberos.txt (needs libkrb5-dev)
	@$(VENV)/bin/pip install -q pip-tools
	@$(VENV)/bin/pip-compile -q --strip-extras --generate-hashes --no-emit-index-url --no-emit-trusted-host \
		--allow-unsafe --extra spark --extra avro --extra delta --extra protobuf --extra pipelines --extra demo --extra console --extra dev -o requirements/dev.txt pyproject.toml
	@$(VENV)/bin/pip-compile -q --strip-extras --generate-hashes --no-emit-index-url --no-emit-trusted-host \
		--no-emit-find-links --allow-unsafe --constraint requirements/dev.txt -o requirements/runtime.txt pyproject.toml
	@$(VENV)/bin/pip-compile -q --strip-extras --generate-hashes --no-emit-index-url --no-emit-trusted-host \
		--allow-unsafe -o requirements/kerberos.txt requirements/kerberos.in
	@$(VENV)/bin/pip-compile -q --strip-extras --generate-hashes --no-emit-index-url --no-emit-trusted-host \
		--no-emit-find-links --allow-unsafe -o requirements/site.txt requirements/site.in

clean: ## Remove everything that can be made again
	@rm -rf $(VENV) .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
