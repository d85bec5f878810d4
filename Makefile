# The two commands for a fresh machine with python3 (3.10 or later), pip and make; the second needs g++ 11 or later too:
#   make demo        install, and run the small K3 from training to generation
#   make test        every check, as CI runs it, in a new environment
# For work on the code, in the environment .venv:
#   make lint | types | docs | bench | mutants | format
#   make test-all    what `make test` runs, and the tests marked slow
#
# PYTHON=python3.12 picks the interpreter; PIP_ARGS="..." goes to pip (README: a CPU build of PyTorch).

PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
export PYTHON VENV PIP_ARGS

PINS = setup.py pyproject.toml constraints.txt tools/venv.sh

.PHONY: demo test test-all lint types docs format bench mutants clean

demo: $(VENV)/installed
	$(VENV)/bin/ascend-k3 demo

test:
	.ci/run

test-all:
	SLOW=1 .ci/run

lint types docs: $(VENV)/installed-dev
	.ci/run $@

format: $(VENV)/installed-dev
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

mutants: $(VENV)/installed-dev
	$(VENV)/bin/python tools/mutants.py

bench: $(VENV)/installed-dev
	$(VENV)/bin/python benchmarks/run.py

$(VENV)/installed: $(PINS)
	sh tools/venv.sh $(VENV)
	touch $@

$(VENV)/installed-dev: $(PINS)
	sh tools/venv.sh $(VENV) dev
	touch $(VENV)/installed $@

clean:
	rm -rf build dist $(VENV) ascend_k3.egg-info
