// Matrix products by cuBLASLt. What a product needs (descriptors, and the algorithm that the
// library's heuristic advises) is found once per shape and kept: a call then costs the host about
// as much as a kernel launch. Row-major here, column-major there: C^T = op(B)^T op(A)^T.
//
// bf16 in: fp32 sums, fp32 or bf16 out. fp32 in: fp32 throughout, never TF32. Partial sums of a
// split product are kept in fp32 and added in a fixed order.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/errors.h"
#include "kernels/cuda/resources.h"
#include "kernels/device.h"
#include "kernels/operation_arguments.h"

namespace lodestar::cuda {

// A product and what is fused into it.
struct MatMulCall {
  MatMulShape shape;
  Buf c;  // [m, n]
  Buf a;  // op(a) [m, k]
  Buf b;  // op(b) [k, n]
  Accumulate accumulate = Accumulate::kSet;
  // c = act(alpha op(a) op(b) + bias); the argument of act goes to pre_activation, dense. Both are
  // of c's dtype; null: without. Not with batches.
  const void* bias = nullptr;      // [n]
  void* pre_activation = nullptr;  // [m, n]
  Activation activation = Activation::kNone;
  // c = alpha op(a) op(b) * act'(pre_activation), which is then read. Without bias.
  bool is_gradient = false;
  // Sums of op(a)'s rows, of c's dtype, are set. Not with any of the above.
  void* row_sums = nullptr;  // [m]
  // The same of op(b)'s columns.
  void* column_sums = nullptr;  // [n]
};

class MatMulEngine {
 public:
  // Makes nothing on the card but a workspace that is used on one stream only.
  static absl::StatusOr<std::unique_ptr<MatMulEngine>> Create(int compute_capability,
                                                              Errors* errors);

  // Whether cuBLASLt knows an algorithm for it, with what is fused into it. Run() may still fail.
  bool Supports(const MatMulCall& call);
  // m, n, k and batch >= 1. Failures go to `errors`.
  void Run(const MatMulCall& call, cudaStream_t stream);
  // The same, but a call that cuBLASLt refuses is for the caller to replace: nothing was queued.
  cublasStatus_t TryRun(const MatMulCall& call, cudaStream_t stream);

 private:
  struct Key {
    int64_t m, n, k, batch, lda, ldb, ldc, stride_a, stride_b, stride_c;
    bool transpose_a, transpose_b;
    DType inputs, output;
    uint32_t epilogue;
    // Of c, a, b, the epilogue's vector and its matrix, as powers of two.
    uint8_t alignments[5];

    auto operator<=>(const Key&) const = default;
  };
  struct Plan {
    MatMulDescription description;
    MatrixLayout a, b, c;  // of the library's view: its A is our B
    cublasLtMatmulAlgo_t algorithm;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  };

  MatMulEngine(Errors* errors, size_t workspace_bytes)
      : errors_(errors), workspace_bytes_(workspace_bytes) {}

  static Key KeyOf(const MatMulCall& call);
  Plan& PlanFor(const MatMulCall& call);
  Plan MakePlan(const Key& key, const MatMulCall& call);
  // The epilogue's addresses, which the heuristic also looks at.
  static cublasStatus_t SetPointers(const MatMulCall& call, const Plan& plan);
  cublasStatus_t AskHeuristic(const Key& key, Plan* plan);

  Errors* errors_;
  const size_t workspace_bytes_;
  MatMulHandle handle_;
  DeviceMemory workspace_;
  std::map<Key, Plan> plans_;
};

}  // namespace lodestar::cuda
