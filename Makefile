# `make demo` and `make test` do everything from a fresh clone: environment, build, run. All targets are incremental.
PYTHON ?= python3
JOBS ?= 2
WHEELS ?= dist
BIN := .venv/bin
PY := $(BIN)/python
# Two makes at once must not build into one folder.
LOCK := $(if $(shell command -v flock),flock build/.lock)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
# Images of containers set it. pip compiles nothing ahead here, so every process would compile torch's modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-all test-setups test-long test-torch test-torch-next asan tsan coverage test-libraries test-suites test-opencl test-portable test-teams test-compile test-conformance test-vendor test-cuda test-hip opencl intel rivals nvrtc nvidia hip hip-headers ascend-vendor ascend-stand-in test-ascend-judge ascend-headers test-ascend test-ascend-conformance test-ascend-kernels test-diopi fuzz
.PHONY: site tidy examples fast bench bench-models bench-opencl bench-compile bench-quant bench-ship bench-cuda lint format docs build wheel clean distclean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

# `CAUSEWAY_VENDOR=opencl make demo` runs on OpenCL: its package is put beside, not into the environment, where it
# would become the chip of everything else.
OPENCL := build/opencl/package
ifeq ($(CAUSEWAY_VENDOR),opencl)
demo: opencl
demo: export PYTHONPATH := $(OPENCL)
endif

demo: build ## train a network on real digits, three times, on a chip that offers more each time
	$(PY) examples/ladder.py

test: lint build ## lint and the whole suite
	$(PY) tests/setups.py suite daily

test-all: test test-setups test-long test-torch test-libraries test-opencl test-portable test-teams test-compile test-conformance test-cuda test-hip bench ## everything there is

test-setups: build ## the device suite in its five set-ups, each alone
	$(PY) tests/setups.py setups

test-long: build ## what takes too long for every day
	$(PY) tests/setups.py long

test-torch: build ## torch's databases whole, all dtypes; writes tests/torch/results.json
	$(PY) tests/torch/results.py
	$(PY) tests/torch/results.py --docs

test-torch-next: .venv/deps ## on another torch, TORCH=2.15.0, in build/torch-<release> (5 GB); writes docs/torch.md
	@mkdir -p build
	$(PY) tests/releases.py $(TORCH)
test-torch-next: TORCH ?= 2.15.0

# In folders of their own, so that the build for every day stays; a core built anew takes ten minutes.
asan: .venv/causeway ## tests of memory under AddressSanitizer and UBSan, in build/asan; half an hour
	$(PY) tests/sanitizers/run.py address

tsan: .venv/causeway ## tests of threads under ThreadSanitizer, in build/tsan; half an hour
	$(PY) tests/sanitizers/run.py thread

coverage: .venv/causeway ## the lines that the tests run, Python and C++, in build/coverage: an hour
	$(PY) tests/line_coverage.py

test-libraries: build .venv/libraries ## the libraries of docs/libraries.md, all; writes its table
	$(PY) tests/libraries/results.py

test-suites: build ## others' test suites on the CPU and on the device, from PyPI, in build/suites; writes docs/suites.md
	$(PY) tests/suites/run.py

opencl: .venv/deps ## the OpenCL vendor's package, in build/opencl
	@mkdir -p build
	$(LOCK) $(PY) -m pip install -q --no-deps --no-build-isolation --upgrade --target $(OPENCL) ./vendors/opencl

# RUNTIME=intel: what runs on OpenCL runs on Intel's runtime for CPUs, not on the one that is installed.
RUNS_OPENCL := demo test-opencl test-conformance bench-models bench-opencl test-compile bench-compile bench-quant bench-ship
ifeq ($(RUNTIME),intel)
$(RUNS_OPENCL): intel
$(RUNS_OPENCL): export OCL_ICD_VENDORS := $(CURDIR)/build/intel/lib/libintelocl.so
endif

# RUNTIME=rusticl: on Mesa's, by its software driver: OpenCL 3.0 without shared memory and doubles, a launch takes 20 ms.
ifeq ($(RUNTIME),rusticl)
RUSTICL := $(firstword $(wildcard /usr/lib/*/libRusticlOpenCL.so.1))
$(if $(RUSTICL),,$(error RUNTIME=rusticl needs Mesa's OpenCL: apt-get install mesa-opencl-icd))
$(RUNS_OPENCL): export OCL_ICD_VENDORS := $(RUSTICL)
$(RUNS_OPENCL): export RUSTICL_ENABLE := swrast
$(RUNS_OPENCL): export PYTEST_TIMEOUT := 1500
endif

intel: .venv/deps ## Intel's OpenCL runtime for CPUs, in build/intel, for `make RUNTIME=intel` with what runs on OpenCL
	@mkdir -p build
	test -x build/intel/bin/python || $(PYTHON) -m venv --without-pip build/intel
	$(LOCK) $(PY) -m pip --python build/intel/bin/python install -q $(INTEL:%=intel-%==2026.2.0)
INTEL = opencl-rt cmplr-lib-rt

test-opencl: build opencl ## the device suite on OpenCL
	PYTHONPATH=$(OPENCL) $(PY) tests/setups.py opencl-fine opencl-buffer

test-portable: build ## every portable kernel against the CPU, on the simulated chip
	CAUSEWAY_SIM_CODE=1 CAUSEWAY_SIM_OPS=none $(PY) tests/portable/cases.py all
	CAUSEWAY_SIM_CODE=1 CAUSEWAY_SIM_OPS=none $(PY) tests/portable/database.py all
	CAUSEWAY_SIM_CODE=1 CAUSEWAY_SIM_OPS=none $(PY) tests/portable/foreach.py all
	CAUSEWAY_SIM_CODE=1 CAUSEWAY_SIM_OPS=none $(PY) tests/portable/strides.py all
	CAUSEWAY_SIM_CODE=1 CAUSEWAY_SIM_OPS=none $(PY) tests/random_programs.py 0 2000

# As GPUs get them, each access looked at: docs/sim.md.
TEAMS = CAUSEWAY_SIM_TEAMS=1 CAUSEWAY_SIM_OPS=none CAUSEWAY_SIM_MEMORY_MODEL=discrete CAUSEWAY_MEMORY_CACHE=0 CAUSEWAY_TUNE=off
test-teams: build ## every portable kernel and compiled graphs under the simulated chip's model of a GPU: hours
	$(TEAMS) $(PY) tests/portable/cases.py teams
	$(TEAMS) $(PY) tests/portable/database.py all
	$(TEAMS) CAUSEWAY_SIM_MEMORY_MODEL=unified $(PY) tests/portable/foreach.py all
	$(TEAMS) $(PY) tests/portable/strides.py all
	$(TEAMS) $(PY) tests/portable/models.py digits gpt lstm gru unet
	$(TEAMS) $(PY) tests/compile/random_graphs.py 0 100
	$(TEAMS) $(PY) tests/compile/sweep.py

# Each form of kernels: items in turn with C, and in turn and in parallel with OpenCL.
test-compile: build opencl ## models, random graphs and torch's operators, compiled against eager: hours
	CAUSEWAY_SIM_CODE=1 $(PY) tests/compile/programs.py
	CAUSEWAY_SIM_CODE=1 $(PY) tests/compile/models.py
	CAUSEWAY_SIM_CODE=1 $(PY) tests/compile/networks.py
	CAUSEWAY_SIM_CODE=1 $(PY) tests/compile/random_graphs.py 0 500
	CAUSEWAY_SIM_CODE=1 $(PY) tests/compile/random_graphs.py 500 700 --dynamic
	CAUSEWAY_SIM_CODE=1 $(PY) tests/compile/sweep.py
	CAUSEWAY_SIM_CODE=1 $(PY) tests/compile/sweep.py --backward
	CAUSEWAY_SIM_CODE=1 $(PY) tests/compile/sweep.py --dynamic
	for dtype in float16 bfloat16 int64 bool; do CAUSEWAY_SIM_CODE=1 $(PY) tests/compile/sweep.py --dtype $$dtype || exit 1; done
	for turn in 0 1; do export PYTHONPATH=$(OPENCL) CAUSEWAY_VENDOR=opencl CAUSEWAY_OPENCL_IN_TURN=$$turn; \
		$(PY) tests/compile/programs.py && $(PY) tests/compile/networks.py && \
		$(PY) tests/compile/random_graphs.py 0 300 && \
		$(PY) tests/compile/random_graphs.py 500 600 --dynamic && $(PY) tests/compile/sweep.py || exit 1; done

test-conformance: build opencl ## every portable kernel by the conformance suite, on OpenCL: an hour and more
	PYTHONPATH=$(OPENCL) CAUSEWAY_VENDOR=opencl POCL_MAX_PTHREAD_COUNT=1 \
		$(BIN)/causeway conformance --portable --level 0 -n 2 --html build/portable.html

test-vendor: build ## the device suite on the vendor of CAUSEWAY_VENDOR, a name or the path of a library
	$(PY) tests/setups.py vendor

# torch_npu's wheel has AscendCL's headers and the names of aclnn's operators; it is unpacked, and not installed.
ascend-headers: .venv/deps ## what the vendor of Ascend's NPUs declares, against torch_npu's headers; FOLDER=aclnnop of an installed CANN too
	@mkdir -p build/ascend-headers
	test -d build/ascend-headers/torch_npu || ($(PY) -m pip download -q --no-deps --only-binary=:all: --platform manylinux_2_28_x86_64 \
		--python-version 311 -d build/ascend-headers torch_npu==2.13.0 && $(PY) -m zipfile -e build/ascend-headers/torch_npu-*.whl build/ascend-headers)
	$(PY) -m pytest -q -n0 tests/ascend/test_headers.py
ifdef FOLDER
	$(MAKE) ascend-vendor
	$(PY) tests/ascend/rows.py $(ASCEND_VENDOR) $(FOLDER)
endif

ASCEND_VENDOR := build/ascend-vendor/libcw_ascend.so
ASCEND = CAUSEWAY_VENDOR=$(abspath $(ASCEND_VENDOR)) CAUSEWAY_ASCEND_LIBRARIES=$(abspath build/ascend-stand-in/lib)
ASCEND_950 = $(ASCEND) ASCEND_STAND_IN_SOC=Ascend950PR_9599 CAUSEWAY_TUNE=off
ascend-vendor: ## the vendor of Ascend's NPUs, in build/ascend-vendor, for its runs on the stand-in
	cmake -S vendors/ascend -B build/ascend-vendor > /dev/null && cmake --build build/ascend-vendor -j $(JOBS)

test-ascend: build ascend-vendor ascend-stand-in ## the vendor of Ascend's NPUs on the stand-in: its tests, the device suite on two chips, the demo
	$(PY) -m pytest -q tests/ascend
	$(ASCEND) $(PY) tests/setups.py vendor
	$(ASCEND_950) $(PY) tests/setups.py vendor
	$(ASCEND) $(PY) examples/ladder.py --epochs 1 --accuracy 0.8

test-ascend-conformance: build ascend-vendor ascend-stand-in ## every operator of Ascend's NPUs on the stand-in by the conformance suite
	$(ASCEND) $(BIN)/causeway conformance -n $(JOBS) --known vendors/ascend/known.toml --html build/ascend.html

# Of the 950's threads. Without the chip's own operators, which would serve first.
test-ascend-kernels: build ascend-vendor ascend-stand-in ## every portable kernel as Ascend's 950 gets it, compiled for the host: hours
	$(ASCEND_950) CAUSEWAY_ASCEND_OPS=0 $(BIN)/causeway conformance --portable --level 0 -n $(JOBS) --html build/ascend-kernels.html

# HEADERS=proto/include of DIOPI: its own headers instead of ours, for the table and for the library.
DIOPI = $(if $(HEADERS),-DDIOPI_INCLUDE=$(HEADERS),-UDIOPI_INCLUDE)
test-diopi: build ## the vendor for libraries of DIOPI's functions, on one in plain C++: its tests, conformance of table and operators
	cmake -S vendors/diopi -B build/diopi-vendor $(DIOPI) > /dev/null && cmake --build build/diopi-vendor -j $(JOBS)
	cmake -S tests/diopi/library -B build/diopi-library $(DIOPI) > /dev/null && cmake --build build/diopi-library -j $(JOBS)
	$(PY) -m pytest -q tests/diopi
	CAUSEWAY_VENDOR=build/diopi-vendor/libcw_diopi.so CAUSEWAY_DIOPI_LIBRARY=build/diopi-library/lib/libdiopi_impl.so \
		$(BIN)/causeway conformance -n $(JOBS)

ascend-stand-in: ## stand-ins for the libraries of Ascend's chips, in build/ascend-stand-in/lib
	@mkdir -p build/ascend-stand-in
	cmake -S vendors/ascend_stand_in -B build/ascend-stand-in -DCMAKE_BUILD_TYPE=Release > build/ascend-stand-in/cmake.log
	cmake --build build/ascend-stand-in -j $(JOBS) > build/ascend-stand-in/build.log || (cat build/ascend-stand-in/build.log && false)

# An environment of its own: torch_npu is another adapter for the same torch, the two never meet. torch comes as .venv's does.
ASCEND_JUDGE = torch==2.13.0 torch_npu==2.13.0 pyyaml numpy scikit-learn
test-ascend-judge: build ascend-vendor ascend-stand-in ## Huawei's torch_npu trains small models on the stand-ins, in build/ascend-judge (1 GB)
	test -x build/ascend-judge/bin/python || $(PYTHON) -m venv build/ascend-judge
	build/ascend-judge/bin/python -m pip install -q $(ASCEND_JUDGE)
	$(PY) tests/ascend_stand_in/judge.py build/ascend-judge/bin/python $(ASCEND_VENDOR)

nvrtc: .venv/deps ## CUDA's run-time compilers, 12's and 13's, in build/nvrtc
	@mkdir -p build
	$(LOCK) $(PY) -m pip install -q --no-deps --upgrade --target build/nvrtc nvidia-cuda-nvrtc-cu12==12.9.86 nvidia-cuda-nvrtc==13.0.88

NVIDIA = cublas-cu12==12.9.3.13 cudnn-cu12==9.28.0.42 cuda-runtime-cu12==12.9.79 cuda-nvrtc-cu12==12.9.86 \
	cuda-nvcc-cu12==12.9.86 cuda-cccl-cu12==12.9.27 \
	cublas==13.10.0.20 cuda-runtime==13.0.96 cuda-nvrtc==13.0.88 cuda-crt==13.0.88 \
	cuda-cccl==13.0.85
nvidia: .venv/deps ## cuBLAS, cuDNN and their headers, in build/nvidia (3 GB), for tests that compare with them
	@mkdir -p build
	$(LOCK) $(PY) -m pip install -q --no-deps --upgrade --target build/nvidia $(NVIDIA:%=nvidia-%)

test-cuda: build nvrtc ## every portable kernel compiled for sm_90; nothing runs on a GPU
	$(PY) -m pytest -q tests/cuda

build/hip/fetched: | .venv/deps
	$(PY) tests/hip/fetch.py build/hip
hip: build/hip/fetched ## HIP's run-time compiler and headers, of Debian's packages, in build/hip

hip-headers: hip ## the headers of HIP 7.1 too, of a wheel of 290 MB, for tests that compare with them
	test -d build/hip/newer || $(PY) tests/hip/fetch.py build/hip --headers

test-hip: build hip ## every portable kernel compiled for gfx90a and gfx1030; nothing runs on a GPU
	$(PY) -m pytest -q tests/hip

# As who has installed the package builds them: its headers, and its library or its archive. LIBRARY=/path/to/libcw_x.so is
# another chip than the simulated one.
LIBRARY ?= src/causeway/lib/libcw_sim.so
SHIP := build/examples
PACKAGE := src/causeway
examples: export CAUSEWAY_SIM_CODE := 1
examples: build ## a model as a file, run from C, C++ and Python without torch: all print the same digits
	@mkdir -p $(SHIP)
	CAUSEWAY_VENDOR=$(abspath $(LIBRARY)) $(PY) examples/ship/export.py $(SHIP) > $(SHIP)/torch.txt
	$(CC) -std=c11 -O2 -Wall -Wextra -Wpedantic -I $(PACKAGE)/include examples/ship/infer.c $(PACKAGE)/lib/libcw_run.a -ldl -lpthread -o $(SHIP)/infer-c
	$(CXX) -std=c++17 -O2 -Wall -Wextra -Wpedantic -I $(PACKAGE)/include examples/ship/infer.cpp -L $(PACKAGE)/lib -lcw_run -Wl,-rpath,$(abspath $(PACKAGE)/lib) -o $(SHIP)/infer-c++
	$(SHIP)/infer-c $(LIBRARY) $(SHIP)/digits.cw $(SHIP)/images.bin > $(SHIP)/c.txt
	$(SHIP)/infer-c++ $(LIBRARY) $(SHIP)/digits.cw $(SHIP)/images.bin > $(SHIP)/c++.txt
	$(PY) examples/ship/infer.py $(LIBRARY) $(SHIP)/digits.cw $(SHIP)/images.bin > $(SHIP)/python.txt
	@for who in c c++ python; do cmp $(SHIP)/torch.txt $(SHIP)/$$who.txt || exit 1; done
	@cat $(SHIP)/torch.txt && echo "torch, C, C++ and Python without torch print the same"

# FUZZ_SECONDS=3600 is an hour. What it found lies in build/fuzz as crash-*. It begins with what earlier runs found worth keeping,
# which tests/ship reads too; the smallest set of inputs that reaches as much is in build/fuzz/corpus.tar.xz, to be copied there.
FUZZ := build/fuzz
FUZZ_SECONDS ?= 60
fuzz: build ## the checks of model files under libFuzzer and sanitizers; needs clang
	@command -v clang > /dev/null || { echo "make fuzz needs clang with libFuzzer: apt-get install clang libclang-rt-14-dev"; exit 1; }
	@mkdir -p $(FUZZ)/corpus && rm -rf $(FUZZ)/smallest && mkdir $(FUZZ)/smallest
	$(PY) tests/ship/small.py $(FUZZ)/corpus
	tar -xJf tests/ship/corpus.tar.xz -C $(FUZZ)/corpus
	clang -std=gnu11 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -I run -I include tests/ship/fuzz.c run/check.c -o $(FUZZ)/fuzz
	$(FUZZ)/fuzz -max_total_time=$(FUZZ_SECONDS) -max_len=32768 -timeout=10 -print_final_stats=1 -artifact_prefix=$(FUZZ)/ $(FUZZ)/corpus
	$(FUZZ)/fuzz -merge=1 -max_len=32768 $(FUZZ)/smallest $(FUZZ)/corpus 2> $(FUZZ)/merge.log
	tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cJf $(FUZZ)/corpus.tar.xz -C $(FUZZ)/smallest .

fast: build ## what can be tested in under a minute
	$(PY) tests/setups.py fast

bench: build ## speed against stock CPU; writes benchmarks/results/
	$(PY) benchmarks/run.py

bench-opencl: build opencl ## speed of the portable kernels on OpenCL against stock CPU
	PYTHONPATH=$(OPENCL) CAUSEWAY_VENDOR=opencl $(PY) benchmarks/opencl.py

bench-models: build opencl ## speed of whole models on the simulated chip and on OpenCL against stock CPU
	$(PY) benchmarks/models.py
	PYTHONPATH=$(OPENCL) CAUSEWAY_VENDOR=opencl $(PY) benchmarks/models.py

bench-compile: build opencl ## speed of torch.compile on OpenCL against eager and stock torch.compile
	PYTHONPATH=$(OPENCL) CAUSEWAY_VENDOR=opencl CAUSEWAY_COMPILE=strict $(PY) benchmarks/compile.py

bench-quant: build opencl rivals ## speed of layers in integers on OpenCL against float32, onnxruntime, openvino and torchao
	PYTHONPATH=$(OPENCL) CAUSEWAY_VENDOR=opencl $(PY) benchmarks/quant.py

bench-ship: build opencl rivals ## speed of model files on OpenCL against stock torch, onnxruntime and openvino
	PYTHONPATH=$(OPENCL) CAUSEWAY_VENDOR=opencl $(PY) benchmarks/ship.py

# In an environment of its own: they bring what torch would import where it is there.
rivals: build/rivals/ready ## onnxruntime, openvino and torchao with a torch that writes ONNX, in build/rivals (1.3 GB)
build/rivals/ready: benchmarks/rivals.txt
	test -x build/rivals/bin/python || $(PYTHON) -m venv build/rivals
	build/rivals/bin/python -m pip install -q --no-compile -r $<
	@touch $@

bench-cuda: build nvrtc ## on a GPU of NVIDIA's: conformance, then speed against torch.cuda of TORCH_CUDA=/path/to/python
	@mkdir -p build
	$(LOCK) $(PY) -m pip install -q --no-deps --no-build-isolation --upgrade --target build/cuda/package ./vendors/cuda
	PYTHONPATH=build/cuda/package:build/nvidia:build/nvrtc CAUSEWAY_VENDOR=nvidia $(PY) benchmarks/gpu.py $(if $(TORCH_CUDA),--torch-cuda $(TORCH_CUDA))

lint: .venv/deps ## ruff, mypy, clang-format
	$(BIN)/ruff check -q .
	$(BIN)/ruff format -q --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.toml
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)

# A build folder without groups of files, so that each file is a unit. Nothing is built there. All files take half an hour.
FILES ?= $(filter csrc/% run/% vendors/sim/%,$(filter %.cpp %.c,$(CXX_FILES)))
tidy: .venv/deps build/tidy-env/ready ## clang-tidy over the C++ core and the simulated chip, or over FILES="csrc/ladder/call.cpp ..."
	@env PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S . -B build/tidy -G Ninja -DPython_EXECUTABLE=$(CURDIR)/$(PY) -DCAUSEWAY_UNITY=OFF > build/tidy.log
	printf '%s\n' $(FILES) | xargs -P $(JOBS) -n 1 build/tidy-env/bin/clang-tidy -p build/tidy --quiet --warnings-as-errors='*'

build/tidy-env/ready: Makefile
	test -x build/tidy-env/bin/python || $(PYTHON) -m venv build/tidy-env
	build/tidy-env/bin/python -m pip install -q clang-tidy==23.1.4
	@touch $@

format: .venv/deps ## put all files into the form that lint wants
	$(BIN)/ruff check -q --fix . ; $(BIN)/ruff format -q .
	$(BIN)/clang-format -i $(CXX_FILES)

docs: build ## write the generated tables of docs/ anew
	$(BIN)/causeway config --markdown > docs/settings.md
	$(PY) -m causeway.device --markdown > docs/device.md
	$(PY) -m causeway.redirect --markdown > docs/transfer.md
	$(BIN)/causeway operators --markdown > docs/operators.md
	$(BIN)/causeway compat show --markdown > docs/compat.md
	$(PY) -m causeway.migrate.docs docs/rules
	$(PY) tests/seeds/features.py
	$(BIN)/causeway operators --header > include/causeway/operators.hpp

# Neither torch nor the build is needed. Sphinx keeps what did not change in build/site/doctrees.
SITE_PY := build/site-env/bin/python
site: build/site-env/ready ## the docs as a site with an API reference, links checked, in build/site/html
	$(SITE_PY) docs/site/stage.py build/site/source
	$(SITE_PY) -m sphinx -q -W --keep-going -c docs/site -d build/site/doctrees build/site/source build/site/html
	$(SITE_PY) docs/site/links.py build/site/html

build/site-env/ready: docs/site/requirements.txt
	test -x $(SITE_PY) || $(PYTHON) -m venv build/site-env
	$(SITE_PY) -m pip install -q -r $<
	@touch $@

build: build/build.ninja .venv/causeway ## the C++ core and the simulated chip, into src/causeway
	@$(LOCK) $(BIN)/ninja -C build -j $(JOBS) --quiet
	@$(LOCK) $(BIN)/cmake --install build --prefix src > build/install.log

wheel: .venv/deps ## a release wheel in dist/
	@mkdir -p build
	rm -f $(WHEELS)/causeway-*.whl
	$(LOCK) $(PY) -m pip wheel -q . --no-deps --no-build-isolation -w $(WHEELS)

clean: ## forget what was built
	rm -rf build dist src/causeway/_C.*.so src/causeway/lib src/causeway/include src/causeway/vendor-template

distclean: clean ## forget the environment too
	rm -rf .venv

CXX_FILES = $(shell git ls-files -co --exclude-standard '*.cpp' '*.hpp' '*.h' '*.c' | grep -v -e dlpack.h -e tests/abi/first/)

# Not compiled to bytecode: Python does so with what is imported, a small part, and a fresh clone is ready sooner.
.venv/deps: requirements-dev.txt
	test -x $(PY) || $(PYTHON) -m venv .venv
	$(PY) -m pip install -q --no-compile -r requirements-dev.txt
	@touch $@

# DeepSpeed is a source package; none of its kernels is built, they are CUDA. timm, torchvision and torchao lie beside the environment, for their tests:
# other libraries would import them where they are there.
.venv/libraries: requirements-libraries.txt .venv/deps
	DS_BUILD_OPS=0 $(PY) -m pip install -q --no-deps --no-build-isolation -r requirements-libraries.txt
	$(PY) -m pip install -q --no-deps --upgrade --target build/timm timm==1.0.31 torchvision==0.28.0 pillow==13.0.0
	$(PY) -m pip install -q --no-deps --upgrade --target build/diffusers diffusers==0.42.1 $(DIFFUSERS)
	$(PY) -m pip install -q --no-deps --upgrade --target build/torchao torchao==0.18.0
	$(PY) -m pip install -q --no-deps --upgrade --target build/diffusers-0.38.0 diffusers==0.38.0 $(DIFFUSERS)
	@touch $@

DIFFUSERS = pillow==13.0.0 importlib_metadata zipp requests charset-normalizer httpx httpcore

# Entry points and a path to src/; nothing is compiled here, and no Python edit needs it again.
.venv/causeway: pyproject.toml .venv/deps
	$(PY) -m pip install -q --no-deps --no-build-isolation -e . -C editable.mode=inplace -C wheel.cmake=false
	@touch $@

build/build.ninja: CMakeLists.txt .venv/deps
	@mkdir -p build
	$(LOCK) env PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S . -B build -G Ninja -DPython_EXECUTABLE=$(CURDIR)/$(PY) > build/cmake.log
	@touch $@
