# A fresh machine needs only make, python3 (3.11 or newer) and a package registry.

PYTHON     ?= python3
UV_VERSION ?= 0.13.7
SEEDS      ?= 1000
ROUNDS     ?= 20
SAMPLE     ?= 400
WORKERS    ?= 2

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
TOOLS := .tools

SHELL         := /bin/sh
.DEFAULT_GOAL := help
.PHONY: crashes reliability help hunt mutants setup demo test lint bench soak conformance lock clean

# uv does not read pip's settings; a machine that has only those is served all the same.
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif
ifdef PIP_CERT
export SSL_CERT_FILE ?= $(PIP_CERT)
endif
# Nor does it trust the system's certificates unless told to, and a company's proxy is known only there.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem),)
export UV_SYSTEM_CERTS ?= true
endif
export UV_PYTHON_DOWNLOADS := never
export UV_NO_PROGRESS      := 1

# The uv on PATH if there is one, our own otherwise.
UV := $(or $(shell command -v uv 2>/dev/null),$(TOOLS)/bin/uv)

help:  ## List the targets.
	@bold=; plain=; \
	if [ -z "$$NO_COLOR" ] && [ -t 1 ]; then bold=$$(printf '\033[1m'); plain=$$(printf '\033[0m'); fi; \
	sed -n 's/^\([a-z]*\):.*## \(.*\)$$/\1|\2/p' Makefile | while IFS='|' read -r target sentence; do \
		printf '  %s%-12s%s %s\n' "$$bold" "$$target" "$$plain" "$$sentence"; \
	done

setup: $(STAMP)  ## Make .venv with the locked dependencies and this project, editable.

demo: setup  ## Run the demo scenario in the simulator.
	$(BIN)/muster sim scenarios/demo.yaml

test: lint  ## Run every check: lint and types first, then the tests.
	$(BIN)/pytest -n $(WORKERS)

lint: setup  ## Check style, formatting and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict $(if $(NO_COLOR),--no-color-output)

bench: setup  ## Measure how long a scheduling cycle takes.
	$(BIN)/muster bench

crashes: setup  ## Kill the scheduler at every write of every scenario (long).
	MUSTER_CRASH_POINTS=200 $(BIN)/pytest -n $(WORKERS) -m crash --timeout 0

soak: setup  ## Run the seeded simulations over many seeds (SEEDS=1000), and on a real server every scenario and long storms.
	MUSTER_SEEDS=$(SEEDS) MUSTER_FAULT_STEPS=10000 MUSTER_CONTRACT=all MUSTER_HOSTILE_PODS=2000 $(BIN)/pytest -n $(WORKERS) -m soak --timeout 0

reliability: setup  ## Measure one row of docs/reliability.md (ROW=soak AMOUNT=100000) and write it there.
	$(BIN)/python -m tools.reliability $(ROW) $(if $(AMOUNT),--amount $(AMOUNT))

hunt: setup  ## Try the properties on cases that nobody has tried yet, again and again (ROUNDS=20); the first that fails ends it.
	@round=0; while [ $$round -lt $(ROUNDS) ]; do round=$$((round + 1)); echo "round $$round of $(ROUNDS)"; \
		MUSTER_PROPERTIES=hunt $(BIN)/pytest -n $(WORKERS) -m hypothesis || exit 1; done

mutants: setup  ## Make faults in the code that decides, one by one (SAMPLE=400), and count those that the fast tests notice (long).
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tools.mutants --sample $(SAMPLE)

conformance: setup  ## Compare with Volcano case by case (DIR=folder of cases).
	MUSTER_CONFORMANCE='$(DIR)' $(BIN)/pytest -n 0 -m conformance tests/conformance

COMPILE = $(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	--no-header --quiet

lock: $(UV)  ## Resolve the dependencies anew into requirements.lock, and those of the image into deploy.
	$(COMPILE) pyproject.toml --group dev --upgrade --output-file requirements.lock > /dev/null
	$(COMPILE) pyproject.toml --constraint requirements.lock --output-file deploy/requirements.lock > /dev/null
	echo hatchling | $(COMPILE) - --constraint requirements.lock --output-file deploy/build.lock > /dev/null
	@for each in requirements.lock deploy/requirements.lock deploy/build.lock; do \
		{ echo '# Written by `make lock` from pyproject.toml; do not edit.'; cat $$each; } > $$each.new && mv $$each.new $$each; \
	done

clean:  ## Remove everything that make has made.
	rm -rf $(VENV) $(TOOLS) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests tools -type d -name __pycache__ -prune -exec rm -rf {} +

# An environment whose interpreter has gone or has grown too old for the project is made anew.
$(STAMP): pyproject.toml requirements.lock | $(UV)
	@$(call require_python,$(PYTHON))
	@[ -x $(BIN)/python ] && $(BIN)/python -c '$(NEW_ENOUGH)' || \
		{ rm -rf $(VENV); $(UV) venv --quiet --python "$$(command -v $(PYTHON))" $(VENV); }
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

$(TOOLS)/bin/uv:
	@$(call require_python,$(PYTHON))
	@$(PYTHON) -m venv $(TOOLS) || { rm -rf $(TOOLS); \
		echo "Muster's setup needs Python's venv module (on Debian: the package python3-venv), or uv on PATH." >&2; exit 1; }
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

define require_python
command -v $(1) >/dev/null || { echo "Muster needs Python 3.11 or newer, and there is no $(1) on PATH." >&2; exit 1; }; \
$(1) -c '$(NEW_ENOUGH)' || { echo "Muster needs Python 3.11 or newer; $(1) is $$($(1) -V 2>&1). Name another: make PYTHON=python3.12 ..." >&2; exit 1; }
endef
