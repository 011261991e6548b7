// cuDNN's backend API as the plugin calls it, with graphs that are computed on the host, node by
// node, in fp64: what a graph of ours means, without a card. It knows the operations of
// cudnn_graph.h only, and makes a plan for each graph.
//
// Tensors that are not stored keep fp64, whatever their type. Stored ones are read and written in
// theirs, where the caller has said that they are.
#pragma once

#ifdef LODESTAR_HAS_CUDNN

#include <cstddef>
#include <memory>

#include "kernels/cuda/cudnn_api.h"

namespace lodestar::cuda {

// Each plan says that it wants that much workspace, and writes NaN all over it when it runs.
inline constexpr size_t kEmulatedCudnnWorkspaceBytes = 512;

// Functions of a cuDNN that says that it is of `version`: 91500 or 91600.
template <size_t version>
std::shared_ptr<const CudnnApi> EmulatedCudnn();

// Number of graphs that have run since the process began.
int num_cudnn_runs();

}  // namespace lodestar::cuda

#endif
