// SPDX-License-Identifier: Apache-2.0

// Loads the functions of NCCL that a group of cards uses, at run time. NCCL comes with PyTorch and
// with some installations of CUDA. Without NCCL the cards exchange values by copies.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lodestar::cuda {

// These types are equal to those of NVIDIA's nccl.h (2.x). The build does not need that header.
struct NcclCommunicator;
enum NcclResult : int { kNcclSuccess = 0 };
enum NcclDataType : int { kNcclFloat32 = 7 };
enum NcclReduction : int { kNcclSum = 0 };

struct NcclFunctions {
  NcclResult (*get_version)(int* version) = nullptr;
  const char* (*get_error_string)(NcclResult result) = nullptr;
  NcclResult (*comm_init_all)(NcclCommunicator** communicators, int count,
                              const int* devices) = nullptr;
  NcclResult (*comm_destroy)(NcclCommunicator* communicator) = nullptr;
  NcclResult (*comm_abort)(NcclCommunicator* communicator) = nullptr;
  NcclResult (*comm_get_async_error)(NcclCommunicator* communicator, NcclResult* error) = nullptr;
  NcclResult (*group_start)() = nullptr;
  NcclResult (*group_end)() = nullptr;
  NcclResult (*broadcast)(const void* from, void* to, size_t count, NcclDataType type, int root,
                          NcclCommunicator* communicator, cudaStream_t stream) = nullptr;
  NcclResult (*reduce)(const void* from, void* to, size_t count, NcclDataType type,
                       NcclReduction reduction, int root, NcclCommunicator* communicator,
                       cudaStream_t stream) = nullptr;
};

using NcclLoader = absl::StatusOr<NcclFunctions> (*)();

// Loads NCCL. Errors: NotFound (with the paths that were tried); Unavailable (a function is
// missing).
absl::StatusOr<NcclFunctions> LoadNccl();

// Returns a number of ncclGetVersion() as text, such as "2.28.9".
std::string NcclVersionText(int version);

}  // namespace lodestar::cuda
