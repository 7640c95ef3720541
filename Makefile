# What a contributor types. CI runs `.ci/run`, which is these and a little more.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help tools dev test fmt lint doc bench

# The folder that `make dev` serves, and flags for it: make dev DIR=my/manifests ARGS='--http 127.0.0.1:8000'
DIR ?= examples/
ARGS ?=

# The benches run on Linux alone.
ALL := --workspace $(if $(filter Linux,$(shell uname)),,--exclude tidegate-bench)

help:
	@echo 'make dev    serve examples/ on this machine, without a cluster'
	@echo 'make test   every test; lists the skipped ones at the end'
	@echo 'make fmt    format'
	@echo 'make lint   clippy, warnings are errors'
	@echo 'make doc    the documentation of every crate'
	@echo 'make bench  the micro-benchmarks'

# What a build needs: cargo, a C compiler, cmake. Missing ones are installed where the package manager may be used
# without a question, and named otherwise.
tools:
	@missing=; \
	command -v cc >/dev/null 2>&1 || missing="$$missing cc"; \
	command -v cmake >/dev/null 2>&1 || missing="$$missing cmake"; \
	if [ -n "$$missing" ]; then \
	  if command -v apt-get >/dev/null 2>&1; then \
	    install='apt-get install -y build-essential cmake'; refresh='apt-get update -qq'; \
	  elif command -v dnf >/dev/null 2>&1; then install='dnf install -y gcc gcc-c++ make cmake'; refresh=true; \
	  elif command -v apk >/dev/null 2>&1; then install='apk add build-base cmake'; refresh=true; \
	  elif command -v brew >/dev/null 2>&1; then install='brew install cmake'; refresh=true; \
	  else install=; fi; \
	  if [ -z "$$install" ]; then echo "missing:$$missing; install them and try again"; exit 1; fi; \
	  case "$$install" in \
	    brew*) root=;; \
	    *) if [ "$$(id -u)" = 0 ]; then root=; \
	       elif sudo -n true 2>/dev/null; then root='sudo -n'; \
	       else echo "missing:$$missing; run: sudo $$install"; exit 1; fi;; \
	  esac; \
	  echo "missing:$$missing; running: $$install"; \
	  $$root $$refresh && $$root $$install >/dev/null || { echo "that failed; run: $$install"; exit 1; }; \
	fi
	@command -v cargo >/dev/null 2>&1 || { \
	  echo "missing: cargo; run: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"; exit 1; }
	@needed=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml); \
	found=$$(cargo --version 2>/dev/null | awk '{ print $$2 }'); \
	if [ -z "$$found" ]; then echo "cargo does not run; try: rustup toolchain install"; exit 1; fi; \
	if [ "$$(printf '%s\n' "$$needed" "$$found" | sort -t. -k1,1n -k2,2n | head -n 1)" != "$$needed" ]; then \
	  echo "cargo $$found is too old (needed: $$needed or later); run: rustup update, or install Rust by https://rustup.rs"; exit 1; fi

dev: tools
	cargo run --locked --release -- dev $(DIR) $(ARGS)

test: tools
	.ci/test

fmt: tools
	cargo fmt --all

lint: tools
	cargo clippy --locked $(ALL) --all-targets --release -- -D warnings

doc: tools
	RUSTDOCFLAGS='-D warnings' cargo doc --locked $(ALL) --no-deps --release

bench: tools
	cargo bench --locked -p tidegate-bench
