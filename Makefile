# `make demo` and `make test` are all a newcomer needs: each does its own set-up, and skips it when
# none of the files in SETUP changed.

PYTHON  ?= python3
WORKERS ?= 2
COUNT   ?= 1000
SEED    ?= 0
VENV    := .venv
PY      := $(VENV)/bin/python
CONSUMERS := .venv-consumers
ZOO     := .venv-zoo
EXPLORER := .venv-explorer
APT     := apt-get -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=20
SETUP   := pyproject.toml constraints.txt torch_bridge/arithmetic/_native.c
INSTALL := $(PY) -m pip install --quiet --no-input --disable-pip-version-check -c constraints.txt

.PHONY: help demo test test-consumers test-recast test-real test-zoo test-explorer browser lint fuzz \
	bench bench-training bench-quantize bench-algorithms bench-report docs release-check clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    convert a small quantized network for every backend, in one table"
	@echo "make test    lint, type check and run all tests, written files in ncnn and OpenVINO too"
	@echo "make test-consumers   run the written files in TVM, IREE and onnxruntime-web as well"
	@echo "make test-recast   convert every file of other tools for every backend, write docs/recast.md"
	@echo "make test-real   quantize real networks from public packages, write docs/real-networks.md"
	@echo "make test-zoo   train and deploy architectures of torchvision, timm and transformers"
	@echo "make browser   install Chromium and Playwright, so that make test opens report pages, too"
	@echo "make test-explorer   load the files for Google's Model Explorer in it"
	@echo "make docs    the documentation as a site, in site/"
	@echo "make release-check   build sdist and wheel, install both without a compiler, run the demo"
	@echo "make lint    ruff and mypy only"
	@echo "make fuzz    attack with broken files: COUNT=1000 of each kind, from SEED=0 on"
	@echo "make bench   compare speed and memory with other ONNX tools, and bench-training"
	@echo "make bench-training   cost of quantization-aware training beside torch.ao"
	@echo "make bench-quantize   quantize float networks beside onnxruntime's quantize_static"
	@echo "make bench-algorithms   train a small network with every algorithm, write docs/algorithms.md"
	@echo "make bench-report   size and speed of the report on 2,000 operators, in headless Chromium"
	@echo "make clean   remove the environment, builds and caches"

demo: $(VENV)/.base
	$(VENV)/bin/onnxq demo

# One BLAS thread per worker: the workers already use every core.
test: lint
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(PY) -m pytest -n $(WORKERS) $(PYTEST_ARGS)

# In an environment of its own, so that these large packages never meet the others. The measured
# numbers go to docs/consumers.json. `make test` runs the part that needs no large package.
test-consumers: $(CONSUMERS)/.done
	OMP_NUM_THREADS=1 ONNXQ_NODE_PACKAGES=$(CONSUMERS)/node_modules \
		ONNXQ_CONSUMERS_JSON=docs/consumers.json \
		$(CONSUMERS)/bin/python -m pytest -rs tests/consumers $(PYTEST_ARGS)

# The files lie beside the repository, see tests/models/foreign_files.py. Part of it is in make test.
# About half an hour; RECAST_ARGS=--resume goes on where a run was stopped.
test-recast: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(PY) -m tests.checks.recast_matrix --workers $(WORKERS) $(RECAST_ARGS)

# Fetches about 350 MB of packages, once. NETWORKS="magika vad" runs these only.
test-real: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(PY) -m tests.real $(NETWORKS)

# Writes docs/architectures.md. ARCHITECTURES="timm swin_t" runs these libraries and networks only.
test-zoo: $(ZOO)/.done
	OMP_NUM_THREADS=1 $(ZOO)/bin/python -m tests.zoo $(ARCHITECTURES)

# Chromium is a package of the system (Debian's here), which takes root to install. Without it the
# tests of pages are skipped with a reason; ONNXQ_CHROMIUM names one that lies elsewhere.
browser: $(VENV)/.dev
	@$(INSTALL) --no-build-isolation -e ".[browser]"
	@command -v chromium > /dev/null \
		|| { $(APT) update && $(APT) install -y --no-install-recommends chromium; } \
		|| echo "Chromium cannot be installed here: install it with the tools of your system"

# In an environment of its own: it is larger than onnxq and all its dependencies.
test-explorer: browser $(EXPLORER)/.done
	ONNXQ_MODEL_EXPLORER=$(EXPLORER)/bin $(PY) -m pytest -rs tests/browser/test_model_explorer.py

lint: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

fuzz: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(PY) -m tests.fuzz --count $(COUNT) --seed $(SEED) $(FUZZ_ARGS)

# The second part runs whatever the first one finds; a missed target of either fails.
bench: $(VENV)/.bench $(VENV)/.dev
	$(PY) -m benchmarks; deployment=$$?; $(PY) -m benchmarks.training && exit $$deployment

bench-training: $(VENV)/.dev
	$(PY) -m benchmarks.training

bench-quantize: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(PY) -m benchmarks.quantize

# About ten CPU minutes.
bench-algorithms: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(PY) -m benchmarks.algorithms

bench-report: browser
	OMP_NUM_THREADS=1 $(PY) -m benchmarks.report_page

# Strict: a warning or a dead link fails. The site needs no server: open site/index.html.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet
	@echo "open site/index.html in a browser"

# About two minutes: sdist and wheel, each in a new environment.
release-check: $(VENV)/.dev
	$(PY) -m tests.checks.release

# A stamp is written last, so a set-up that failed half-way is done again. The build tools come
# first and pinned; without build isolation pip then fetches no others.
$(VENV)/.base: $(SETUP)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "onnxq needs Python 3.11 or newer, this is " + sys.version.split()[0] + "\n  next: make PYTHON=python3.11 (or newer)")'
	@echo "setting up $(VENV) (once; later runs skip this)"
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) setuptools wheel
	@$(INSTALL) --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "installing the test tools and torch"
	@$(INSTALL) --no-build-isolation -e ".[dev,torch]"
	@touch $@

$(VENV)/.docs: $(VENV)/.base
	@echo "installing mkdocs"
	@$(INSTALL) --no-build-isolation -e ".[docs]"
	@touch $@

$(VENV)/.bench: $(VENV)/.base
	@echo "installing the tools to compare with"
	@$(INSTALL) --no-build-isolation -e ".[bench]"
	@touch $@

# node is optional: without it onnxruntime-web is skipped with a reason.
$(CONSUMERS)/.done: $(SETUP)
	@echo "setting up $(CONSUMERS) (about 1.5 GB; once)"
	@$(PYTHON) -m venv $(CONSUMERS)
	@$(CONSUMERS)/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
		-c constraints.txt setuptools wheel
	@$(CONSUMERS)/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
		-c constraints.txt --no-build-isolation -e ".[dev,consumers]"
	@if command -v npm > /dev/null; then npm install --prefix $(CONSUMERS) --ignore-scripts \
		--no-audit --no-fund --silent onnxruntime-web@1.30.0; fi
	@touch $@

# torchvision without its dependencies: its own build of torch would replace the one tested.
$(ZOO)/.done: $(SETUP)
	@echo "setting up $(ZOO) (about 1.5 GB; once)"
	@$(PYTHON) -m venv $(ZOO)
	@$(ZOO)/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
		-c constraints.txt setuptools wheel
	@$(ZOO)/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
		-c constraints.txt --no-build-isolation -e ".[torch,dynamo]" pillow transformers==5.23.0
	@$(ZOO)/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
		--no-deps timm==1.0.31 torchvision==0.28.0
	@touch $@

$(EXPLORER)/.done:
	@echo "setting up $(EXPLORER) (about 600 MB; once)"
	@$(PYTHON) -m venv $(EXPLORER)
	@$(EXPLORER)/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
		ai-edge-model-explorer==0.1.34
	@touch $@

clean:
	rm -rf $(VENV) $(CONSUMERS) $(ZOO) $(EXPLORER) build dist site *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
