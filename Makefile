# make demo   a real distributed training job on this machine
# make test   the default tier of the tests (tests/README.md)      make check  ruff, pyright, import contracts, typed names
# make test-all   all tests, the nightly ones too; PART=2/4: the second of four parts
# make docs   the documentation    make bench  the benchmarks
# make docs-pictures   its pictures, from real jobs
# make audit  what is known against the pinned dependencies
#
# Each target brings .venv up to date first, through uv (fetched into .venv-tools if there is none).
# PYTHON=/path/to/python3.12 chooses the interpreter of .venv.

SHELL := /bin/bash
RUN := .venv/bin/python
# Environments are built with uv: the one that tools/setup has brought serves too.
export PATH := $(PATH):$(CURDIR)/.venv-tools/bin:$(CURDIR)/.venv-tools/lib/bin
# Thousands of processes would compile all that they import, each anew.
unexport PYTHONDONTWRITEBYTECODE
TESTS ?= tests
ARGS ?=
PART ?=
# Most tests wait for processes they started: three at a time keep two cores busy.
JOBS ?= 3
TIER := dev pytorch boosting spark
NIGHTLY := $(TIER) tensorflow frameworks programs notebook docs older-spark

.PHONY: demo test test-all check format docs docs-pictures bench audit constraints clean

demo:
	@tools/setup tensorflow
	@$(RUN) tools/demo.py

test:
	@tools/setup $(TIER)
	@tests/tools/run $(JOBS) -m "not nightly" $(TESTS) $(ARGS)

test-all:
	@tools/setup $(NIGHTLY)
	@tests/tools/run $(JOBS) $(if $(PART),--part $(PART)) $(TESTS) $(ARGS)

# spark: the Spark rooms' types are pyspark's and pyarrow's.
check:
	@tools/setup dev check spark
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	.venv/bin/lint-imports --no-logo
	$(RUN) -m pyright
	$(RUN) tools/typed_api.py

format:
	@tools/setup check
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

docs:
	@tools/setup docs
	$(RUN) -m sphinx -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

docs-pictures:
	@tools/setup dev
	@chromium=$$(tests/tools/ensure_chromium) && HOWDAH_CHROMIUM="$$chromium" $(RUN) tools/pictures $(ARGS)

bench:
	@tools/setup dev pytorch
	$(RUN) -m benchmarks $(ARGS)

# Asks an advisory service about each pinned version, so it needs one and is no part of `check`. Strict:
# where the service does not know a package, or is no real one, that is a failure and no silence.
audit:
	@tools/setup audit
	@$(RUN) -m pip_audit --strict --progress-spinner off --disable-pip --requirement constraints.txt $(ARGS) \
	  || { echo "audit: known against, or not answered for, as the lines above say; a service that"; \
	    echo "audit: answers for nothing is not reachable from here. ARGS='-s osv' asks another."; exit 1; }

# Newest versions of everything, for all groups and extras. Names, versions and hashes only: which
# index they come from is the reader's affair.
constraints:
	@tools/setup --tool lock --quiet --upgrade
	@tools/setup --tool export --quiet --no-emit-project --all-groups --all-extras \
	  --no-header --no-annotate --format requirements-txt --output-file constraints.txt
	@grep -c == constraints.txt

clean:
	rm -rf .venv .venv-tools .krb5 .pytest_cache .hypothesis .ruff_cache .import_linter_cache docs/_build
