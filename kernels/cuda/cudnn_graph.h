// CudnnGraph is a graph of operations as cuDNN's backend API takes it. cuDNN makes a plan of it: it
// looks for patterns in the graph and has kernels for whole patterns, attention among them.
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
  // `api` must outlive what is released.
  explicit CudnnDescriptorReleaser(const CudnnApi* api) : api_(api) {}
  void operator()(void* descriptor) const { api_->destroy_descriptor(descriptor); }

 private:
  const CudnnApi* api_ = nullptr;
};
using CudnnDescriptor = std::unique_ptr<void, CudnnDescriptorReleaser>;

// The device that plans are made for: the present CUDA device, or a device of which only the
// properties are known.
class CudnnTarget {
 public:
  // Errors: those of cuDNN, which loads its code here.
  static absl::StatusOr<std::shared_ptr<const CudnnTarget>> PresentDevice(
      std::shared_ptr<const CudnnApi> api);
  // Plans for such a target can be made but not run. `json` has the form of
  // CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION.
  static absl::StatusOr<std::shared_ptr<const CudnnTarget>> WithProperties(
      std::shared_ptr<const CudnnApi> api, const std::string& json);
  ~CudnnTarget();

  const CudnnApi& api() const { return *api_; }
  // handle() is null if only the properties of the device are known; else properties() is null.
  cudnnHandle_t handle() const { return handle_; }
  void* properties() const { return properties_.get(); }

 private:
  explicit CudnnTarget(std::shared_ptr<const CudnnApi> api) : api_(std::move(api)) {}

  const std::shared_ptr<const CudnnApi> api_;
  cudnnHandle_t handle_ = nullptr;
  CudnnDescriptor properties_;
};

// The layout of a tensor with four dimensions; sizes and strides are in elements.
struct CudnnLayout {
  std::array<int64_t, 4> sizes;
  std::array<int64_t, 4> strides;

  // Returns this layout with the last two dimensions exchanged.
  CudnnLayout Transposed() const;
};

// An edge of the graph.
struct CudnnTensor {
  int64_t id;
  CudnnLayout layout;
  CudnnDescriptor descriptor;
};

// A number that operations take from host memory.
struct CudnnScalar {
  int64_t id;
  float value;
};

struct CudnnPlan {
  CudnnDescriptor descriptor;
  size_t workspace_bytes = 0;
};

// Queues a plan of `target`. `ids` are those of the stored tensors and scalars, and `pointers` say
// where each of them is. Scalars are in host memory, which is read before this returns. Errors:
// those of cuDNN; FailedPrecondition if only the properties of the device are known.
absl::Status RunCudnnPlan(const CudnnTarget& target, const CudnnPlan& plan,
                          std::span<const int64_t> ids, std::span<void* const> pointers,
                          void* workspace, cudaStream_t stream);

// Sums are in fp32, and so are results that are not stored, unless their type is given. The graph
// keeps the first failure and does nothing after it: Plan() returns the failure.
class CudnnGraph {
 public:
  using Tensor = const CudnnTensor*;  // a tensor lives as long as the graph

  explicit CudnnGraph(std::shared_ptr<const CudnnTarget> target) : target_(std::move(target)) {}

  // Adds a tensor in device memory, at a multiple of `alignment` bytes.
  Tensor Stored(const CudnnLayout& layout, cudnnDataType_t type, int64_t alignment = 16);
  // Adds an fp32 tensor that products are added to. Its device memory is set to 0 before a run, and
  // its elements lie in an order of cuDNN's own.
  Tensor Accumulator(const CudnnLayout& layout);
  // Adds a tensor that one operation passes to another, and that is not in memory.
  Tensor Passing(const CudnnLayout& layout, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  Tensor Scalar(float value);
  const std::vector<CudnnScalar>& scalars() const { return scalars_; }

  // Each function below returns its last argument. Operands with a size of 1 are repeated.
  Tensor Unary(cudnnPointwiseMode_t mode, Tensor x, Tensor y);
  Tensor Binary(cudnnPointwiseMode_t mode, Tensor a, Tensor b, Tensor y);
  // Sets y to the booleans a >= b.
  Tensor IsAtLeast(Tensor a, Tensor b, Tensor y);
  // Sets y to each element's index along `axis`, as int32.
  Tensor Index(Tensor x, int64_t axis, Tensor y);
  // y = condition ? a : b
  Tensor Select(Tensor condition, Tensor a, Tensor b, Tensor y);
  // Reduces x along the dimensions in which y has a size of 1.
  Tensor Reduce(cudnnReduceTensorOp_t mode, Tensor x, Tensor y);
  // y = a b, where the last two dimensions are those of matrices.
  Tensor Multiply(Tensor a, Tensor b, Tensor y);
  // Sets y to the elements of x, with y's layout.
  Tensor Reshape(Tensor x, Tensor y);

  // Returns the plan that cuDNN's heuristic finds fastest. If `repeats`, only plans that repeat to
  // the bit count. Errors: Unimplemented if there is no plan; those of cuDNN.
  absl::StatusOr<CudnnPlan> Plan(bool repeats);

 private:
  struct Operands {
    Tensor x, b, t, y;
  };
  Tensor Add(const CudnnLayout& layout, cudnnDataType_t type, int64_t alignment, bool is_passing,
             bool is_scalar, bool is_accumulator = false);
  Tensor Pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t math, const Operands& operands,
                   const int64_t* axis = nullptr);
  // Returns the configurations that cuDNN's heuristic finds, the fastest first.
  std::vector<CudnnDescriptor> FindConfigurations(void* graph);
  bool Repeats(void* configuration);

  const std::shared_ptr<const CudnnTarget> target_;
  absl::Status status_;
  std::deque<CudnnTensor> tensors_;
  std::vector<CudnnScalar> scalars_;
  std::vector<CudnnDescriptor> operations_;
  std::vector<CudnnDescriptor> parts_;  // of the operations
};

}  // namespace lodestar::cuda
