// SPDX-License-Identifier: Apache-2.0

// A graph of operations for cuDNN's backend API. cuDNN looks for patterns in the graph for which it
// has kernels, such as attention, and makes a plan from these kernels.
#pragma once

#include <cudnn_graph.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/cudnn_api.h"

namespace lodestar::cuda {

class CudnnDescriptorReleaser {
 public:
  CudnnDescriptorReleaser() = default;
  // `api` must outlive all descriptors that it releases.
  explicit CudnnDescriptorReleaser(const CudnnApi* api) : api_(api) {}
  void operator()(void* descriptor) const { api_->destroy_descriptor(descriptor); }

 private:
  const CudnnApi* api_ = nullptr;
};
using CudnnDescriptor = std::unique_ptr<void, CudnnDescriptorReleaser>;

// The device for which plans are made: the current CUDA device, or only the properties of a device.
class CudnnTarget {
 public:
  // Returns a target for the current CUDA device. Loads cuDNN's code for it. Errors: those of
  // cuDNN.
  static absl::StatusOr<std::shared_ptr<const CudnnTarget>> PresentDevice(
      std::shared_ptr<const CudnnApi> api);
  // Returns a target for which plans can be made but not run. `json` has the form of
  // CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION.
  static absl::StatusOr<std::shared_ptr<const CudnnTarget>> WithProperties(
      std::shared_ptr<const CudnnApi> api, const std::string& json);
  ~CudnnTarget();

  const CudnnApi& api() const { return *api_; }
  // If only the properties of the device are known, handle() is null. Otherwise properties() is
  // null.
  cudnnHandle_t handle() const { return handle_; }
  void* properties() const { return properties_.get(); }

 private:
  explicit CudnnTarget(std::shared_ptr<const CudnnApi> api) : api_(std::move(api)) {}

  const std::shared_ptr<const CudnnApi> api_;
  cudnnHandle_t handle_ = nullptr;
  CudnnDescriptor properties_;
};

// The layout of a tensor with four dimensions. Sizes and strides are in elements.
struct CudnnLayout {
  std::array<int64_t, 4> sizes;
  std::array<int64_t, 4> strides;

  // Returns this layout with the last two dimensions exchanged.
  CudnnLayout Transposed() const;
};

// A tensor, which is an edge of the graph.
struct CudnnTensor {
  int64_t id;
  CudnnLayout layout;
  CudnnDescriptor descriptor;
};

// A number in host memory that operations use.
struct CudnnScalar {
  int64_t id;
  float value;
};

struct CudnnPlan {
  CudnnDescriptor descriptor;
  size_t workspace_bytes = 0;
};

// Queues a plan of `target`. `ids` are the ids of stored tensors and scalars, and `pointers` are
// their addresses. Scalars are in host memory, which the function reads before it returns. Errors:
// those of cuDNN; FailedPrecondition (only the properties of the device are known).
absl::Status RunCudnnPlan(const CudnnTarget& target, const CudnnPlan& plan,
                          std::span<const int64_t> ids, std::span<void* const> pointers,
                          void* workspace, cudaStream_t stream);

// A graph of operations. Sums are in fp32. Results that are not stored are in fp32, unless they are
// given another type. After the first failure, methods do nothing, and Plan() returns the failure.
class CudnnGraph {
 public:
  using Tensor = const CudnnTensor*;  // a tensor lives as long as the graph

  explicit CudnnGraph(std::shared_ptr<const CudnnTarget> target) : target_(std::move(target)) {}

  // Adds a tensor in device memory that begins at a multiple of `alignment` bytes.
  Tensor Stored(const CudnnLayout& layout, cudnnDataType_t type, int64_t alignment = 16);
  // Adds an fp32 tensor to which products are added. Before a run, the caller must set its device
  // memory to 0. cuDNN chooses the order of its elements.
  Tensor Accumulator(const CudnnLayout& layout);
  // Adds a tensor that one operation passes to another without storing it in memory.
  Tensor Passing(const CudnnLayout& layout, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  Tensor Scalar(float value);
  const std::vector<CudnnScalar>& scalars() const { return scalars_; }

  // Each function below adds an operation. Its last argument is the result, which it also returns.
  // If an operand has a size of 1 in a dimension, its elements are repeated along that dimension.
  Tensor Unary(cudnnPointwiseMode_t mode, Tensor x, Tensor y);
  Tensor Binary(cudnnPointwiseMode_t mode, Tensor a, Tensor b, Tensor y);
  // Sets y to the booleans a >= b.
  Tensor IsAtLeast(Tensor a, Tensor b, Tensor y);
  // Sets y to each element's index along `axis`, as int32.
  Tensor Index(Tensor x, int64_t axis, Tensor y);
  // Sets y to a where `condition` is true, else to b.
  Tensor Select(Tensor condition, Tensor a, Tensor b, Tensor y);
  // Reduces x to y along the dimensions in which y has a size of 1.
  Tensor Reduce(cudnnReduceTensorOp_t mode, Tensor x, Tensor y);
  // Sets y to the matrix product a b over the last two dimensions.
  Tensor Multiply(Tensor a, Tensor b, Tensor y);
  // Copies the elements of x to y, which has another layout.
  Tensor Reshape(Tensor x, Tensor y);

  // Returns the plan that cuDNN's heuristic expects to be the fastest. With `repeats`, it must also
  // give equal bits in equal runs. Errors: Unimplemented (there is no plan); those of cuDNN.
  absl::StatusOr<CudnnPlan> Plan(bool repeats);

 private:
  struct Operands {
    Tensor x, b, t, y;
  };
  Tensor Add(const CudnnLayout& layout, cudnnDataType_t type, int64_t alignment, bool is_passing,
             bool is_scalar, bool is_accumulator = false);
  Tensor Pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t math, const Operands& operands,
                   const int64_t* axis = nullptr);
  // Returns the configurations that cuDNN's heuristic names. The one that it expects to be the
  // fastest comes first.
  std::vector<CudnnDescriptor> FindConfigurations(void* graph);
  bool Repeats(void* configuration);

  const std::shared_ptr<const CudnnTarget> target_;
  absl::Status status_;
  std::deque<CudnnTensor> tensors_;
  std::vector<CudnnScalar> scalars_;
  std::vector<CudnnDescriptor> operations_;
  std::vector<CudnnDescriptor> parts_;  // descriptors of parts of operations
};

}  // namespace lodestar::cuda
