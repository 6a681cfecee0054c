# Causeway with the simulated chip and OpenCL on the CPU: for a look, and for tests on a machine of one's own.
#
#   docker build -t causeway .                # the wheel is built in the first stage
#   docker run --rm causeway causeway doctor
#   docker build --target development -t causeway-dev . && docker run --rm causeway-dev make test
ARG PYTHON=3.11

FROM python:${PYTHON}-slim-bookworm AS development
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ make git pocl-opencl-icd ocl-icd-libopencl1 opencl-c-headers \
 && rm -rf /var/lib/apt/lists/*
ENV PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu PIP_NO_CACHE_DIR=1
WORKDIR /causeway
# The environment first: it changes less often than the code.
COPY Makefile requirements-dev.txt ./
RUN make .venv/deps
COPY . .
RUN make build wheel JOBS="$(nproc)"

FROM python:${PYTHON}-slim-bookworm
# The wheel needs no compiler; g++ is for kernels that the simulated chip and PoCL build on this machine.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ pocl-opencl-icd ocl-icd-libopencl1 \
 && rm -rf /var/lib/apt/lists/*
ENV PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu PIP_NO_CACHE_DIR=1
# The torch that the wheel was built for.
RUN --mount=type=bind,from=development,source=/causeway,target=/causeway \
    pip install "$(grep '^torch==' /causeway/requirements-dev.txt)" /causeway/dist/causeway-*.whl
RUN useradd --uid 1000 --create-home user
USER 1000
WORKDIR /home/user
CMD ["causeway", "doctor"]
