// What a .cu.cc file gets from <cuda_runtime.h>, without a CUDA toolkit.
#pragma once

#include "cuda_runtime_api.h"
#include "kernels/cuda/emulator/device_language.h"
