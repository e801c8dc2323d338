# `make` lists the targets. Each builds the environment it needs, in .venv, and does so again only when the
# requirements change.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
STAMP := $(VENV)/.up-to-date

.DEFAULT_GOAL := help
.PHONY: help venv demo hub-demo test test-all bench bench-all lint

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP)  ## build the Python environment in .venv

$(STAMP): requirements-dev.txt requirements-demo.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -r requirements-dev.txt
	$(BIN)/pip install --no-deps -r requirements-demo.txt
	$(BIN)/pip install --no-build-isolation --no-deps -e .
	touch $@

demo: $(STAMP)  ## run a trained DINOv2 with the kernels swapped in, on a photo; the picture goes to demo_out/
	$(BIN)/vit-neuron demo

hub-demo: $(STAMP)  ## build, publish to a local Hub, load and run the package in a fresh virtual environment
	$(BIN)/python -m tests.hub.demo

# Two runs each: the simulated neuron device is installed for a whole process and cannot be taken out again.
test: $(STAMP)  ## run the tests that take minutes
	@status=0; \
	$(BIN)/pytest -n 2 -m "not device and not slow" || status=1; \
	$(BIN)/pytest -m "device and not slow" tests/device || status=1; \
	exit $$status

test-all: $(STAMP)  ## run every test
	@status=0; \
	$(BIN)/pytest -n 2 -m "not device" || status=1; \
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m device tests/device || status=1; \
	exit $$status

# COMPARE=EARLIER.json marks what got slower since an earlier run.
bench: $(STAMP)  ## time every operation on the simulator's timing model; the report page goes to bench_out/
	mkdir -p bench_out
	$(BIN)/pytest -q bench --benchmark-json=bench_out/results.json $(BENCH_OPTIONS)
	$(BIN)/python -m bench.report bench_out/results.json $(if $(COMPARE),--compare $(COMPARE))

bench-all:  ## the same for every shape and batch 64; takes long
	$(MAKE) bench BENCH_OPTIONS=--every-shape

lint: $(STAMP)  ## check style, format and types
	@status=0; \
	$(BIN)/ruff check || status=1; \
	$(BIN)/ruff format --check || status=1; \
	$(BIN)/mypy || status=1; \
	exit $$status
