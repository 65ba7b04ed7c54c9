# Every target sets up what it needs; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
# Children of tests import the project thousands of times: from what was compiled once.
export PYTHONDONTWRITEBYTECODE :=
# What is compiled. The folders come before the links to them, which find does not follow.
COMPILED := $(shell find store cq_file cq_rocksdb cqstore -name '_*.p[yx][xid]' -o -name '_*.h')
MODULES = $(subst /,.,$(basename $(shell find -L cqstore -name '_*.pyx')))
# Tests that run with sanitizers; `-s` there, for a sanitizer's last words go to the terminal.
FUZZED := tests/store/core tests/store/index/test_key_columns.py tests/store/index/test_writer.py tests/fuzz/test_records.py \
  tests/fuzz/test_queue_files.py tests/cq_rocksdb/engine/test_rocksdb_appends.py tests/cq_rocksdb/queues/test_rocksdb_mixed_batches.py \
  tests/cq_rocksdb/queues/test_state_cache.py tests/replication/feed/test_links.py tests/serve/test_hostile_frames.py
FUZZED += tests/cq_file/test_short_queue.py tests/cq_file/test_queue_folders.py
RACED := tests/store/service/test_threads.py tests/store/service/test_reput.py tests/store/core/test_thread_reads.py tests/replication/feed/test_links.py
# Tests that run once more with a dispatch thread in every store that they open.
BESIDE := tests/interrupts/test_interrupts.py tests/interrupts/test_nested_calls.py tests/crash/test_killed.py tests/store/service/test_threads.py tests/store/service/test_fork.py
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-wrapv -O1 -g1
# What `make test-python` runs; the Debian suite of each: tools/test_python.sh.
PYTHONS ?= 3.13 3.14
# More arguments of pytest, for `make test` and `make test-python`.
SELECT ?=
# The long tests of a CI run are drawn anew with each commit, and again by its name.
SEED ?= $(shell git rev-parse HEAD 2>/dev/null)
SHARE ?= $(if $(filter test-share,$(MAKECMDGOALS)),1/16,1)
DRAWN = --share $(SHARE) --seed "$(SEED)"
# A crash ends the run: pytest-xdist 3.8 may wait forever for a worker that replaces a crashed one.
WORKERS := --dist loadgroup --max-worker-restart 0
# RETRY=1, as in CI: the long runs repeat a failed test once, alone (tests/kit/retry.py).
RETRIED = $(if $(RETRY),--retry-failed)

.DEFAULT_GOAL := help
.PHONY: help demo check compiled test test-all test-share test-python fuzz race mutants interop bench bench-peer site dist wheels rocksdb-wheels constraints broker-keys format clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/' | expand -t 12

$(INSTALLED): pyproject.toml setup.py tools/constraints.txt $(wildcard tools/rocksdb-library/*.* tools/rocksdb-library/src/*/*.py)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c tools/constraints.txt setuptools cython packaging pyspark
	$(BIN)/python tools/rocksdb-library/make_wheels.py --install # out of pyspark's jar; the project requires it
	rm -rf cqstore.egg-info
	$(BIN)/python -m pip install --quiet -c tools/constraints.txt --no-build-isolation --editable '.[dev]'
	rm -rf cqstore.egg-info  # it would be found before what is installed, and get out of date
	touch $@

# After a change of compiled code only the modules that depend on it are compiled.
$(READY): $(INSTALLED) $(COMPILED)
	$(BIN)/python setup.py --quiet build_ext --inplace
	touch $@

demo: $(READY) ## make a store on files, move its queues to RocksDB on Spark, verify, switch, compare
	$(BIN)/python -m tools.bench.demo

check: $(READY) ## formatting, lint, types, stubs of what is compiled, layers, English
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest --concise --mypy-config-file pyproject.toml --ignore-disjoint-bases \
	  --allowlist tests/meta/stubtest.allow $(MODULES)
	$(BIN)/lint-imports
	$(BIN)/python -m tests.kit.english

compiled: $(READY) ## compile the tests once: else each worker of the first run compiles all of them
	$(BIN)/pytest --collect-only -q > /dev/null

test: $(READY) ## the tests, but for interop and the long runs
	$(BIN)/pytest -n auto $(WORKERS) -m "not interop and not long" $(SELECT)

test-python: ## the tests on other CPythons, each in a Debian root under build/pythons (PYTHONS, SELECT; root, mmdebstrap)
	for version in $(PYTHONS); do tools/test_python.sh $$version '$(SELECT)' || exit 1; done

test-all: $(READY) ## the tests and the long runs
	$(BIN)/pytest -n auto $(WORKERS) -m "not interop and not quiet"
	CQSTORE_REPUT_THREAD=always $(BIN)/pytest -n auto $(WORKERS) -m "not quiet and not interop" $(BESIDE)
	$(BIN)/pytest -m "quiet and not interop"

test-share: $(READY) ## of what test-all adds to test a share that a seed draws (SHARE, SEED; the commit)
	$(BIN)/pytest -n auto $(WORKERS) -m "long and not interop and not quiet" $(DRAWN) $(RETRIED)

# The tree under build/$(1), compiled with the flags of $(2), wheels and all. What Cython made is newer
# there than its sources, so only the C compiler runs.
define compiled_in
	rm -rf build/$(1) && mkdir -p build/$(1)
	git ls-files -z | xargs -0 cp -P --parents -t build/$(1)
	find store cq_file cq_rocksdb cqstore -name '_*.c' -exec cp --parents -t build/$(1) {} +
	cd build/$(1) && CFLAGS="$(2)" ../../$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation -w wheel .
	cd build/$(1) && ../../$(BIN)/python -m zipfile -e wheel/*.whl .
endef

# AddressSanitizer writes to files: what it finds in a child of a test fails the run, also if a retry passes.
fuzz: $(READY) ## the compiled core over odd and damaged bytes, with AddressSanitizer and UBSan (SEED; gcc)
	$(call compiled_in,fuzz,$(SANITIZE))
	cd build/fuzz && LD_PRELOAD=$$($(CC) -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0:log_path=$$PWD/report \
	  UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc \
	  ../../$(BIN)/python -m pytest -n auto $(WORKERS) -s -p no:cacheprovider -m "not long" --seed "$(SEED)" $(RETRIED) $(FUZZED) \
	  || failed=yes; ! cat report.* 2>/dev/null && [ -z "$$failed" ]

race: $(READY) ## threads against a model, what is compiled here with ThreadSanitizer (gcc, setarch)
	$(call compiled_in,race,-fsanitize=thread -O1 -g1)
	printf 'race:rocksdb-\nrace:librocksdb\nrace:shim.so\nrace:_dl_deallocate_tls\n' > build/race/not-ours  # not built with it: RocksDB, the shim of faults, glibc
	$(CC) -shared -fPIC -O1 -o build/race/sem_clockwait.so tests/kit/sem_clockwait.c
	cd build/race && LD_PRELOAD="$$($(CC) -print-file-name=libtsan.so) $$PWD/sem_clockwait.so" \
	  TSAN_OPTIONS="suppressions=not-ours exitcode=66" CQSTORE_REPUT_THREAD=always setarch -R \
	  ../../$(BIN)/python -m pytest -s -p no:cacheprovider -m "not long" -k "not rocksdict" $(RACED)

mutants: $(READY) ## put small faults into the code, a sample of them, and see which no test notices (SEED, COUNT, CYTHON, ONLY, TESTS, LIST)
	nice $(BIN)/python -m tools.mutants $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) $(if $(CYTHON),--cython $(CYTHON)) $(if $(ONLY),--only "$(ONLY)") $(if $(TESTS),--tests "$(TESTS)") $(if $(LIST),--list)

interop: $(READY) ## Apache RocketMQ opens our stores and we open its (Java 17, Maven)
	$(BIN)/pytest -n 6 $(WORKERS) --maxschedchunk 1 tests/interop -m interop $(DRAWN) $(RETRIED)

bench: $(READY) ## scans, recovery and starts beside their raw baselines
	$(BIN)/python -m tools.bench

bench-peer: $(READY) ## the same work through RocketMQ and here, as ratios (ROWS, QUICK, ADD, PUBLISH; Java 17, Maven)
	$(BIN)/python -m tools.bench.peer $(ROWS) $(if $(QUICK),--quick) $(if $(ADD),--add) $(if $(PUBLISH),--publish)

site: $(READY) ## the documents as a site, with pages of the API from docstrings, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build --strict --config-file docs/mkdocs.yml

dist: $(READY) ## source archives, wheels for this interpreter and of RocksDB's library, in dist/; each extra tried
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m build --outdir dist cq_lmdb
	$(BIN)/python tools/rocksdb-library/make_wheels.py --out dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/pytest tests/packaging

wheels: rocksdb-wheels ## wheels for all interpreters and machines, in dist/, by cibuildwheel (Docker or Podman)
	$(PYTHON) -m venv build/wheels
	build/wheels/bin/python -m pip install --quiet 'cibuildwheel==4.3.*'
	build/wheels/bin/python -m cibuildwheel --platform linux --output-dir dist

rocksdb-wheels: $(READY) ## RocksDB's library as wheels for each machine, in dist/, out of the pinned jar (Maven, readelf)
	$(BIN)/python tools/rocksdb-library/make_wheels.py --out dist

constraints: rocksdb-wheels ## renew tools/constraints.txt, the versions that the development environment gets
	$(PYTHON) -m venv build/constraints
	build/constraints/bin/python -m pip install --quiet --upgrade pip
	build/constraints/bin/python tools/constraints.py

broker-keys: $(READY) ## renew the table of broker.conf's keys from RocketMQ's class files (Maven, javap)
	$(BIN)/python -m tools.broker_keys

format: $(READY) ## format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove what was made here
	rm -rf $(VENV) .mutants build dist *.egg-info tests/interop/target tools/bench/peer/target
	find store cq_file cq_rocksdb cqstore -name '_*.c' -delete -o -name '_*.so' -delete
