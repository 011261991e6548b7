// SPDX-License-Identifier: Apache-2.0

// Matrix products by cuBLASLt. The descriptors and the algorithm of a product are found once per
// shape and kept, so that a call costs the host about as much as a kernel launch. Our matrices are
// row-major and those of cuBLASLt are column-major. So cuBLASLt computes C^T = op(B)^T op(A)^T.
//
// The algorithm of a product is chosen in this order:
// - If an earlier run has stored its choice (see Tuning), that algorithm is used.
// - With tuning, the first call waits for the stream and times the heuristic's 32 best algorithms,
//   with its own operands. The fastest is used.
// - Without tuning, or while the stream is recorded and cannot be waited for, the heuristic's first
//   algorithm is used.
//
// If the product sets c, the timed calls write to c, and then the call itself sets c again. If the
// product adds to c, the timed calls write to other memory.
//
// With bf16 inputs, sums are in fp32 and outputs in fp32 or bf16. With fp32 inputs, everything is
// in fp32 and never in TF32. Partial sums of a split product are kept in fp32 and added in a fixed
// order.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/errors.h"
#include "kernels/cuda/resources.h"
#include "kernels/cuda/stream_timer.h"
#include "kernels/cuda/tuning.h"
#include "kernels/device.h"
#include "kernels/operation_arguments.h"

namespace lodestar::cuda {

// A product, and the operations that are fused into it.
struct MatMulCall {
  kernels::MatMulShape shape;
  kernels::Buf c;  // [m, n]
  kernels::Buf a;  // op(a) [m, k]
  kernels::Buf b;  // op(b) [k, n]
  kernels::Accumulate accumulate = kernels::Accumulate::kSet;
  // If is_gradient is false, the call computes c = act(alpha op(a) op(b) + bias), and sets
  // pre_activation to the argument of act(). The rows of pre_activation are dense. `bias` and
  // `pre_activation` have c's dtype and may be null. Both must be null if there are several
  // batches.
  const void* bias = nullptr;      // [n]
  void* pre_activation = nullptr;  // [m, n]
  kernels::Activation activation = kernels::Activation::kNone;
  // If true, computes c = alpha op(a) op(b) * act'(pre_activation), where pre_activation is an
  // input. There is no bias.
  bool is_gradient = false;
  // If not null, row_sums is set to the sums of op(a)'s rows, in c's dtype. Cannot be used with a
  // bias, an activation, pre_activation or is_gradient.
  void* row_sums = nullptr;  // [m]
  // If not null, column_sums is set to the sums of op(b)'s columns, in c's dtype. Cannot be used
  // with a bias, an activation, pre_activation, is_gradient or row_sums.
  void* column_sums = nullptr;  // [n]
};

class MatMulEngine {
 public:
  // Makes an engine. All its calls must use the same stream, because they share a workspace. With
  // `measures`, algorithms may be measured, and choices may differ between two runs. `tuning` and
  // `errors` must outlive the engine.
  static absl::StatusOr<std::unique_ptr<MatMulEngine>> Create(int compute_capability, bool measures,
                                                              Tuning* tuning, Errors* errors);

  // Returns true if cuBLASLt has an algorithm for the product with everything that is fused into
  // it. Even then, Run() may fail.
  bool Supports(const MatMulCall& call);
  // Queues the product. Requires: m, n, k and batch are at least 1. Failures go to `errors`.
  void Run(const MatMulCall& call, bool is_recording, cudaStream_t stream);
  // Does the same as Run(), except that it returns the error and queues nothing if cuBLASLt refuses
  // the call. The caller must then compute the product in another way.
  cublasStatus_t TryRun(const MatMulCall& call, bool is_recording, cudaStream_t stream);
  // Returns one line with the times for each product whose algorithms were timed. Thread-safe.
  std::string Describe() const;

 private:
  struct Key {
    int64_t m, n, k, batch, lda, ldb, ldc, stride_a, stride_b, stride_c;
    bool transpose_a, transpose_b;
    kernels::DType inputs, output;
    uint32_t epilogue;
    // Base-2 logarithms of the alignments of c, a, b, the epilogue's vector (bias or sums), and the
    // epilogue's matrix (pre_activation).
    uint8_t alignments[5];

    auto operator<=>(const Key&) const = default;
  };
  struct Plan {
    MatMulDescription description;
    // Layouts as cuBLASLt names the matrices: its A is our b, and its B is our a.
    MatrixLayout a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    std::string name;    // describes the product
    size_t c_bytes = 0;  // bytes from the first element to the last
    // Algorithms to choose from. Until one is chosen, `algorithm` is the first candidate. Empty
    // means that `algorithm` is the final choice.
    std::vector<cublasLtMatmulAlgo_t> candidates;
    cudaError_t timing_error = cudaSuccess;  // error of the card while candidates were timed
  };

  MatMulEngine(bool measures, Tuning* tuning, Errors* errors, size_t workspace_bytes)
      : measures_(measures), tuning_(tuning), errors_(errors), workspace_bytes_(workspace_bytes) {}

  static Key KeyOf(const MatMulCall& call);
  static std::string NameOf(const Key& key);
  Plan& PlanFor(const MatMulCall& call);
  Plan MakePlan(const Key& key, const MatMulCall& call);
  // Stores the addresses of the bias, the sums and pre_activation in plan.description. Must also be
  // called before the heuristic is asked, because the heuristic reads them.
  static cublasStatus_t SetPointers(const MatMulCall& call, const Plan& plan);
  cublasStatus_t FindAlgorithm(const Key& key, Plan* plan);
  // Sets plan->algorithm to the algorithm that an earlier run has chosen. Returns false if there is
  // none.
  bool TakeKept(Plan* plan);
  cublasStatus_t AskHeuristic(const Key& key, Plan* plan);
  // Sets plan->algorithm to the fastest candidate. If the product adds to c, c stays unchanged.
  // Otherwise c is undefined afterwards. All other outputs of the product are undefined.
  void ChooseAlgorithm(const MatMulCall& call, Plan* plan, cudaStream_t stream);
  // Sets *seconds to the seconds of one call with each candidate. A negative number means that the
  // candidate was refused, or that its first timed call took more than kNearFastest times as long
  // as the fastest. Errors: those of the card.
  cudaError_t TimeCandidates(const MatMulCall& call, Plan* plan, cudaStream_t stream,
                             std::vector<double>* seconds);
  // Sets *seconds to the seconds of one call with `algorithm`, as the mean of `calls` calls. Sets a
  // negative number if the algorithm is refused. Does nothing if *seconds is negative.
  cudaError_t TimeCandidate(const MatMulCall& call, const Plan& plan,
                            const cublasLtMatmulAlgo_t& algorithm, int calls, cudaStream_t stream,
                            double* seconds);
  cublasStatus_t Launch(const MatMulCall& call, const Plan& plan,
                        const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream);

  const bool measures_;
  Tuning* tuning_;
  Errors* errors_;
  const size_t workspace_bytes_;
  MatMulHandle handle_;
  DeviceMemory workspace_;
  std::map<Key, Plan> plans_;
  StreamTimer timer_;
  mutable std::mutex mutex_;
  std::string timed_;  // guarded by mutex_
};

}  // namespace lodestar::cuda
