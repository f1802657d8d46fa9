# make book    build the book                make test    test everything
# Both make .venv first. `make help` lists the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
TORCH  ?= $(VENV)/torch
SITE   := _build/html
PORT   ?= 8000
JOBS   ?= auto
APART  := $(addprefix --ignore tests/,test_site.py test_edition.py test_lab.py test_pdf.py test_adapters.py)
SHELL  := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help book pdf slides release serve lint test units processors mutants site-test adapters notebooks lab lock bench race experiments clean distclean

help:
	@echo "make book       build the book into $(SITE), warnings are errors"
	@echo "make pdf        build it, and print it into $(SITE) (needs chromium)"
	@echo "make slides     make the slides anew from _slides.yml (make book makes them, too)"
	@echo "make release    what a tag v1.2.3 needs: build wheel, sdist and zip into dist, and check them"
	@echo "make serve      serve the built book on http://localhost:$(PORT)"
	@echo "make lint       ruff's checks and format, mypy's types: the first part of make test"
	@echo "make test       lint, unit tests, every chapter executed and compared with its stored outputs"
	@echo "make units      unit tests without the planted bugs, and three chapters; for another Python:"
	@echo "                make units VENV=.venv-3.13 PYTHON=python3.13"
	@echo "make processors test and chapters as other processors compute them, in random order; ONLY=jitter,oldest for some"
	@echo "make mutants    plant NUMBER=40 random bugs in the package, and list those that no test sees (an hour or so)"
	@echo "make site-test  open every page of the built book, and a chapter in Jupyter Lab, in a browser;"
	@echo "                print the book; install and run what it offers for download (needs chromium)"
	@echo "make adapters   test models of JAX, NumPyro and PyMC, and ArviZ (installs them; about a minute)"
	@echo "make torch      test the functions for PyTorch of chapter 20 (installs it into $(TORCH): a GB or more)"
	@echo "make notebooks  execute the chapters whose text changed; NAME=zoo for one, ALL=1 for every chapter"
	@echo "make lab        Jupyter Lab on the chapters; ARGS='--port 8899 --no-browser' are its options"
	@echo "make bench      time a step against plain autograd and JAX (installs JAX); SAVE=1 for the book;"
	@echo "                OLD=COMMIT times another version of the package and this one in turns"
	@echo "make race       seconds and gradients to within a nat and less, beside JAX, NumPyro, PyMC, Blackjax (installs them);"
	@echo "                for hours; QUICK=1 for a minute without other packages"
	@echo "make experiments  the paper's table and figures; NAME=table1 RUNS=2 for a quick look, OUT=folder"
	@echo "make lock       renew the pins in requirements.txt from requirements.in"
	@echo "make clean      remove what was built; make distclean removes .venv too"

# The environment: made once, renewed when the pins change.
$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "This needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || echo not there)."; \
	  echo "Install one and run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "'$(PYTHON)' has no venv module. On Debian or Ubuntu: apt-get install python3-venv. Then run make again."; exit 1; }
	@echo "Setting up $(VENV) from requirements.txt (about a minute, once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt || { \
	  echo "Installing the requirements failed; pip's own words are above. With a network, run make again;"; \
	  echo "if it persists, make distclean and try once more."; exit 1; }
	@touch $(READY)

book: $(READY)
	@$(BIN)/python tools/notebooks.py --check || { \
	  echo "The book was not built: its pages would not show what the lines above name."; exit 1; }
	@start=$$(date +%s); \
	$(BIN)/jupyter-book build . -W -n --keep-going --all --quiet || { \
	  echo "The book was not built: the warnings above, counted as errors, say where."; exit 1; }; \
	echo "Book built in $$(( $$(date +%s) - start )) s: open $(CURDIR)/$(SITE)/index.html"

pdf: book
	@$(BIN)/python tools/pdf.py $(SITE)

slides: $(READY)
	@test -f $(SITE)/index.html || $(MAKE) book
	@$(BIN)/python tools/slides.py $(SITE)

release: $(READY)
	@$(BIN)/python tools/release.py dist

serve: $(READY)
	@test -f $(SITE)/index.html || $(MAKE) book
	@echo "The book is on http://localhost:$(PORT) (stop with Ctrl-C)"
	@$(BIN)/python -m http.server $(PORT) --bind localhost --directory $(SITE)

lint: $(READY)
	@$(BIN)/ruff check --output-format concise . && $(BIN)/ruff format --check . || { \
	  echo "Lint FAILED: mend the lines above (ruff format does most); for a chapter, in its .md, then make notebooks"; exit 1; }
	@$(BIN)/mypy --no-error-summary || { \
	  echo "Types FAILED: mend the lines above; what the checker asks for stands in pyproject.toml under tool.mypy"; exit 1; }

test: lint
	@start=$$(date +%s); \
	$(BIN)/pytest --nbval -n $(JOBS) --dist loadfile --no-loadscope-reorder $(APART) || { \
	  echo "Tests FAILED: the report above says which; stale outputs are renewed with: make notebooks ALL=1"; exit 1; }; \
	echo "All tests passed in $$(( $$(date +%s) - start )) s"

units: $(READY)
	@$(BIN)/pytest --nbval -n $(JOBS) --dist loadfile --no-loadscope-reorder $(APART) --ignore tests/test_mutants.py \
	  tests $(addprefix book/,one-control-variate.ipynb all-quadratics.ipynb your-own-model.ipynb)

processors: $(READY)
	@$(BIN)/python tools/processors.py -n $(JOBS) $(if $(ONLY),--only $(ONLY)) $(ARGS)

mutants: $(READY)
	@nice -n 10 $(BIN)/python tools/mutate.py --number $(or $(NUMBER),40) --seed $(or $(SEED),0)

site-test: $(READY)
	@CVBOOK_BROWSER=required $(BIN)/pytest tests/test_site.py tests/test_edition.py tests/test_pdf.py tests/test_lab.py

adapters: $(READY)
	@$(BIN)/python -c 'import jax, numpyro, pymc, arviz' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[jax,numpyro,pymc,arviz]'
	@$(BIN)/pytest tests/test_adapters.py tests/test_race.py -k "adapters or stored_setting"

# PyTorch is large and lies apart: nothing else sees it. A pinned number without a build's name is
# met by every build of it: pip takes the CPU's (2.13.0+cpu) where an index has one, else PyPI's.
.PHONY: torch
torch: $(READY)
	@PYTHONPATH=$(TORCH) $(BIN)/python -c 'import torch' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --target $(TORCH) torch==2.13.0
	@PYTHONPATH=$(TORCH) $(BIN)/python -c 'import torch'
	@PYTHONPATH=$(TORCH) $(BIN)/pytest tests/test_frameworks.py -k torch

notebooks: $(READY)
	@$(BIN)/python tools/notebooks.py $(NAME) $(if $(ALL),--all)

lab: $(READY)
	@$(BIN)/python tools/lab.py $(ARGS)

bench: $(READY)
ifdef OLD
	@$(BIN)/python -m benchmarks.versions $(OLD)
else
	@$(BIN)/python -c 'import jax, numpyro' 2>/dev/null || $(BIN)/python -m pip install --quiet -e '.[bench]'
	@$(BIN)/python -m benchmarks.steps $(if $(SAVE),--save)
	@$(BIN)/python -m benchmarks.ladder $(if $(SAVE),--save)
	@$(BIN)/python -m benchmarks.scale $(if $(SAVE),--save)
	@$(BIN)/python -m benchmarks.choose $(if $(SAVE),--save)
	@$(BIN)/python -m benchmarks.fit $(if $(SAVE),--save)
	@PYTHONPATH=tools $(BIN)/python -m benchmarks.cells $(if $(SAVE),--save)
	@$(BIN)/python -m benchmarks.natural $(if $(SAVE),--save)
endif

race: $(READY)
ifdef QUICK
	@$(BIN)/python -m benchmarks.race --quick
else
	@$(BIN)/python -c 'import jax, numpyro, pymc, blackjax' 2>/dev/null || $(BIN)/python -m pip install --quiet -e '.[race]'
	@$(BIN)/python -m benchmarks.race
endif

experiments: $(READY)
	@$(BIN)/python -m experiments $(or $(NAME),all) $(if $(RUNS),--runs $(RUNS)) $(if $(OUT),--out $(OUT))

lock: $(READY)
	@CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade --strip-extras --allow-unsafe --no-emit-index-url \
	  --no-emit-find-links --no-emit-trusted-host --no-emit-options --output-file $(VENV)/pins.txt requirements.in
	@{ cat $(VENV)/pins.txt; printf '\n# cvlib itself, from this folder\n-e .\n'; } > requirements.txt
	@echo "requirements.txt holds $$(grep -c == requirements.txt) pins; run make test before you commit them"

clean:
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache book/.ruff_cache .hypothesis

distclean: clean
	rm -rf $(VENV) *.egg-info
