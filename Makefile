# `make` or `make help` lists what there is.
.DEFAULT_GOAL := help
BIN := .venv/bin
COMPOSE := docker compose

.PHONY: help setup demo cluster-demo test test-all test-faults test-cluster bench docs screenshots lint lock

help:  ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup:  ## .venv with all packages and jars (needs Python 3.11 and Java 17 or 21)
	@scripts/setup

demo: setup  ## the main job on five positions, end to end
	@$(BIN)/shardpost demo

cluster-demo:  ## the same on the system of docker-compose.yml, which is up
	@$(COMPOSE) version > /dev/null 2>&1 || \
	  { echo "make: found no '$(COMPOSE)': name yours, as COMPOSE=.venv/bin/docker-compose" >&2; exit 1; }
	@$(COMPOSE) exec -T airflow-scheduler shardpost topics apply --yes
	@$(COMPOSE) exec -T airflow-scheduler python -m shardpost.embedded.demo http://mailpit:8025

test: setup  ## the tests, three at a time, of many cases some (one tier alone: .venv/bin/pytest tests/unit)
	@$(BIN)/pytest --numprocesses 3

test-all: setup  ## the same tests, each as far as it goes: all cases, more kills, long histories
	@$(BIN)/pytest --numprocesses 3 --all --durations 40

test-faults: setup  ## each fault of a cluster, ARGS at random, each test on a store (root; hours)
	@$(BIN)/pytest tests/cluster --all --faults $(or $(ARGS),12)
	@$(BIN)/pytest tests/unit tests/spark tests/broker --numprocesses 4 --all --on-store

test-cluster: setup  ## docker-compose.yml brought up for real, with stand-ins of foreign images (root, Docker)
	@$(BIN)/pytest tests/containers --containers

bench: setup  ## measure; ARGS="emails", "growth", … as in bench/README.md
	@$(BIN)/python -m bench $(or $(ARGS),holders)

docs:  ## the documents as a site, in artifacts/site (mkdocs)
	@scripts/docs

screenshots: setup  ## docs/pictures anew: each page of a stack of its own, and the demo (chromium)
	@PYTHONPATH=. $(BIN)/python docs/generate_pictures.py $(ARGS)

lint: setup  ## format, lint, types, imports
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

lock:  ## regenerate requirements.txt from requirements.in
	@scripts/lock
