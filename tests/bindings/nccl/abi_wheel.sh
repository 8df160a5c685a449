#!/bin/sh
# Compiles the checks of abi.h with NVIDIA's header of NCCL 2.32.3, where that is.
# Usage: abi_wheel.sh COMPILER SOURCES NCCL_INCLUDE CUDA_INCLUDE
if ! grep -q 'define NCCL_VERSION_CODE 23203' "$3/nccl.h" 2>/dev/null; then
  echo "skipped: NVIDIA's nccl.h of version 2.32.3 is not here (make test-torch installs it)"
  exit 77
fi
if ! [ -e "$4/cuda_runtime.h" ]; then
  echo "skipped: NVIDIA's nccl.h needs cuda_runtime.h, and there is no CUDA toolkit"
  exit 77
fi
exec "$1" -std=c++20 -fsyntax-only -I"$2" -isystem "$3" -isystem "$4" \
  "$2/tests/bindings/nccl/abi_nvidia.cpp"
