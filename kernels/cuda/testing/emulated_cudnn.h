// SPDX-License-Identifier: Apache-2.0

// cuDNN's backend API for the calls that the plugin makes. Graphs are computed on the host, node by
// node, in fp64. So tests without a card show what our graphs compute. Only the operations of
// cudnn_graph.h are implemented. Every graph has a plan.
//
// Virtual tensors, which only connect the nodes of a graph, stay in fp64, whatever their type is.
// All other tensors are read and written in their own type, at the addresses that the caller
// passes.
#pragma once

#ifdef LODESTAR_HAS_CUDNN

#include <cstddef>
#include <memory>

#include "kernels/cuda/cudnn_api.h"

namespace lodestar::cuda {

// Size of the workspace of each plan, which a run fills with NaN.
inline constexpr size_t kEmulatedCudnnWorkspaceBytes = 512;

// Returns the functions of a cuDNN of this version, which must be 91500 or 91600.
template <size_t version>
std::shared_ptr<const CudnnApi> EmulatedCudnn();

// Returns the number of graphs that have run since the process began.
int num_cudnn_runs();

}  // namespace lodestar::cuda

#endif
