# AITER's kernels, and what verifies the rows that name them. Needs an MI350X or MI355X (gfx950):
#
#   docker build -t moeshapes .
#   docker run --rm --device /dev/kfd --device /dev/dri --group-add video --ipc host -v "$PWD/generated:/moeshapes/generated" moeshapes
#
# which judges every tuned row and leaves its records below generated/records. `moeshapes doctor` says what is missing.

# SGLang's public image for gfx950 on ROCm 7.2: the one that AITER's own CI builds AITER in
# (.github/workflows/kimi-downstream.yaml at the commit below). For an MI300X, take its mi30x sibling and GPU_ARCHS=gfx942.
ARG BASE=lmsysorg/sglang-rocm:v0.5.12.post1-rocm720-mi35x-20260531
FROM ${BASE}

# The commit that kernels, names and limits were read from; empty keeps the AITER of the image. Built as AITER's CI does:
# kernels are compiled when they are first needed.
ARG AITER_COMMIT=e4048607a535ace3a2b51ded31b1c8c2d45c0879
ARG GPU_ARCHS=gfx950
RUN if [ -n "$AITER_COMMIT" ]; then \
        { pip uninstall --yes amd-aiter aiter || true; } \
        && git clone --filter=blob:none https://github.com/ROCm/aiter /opt/aiter \
        && cd /opt/aiter \
        && git checkout --quiet "$AITER_COMMIT" \
        && git submodule update --init --recursive --filter=blob:none \
        && pip install --no-cache-dir --upgrade "pybind11>=3.0.1" \
        && PREBUILD_KERNELS=0 GPU_ARCHS="$GPU_ARCHS" pip install --no-cache-dir --editable . ; \
    fi

WORKDIR /moeshapes
COPY constraints.txt ./
# Never the image's torch, Triton or NumPy: they belong to its driver.
RUN pip install --no-cache-dir --constraint constraints.txt click jsonschema pyyaml safetensors tabulate
COPY . .
ENV PYTHONPATH=/moeshapes/tools

CMD ["make", "verify", "BACKEND=production", "VENV="]
