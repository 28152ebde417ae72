# make             build/qkv, build/libqkv and build/libqkv_vision (.a, .so; installs missing Debian packages first)
# make demo        classify handwritten digits with a small trained Vision Transformer
# make demo-minilm similarity of sentences with real 22M-parameter weights (installs torch and transformers into .venv)
# make check       builds and runs the tests that need neither torch nor network
# make check-all   all tests; ends with "N passed, N failed"
# make coverage-attention   spellings, traps and models of attention: the figures of docs/ATTENTION.md
# make mutants     one token of every built-in rule changed: which does a proof catch
# make tutorial    draws the scene of docs/TUTORIAL-SAM3.md, runs its commands, writes what they print and show
# make install     [PREFIX=/usr/local DESTDIR=]; make uninstall takes the same files away; make deb writes dist/qkv_*.deb
# make abidiff     compares the interface with the last release's (needs abigail-tools)
# make wheel       a wheel of the Python package for any Linux with glibc 2.28 into dist/ (tools/wheels.py makes others)
# make release     VERSION=0.2.0: changelog, wheels, deb, source archive, SBOM and hashes in dist/, and the tag
# make soak        [MINUTES=120]: threads that load, run, fail and break off in one process, whose memory stays flat
# make analyze     gcc -fanalyzer, clang-tidy and cppcheck, without findings (minutes; not part of make check)
# make bench       [MINUTES=20]: bench/results/KIND.md, qkv beside PyTorch, ONNX Runtime and OpenVINO on this CPU
# make asan | tsan | fuzz | clean
PREFIX ?= /usr/local
PY = .venv/bin/python

.PHONY: all tests demo demo-minilm check check-all coverage-attention mutants tutorial abidiff
.PHONY: asan-build asan tsan-build tsan fuzz bench soak
.PHONY: analyze wheel prefixed install uninstall deb release clean
all: build/build.ninja
	@ninja -C build $(NINJAFLAGS) product
	@test -e build/qkv || ln -s cli/qkv build/qkv

build/build.ninja:
	@tools/setup.sh build
	@out=$$(meson setup build --prefix=$(PREFIX)) || { echo "$$out" | grep -A5 ERROR; exit 1; }

# Meson looks once more for what a first `make` did without.
tests: all
	@tools/setup.sh check
	@grep -q cmocka build/meson-info/intro-dependencies.json || meson setup --reconfigure build >/dev/null
	@ninja -C build $(NINJAFLAGS)

demo: all
	@sh examples/demo.sh

demo-minilm: all
	@tools/setup.sh minilm
	@sh examples/demo_minilm.sh

check: tests
	@tools/check.sh quick

check-all: build/build.ninja
	@meson configure build -Dwerror=true
	@$(MAKE) --no-print-directory tests
	@tools/check.sh all

coverage-attention: all
	@tools/setup.sh torch
	@$(PY) tests/spellings/coverage.py

# One token of every built-in rule changed: which does --prove catch? (docs/PROOF.md)
mutants: tests
	@$(PY) tools/mutants.py --list

tutorial: all
	@tools/setup.sh sam3
	@$(PY) tools/tutorial.py build/qkv

# -g1: reports name functions and lines, which is all that they use; whole debug information costs half as much more.
# -Og compiles in two thirds of the time of -O1. The address sanitizer sees null pointers and ends of objects, too.
sanitized = -Db_lundef=false -Doptimization=g -Ddebug=false
addresses = -Db_sanitize=address,undefined $(sanitized) -Dc_args='-g1 -fno-sanitize=null,object-size'
build-asan/build.ninja:
	@tools/setup.sh build
	@tools/setup.sh check
	@meson setup build-asan $(addresses) >/dev/null

# Inputs that reach new code are kept.
build-fuzz/build.ninja:
	@tools/setup.sh build
	@meson setup build-fuzz $(addresses) -Dbranches=true >/dev/null

# What the tests need: no libraries to be installed.
asan-build: build-asan/build.ninja
	@ninja -C build-asan $(NINJAFLAGS) meson-test-prereq

# Only the programs that start threads.
build-tsan/build.ninja:
	@tools/setup.sh build
	@tools/setup.sh check
	@meson setup build-tsan -Db_sanitize=thread $(sanitized) -Dlevel=gen -Dc_args=-g1 >/dev/null

tsan-build: build-tsan/build.ninja
	@ninja -C build-tsan tests/unit/test_team tests/unit/test_cancel tests/unit/test_shared \
	  tests/models/run_company tests/models/soak

tsan: tsan-build
	@meson test -C build-tsan --no-rebuild --print-errorlogs --suite threads

asan: asan-build
	@meson test -C build-asan --no-rebuild --print-errorlogs

abidiff:
	@tools/abi.sh

analyze: tests
	@tools/setup.sh analyze
	@$(PY) tools/analyze.py

fuzz: all
	@sh tests/fuzz/run.sh

soak: all
	@ninja -C build $(NINJAFLAGS) tests/models/soak
	@build/tests/models/soak tests/models/small --minutes $(or $(MINUTES),120)

bench: all
	@MINUTES=$(MINUTES) sh bench/run.sh

wheel:
	@tools/setup.sh build
	@tools/setup.sh wheel
	@tools/wheels.py

# What was configured before does not matter: PREFIX is set first.
prefixed: build/build.ninja
	@meson configure build -Dprefix=$(abspath $(PREFIX))
	@$(MAKE) --no-print-directory all

install: prefixed
	@DESTDIR=$(abspath $(DESTDIR)) meson install -C build --no-rebuild

uninstall: prefixed
	@tools/package.sh uninstall $(abspath $(DESTDIR))

deb:
	@$(MAKE) --no-print-directory prefixed PREFIX=/usr
	@tools/package.sh deb

release:
	@tools/release.sh "$(VERSION)"

clean:
	@rm -rf build build-asan build-fuzz build-tsan build-small build-wheel* build-release dist
