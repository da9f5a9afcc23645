# Two commands matter: `make demo` sets everything up and does the main job, `make test` checks it.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Each process that a test starts finds its modules compiled, whatever the surroundings say of that.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache

# Settings that choose other code paths of the numeric libraries than this machine's own.
DISPATCH := ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 \
	ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE

.PHONY: demo test coverage docs test-slow test-changed test-dispatch test-foreign test-gpu test-postgres test-tools test-fleet test-integrations test-pages bench-pages gallery study-agent study-decider study-evolution study-others bench bench-speed lint lock setup clean
demo: setup
	$(BIN)/proctor demo

# The tests of a file stay together, as they share what is expensive; tests/conftest.py runs the
# expensive files first, so that no process waits long for the other.
SUITE := pytest -n 2 --dist loadfile --no-loadscope-reorder
test: setup lint
	$(BIN)/$(SUITE)

# The same tests, and which lines of each package they run. It takes about a tenth longer.
coverage: setup
	$(BIN)/coverage erase
	$(BIN)/coverage run -m $(SUITE)
	$(BIN)/coverage combine --quiet
	$(BIN)/python tests/coverage_figures.py

# The exhaustive suites (mutations, crashes, many writers): run them when the ledger changes.
test-slow: setup
	$(BIN)/pytest -n 2 -m slow

# The slow tests of the packages that changed in the last six hours of commits, for at most 40 minutes.
# Their order is drawn from the commit, so that another commit runs what this one leaves out.
MINUTES ?= 40
test-changed: setup
	folders=$$($(BIN)/python tests/changed.py $(SINCE)) && if test -n "$$folders"; then \
		$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m slow -rs \
			--drawn-by $$(git rev-parse HEAD) --until $$(($$(date +%s) + 60 * $(MINUTES))) $$folders \
			|| test $$? -eq 5; fi  # 5: no test of these folders is slow

# Ledgers on a PostgreSQL server, which the tests start (docs/how-to/use-postgresql.md): what they do
# on their own, and the suites and attacks of the ledger's files once more, on the server. It takes
# about ten minutes, of which SECONDS for the producers that are killed.
SECONDS ?= 60
POSTGRES_SUITES := $(addprefix tests/ledger/recording/test_, concurrency.py ledger_clock.py \
	ledger_recorder.py ledger_rotation.py sure_appends.py) $(addprefix tests/ledger/verification/test_, \
	exhaustive_mutations.py ledger_attacks.py ledger_authority.py ledger_memory.py \
	ledger_mutations.py threats.py)
test-postgres: setup
	$(BIN)/python tests/helpers/postgres_server.py
	PRODUCERS_SECONDS=$(SECONDS) $(BIN)/pytest -m "slow or not slow" tests/ledger/postgres
	$(BIN)/pytest --store postgres $(POSTGRES_SUITES)

# Everything that trains, under each dispatch setting: run it when the training or its measurements
# change. It takes about eight minutes a setting; tests/proctor/runs/test_dispatch.py is the part of it
# that `make test` runs.
test-dispatch: setup
	for setting in $(DISPATCH); do \
		echo "== $$setting"; \
		env $$setting $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder \
			--ignore tests/ledger --ignore tests/aggregates || exit 1; \
	done

# Language model servers that nobody here wrote, with random weights (docs/how-to/ask-a-model.md).
test-foreign: setup .venv-foreign/.installed
	$(BIN)/pytest -m foreign tests/foreign

# A small language model, trained on exports and served by llama.cpp, decides in runs
# (docs/studies/agents.md).
DECIDER := .venv-foreign/decider
study-decider: export PYTHONPATH := docs:tests/helpers
study-decider: setup .venv-foreign/.installed
	rm -rf $(DECIDER)
	$(BIN)/python tests/foreign/decider_runs.py $(DECIDER)
	.venv-foreign/bin/python tests/foreign/train_decider.py $(DECIDER) $(DECIDER)/sft-0.jsonl $(DECIDER)/sft-1.jsonl
	$(BIN)/python tests/foreign/decider_study.py $(DECIDER)

# The learned agent against the playbook, random answers and none, on faults that it has not met; once
# without and once with two kills (docs/studies/agents.md).
study-agent: export STUDY_SEEDS ?= 20
study-agent: setup
	$(BIN)/pytest -m slow tests/proctor/cli/test_compare_cli.py -k killed_twice

# What decides on trainings evolves unattended, is spoilt half way and mended, and is measured on
# trainings that it never saw (docs/studies/evolution.md). It takes hours, and goes on after a kill.
EVOLUTION ?= build/evolution
study-evolution: setup
	$(BIN)/python docs/studies evolution $(EVOLUTION)

.venv-foreign/.installed: tests/foreign/install.sh tests/foreign/requirements.txt tests/foreign/random_models.py
	tests/foreign/install.sh .venv-foreign $(VENV)
	touch $@

# The gate beside OpenEvolve and GEPA on one noisy problem (docs/studies/gate.md). It takes about half
# an hour of processor time, most of it for the seeds that go through the front door.
study-others: setup .venv-others/.installed
	mkdir -p build
	$(BIN)/python docs/studies others --results build/others.jsonl

.venv-others/.installed: docs/studies/others/requirements.txt
	test -x .venv-others/bin/python || $(PYTHON) -m venv .venv-others
	echo '*' > .venv-others/.gitignore
	.venv-others/bin/python -m pip install --quiet --no-deps --requirement docs/studies/others/requirements.txt
	touch $@

# Runs on a CUDA device and their verdicts, and loops watched on one (docs/explanation/determinism.md).
# Without a device that torch can use, each is skipped. It takes some minutes.
test-gpu: setup
	$(BIN)/pytest -m gpu -rs tests/gpu

# Tools that nobody here wrote: they verify a model that was handed over, and read
# exported curves (docs/how-to/hand-over.md, docs/how-to/watch-in-the-browser.md).
test-tools: setup .venv-tools/.installed
	$(BIN)/pytest -m foreign tests/tools

.venv-tools/.installed: tests/tools/install.sh tests/tools/requirements.txt tests/tools/package-lock.json
	tests/tools/install.sh .venv-tools $(VENV)
	touch $@

# Lightning and the Hugging Face Trainer under watch (docs/how-to/watch-your-own-loop.md),
# and the environments: Gymnasium's (docs/how-to/agents.md), and those of inspect_ai and
# verifiers (docs/how-to/agents.md). verifiers needs an older openai.
test-integrations: setup .venv-integrations/.installed .venv-verifiers/.installed
	.venv-integrations/bin/python -m pytest -m foreign tests/integrations
	.venv-verifiers/bin/python -m pytest -m foreign tests/integrations/test_verifiers.py

.venv-integrations/.installed: tests/integrations/install.sh tests/integrations/requirements.txt
	tests/integrations/install.sh .venv-integrations $(VENV) tests/integrations/requirements.txt
	touch $@

# Ray clusters (docs/how-to/compare-policies.md) and object storage (docs/how-to/hand-over.md)
# on this machine. It takes about ten minutes.
test-fleet: setup .venv-fleet/.installed
	.venv-fleet/bin/python -m pytest -m foreign tests/fleet

.venv-fleet/.installed: tests/integrations/install.sh tests/fleet/requirements.txt
	tests/integrations/install.sh .venv-fleet $(VENV) tests/fleet/requirements.txt
	touch $@

.venv-verifiers/.installed: tests/integrations/install.sh tests/integrations/requirements-verifiers.txt
	tests/integrations/install.sh .venv-verifiers $(VENV) tests/integrations/requirements-verifiers.txt
	touch $@

# The documentation as a web site with a search, in build/docs.
docs: .venv-docs/.installed
	.venv-docs/bin/sphinx-build --quiet --fail-on-warning --keep-going -c docs . build/docs
	@echo "open build/docs/index.html"

.venv-docs/.installed: docs/requirements.txt
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	echo '*' > .venv-docs/.gitignore
	.venv-docs/bin/python -m pip install --quiet --requirement docs/requirements.txt
	touch $@

# The live view and the reports in Chromium: sizes, light and dark, keyboard, barriers, hostile texts.
# Pictures for people to look at are in build/pages.
test-pages: setup .venv-pages/.installed
	.venv-pages/bin/python -m pytest -m foreign tests/pages

# How soon the live view shows a page of a large ledger, and its memory.
bench-pages: setup .venv-pages/.installed
	PYTHONPATH=docs:tests/helpers .venv-pages/bin/python tests/pages/bench_live_view.py

# The pictures of docs/gallery, from the reports of the tutorial and of examples. It takes about five
# minutes; `make gallery NAMES=caught` makes one.
gallery: setup .venv-pages/.installed
	PATH="$(abspath $(BIN)):$$PATH" PYTHONPATH=tests/helpers .venv-pages/bin/python tests/pages/make_gallery.py $(NAMES)

.venv-pages/.installed: tests/pages/install.sh tests/pages/requirements.txt tests/pages/package-lock.json
	tests/pages/install.sh .venv-pages $(VENV)
	touch $@

bench: setup
	$(BIN)/python docs/studies bench all

# The figures of docs/studies/ledger.md, for a machine that does nothing else: about an hour, and
# 10 GB in BENCH, which keeps the large ledgers for the next time.
BENCH ?= build/bench
bench-speed: setup
	mkdir -p $(BENCH)
	rm -rf $(BENCH)/homes/*.state
	$(BIN)/python docs/studies bench all --folder $(BENCH) --format markdown > $(BENCH)/table.md
	$(BIN)/python docs/studies bench all --growth --events 10000000 --rounds 3 --homes $(BENCH)/homes --folder $(BENCH) \
		--chart docs/studies/growth.svg --format markdown > $(BENCH)/growth.md
	$(BIN)/python docs/studies bench notary --folder $(BENCH) --format markdown > $(BENCH)/notary.md
	$(BIN)/python docs/studies bench long-runs --folder $(BENCH) --format markdown > $(BENCH)/long.md
	$(BIN)/python docs/studies figures docs/studies/ledger.md \
		$(BENCH)/table.md $(BENCH)/notary.md $(BENCH)/growth.md $(BENCH)/long.md

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# In the mode `compat` a folder named `ledger` where a command is started does not hide the package.
setup: $(STAMP)
$(STAMP): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation \
		--config-settings editable_mode=compat --editable .
	touch $@

# Resolves the ranges of pyproject.toml to exact versions, for every platform: what `setup` installs,
# and with the same versions what the extras add that are not in `all` (only a user installs these).
# Not with them: inspect and verifiers, which need an older fsspec and an older openai.
COMPILE := .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-annotate --no-header
EXTRAS  := gym lightning mlflow ray s3 tensorboard transformers
lock: .venv-lock/bin/uv
	$(COMPILE) --extra all --extra dev --output-file requirements.lock pyproject.toml
	$(COMPILE) --extra all $(EXTRAS:%=--extra %) --constraints requirements.lock \
		--output-file requirements-extras.lock pyproject.toml

.venv-lock/bin/uv:
	$(PYTHON) -m venv .venv-lock
	echo '*' > .venv-lock/.gitignore
	.venv-lock/bin/python -m pip install --quiet uv==0.13.9

clean:
	rm -rf $(VENV) .venv-docs .venv-foreign .venv-tools .venv-fleet .venv-integrations .venv-others .venv-pages .venv-lock .venv-verifiers .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info build
