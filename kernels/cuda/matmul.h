// Matrix products by cuBLASLt. What a product needs (descriptors and an algorithm) is found once
// per shape and kept: a call then costs the host about as much as a kernel launch. Row-major here,
// column-major there: C^T = op(B)^T op(A)^T.
//
// The algorithm is what the library's heuristic advises first. Where choices are to be measured and
// outlive the process (Tuning), it is what an earlier run has chosen, else the fastest of the
// heuristic's best 32, which the first call times on its own operands: a product that sets c into
// c, which it sets again afterwards, one that adds to c into memory of its own. The first call then
// waits for the stream, so while it is recorded, what was not run before takes the heuristic's
// first.
//
// bf16 in: fp32 sums, fp32 or bf16 out. fp32 in: fp32 throughout, never TF32. Partial sums of a
// split product are kept in fp32 and added in a fixed order.
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

// A product and what is fused into it.
struct MatMulCall {
  kernels::MatMulShape shape;
  kernels::Buf c;  // [m, n]
  kernels::Buf a;  // op(a) [m, k]
  kernels::Buf b;  // op(b) [k, n]
  kernels::Accumulate accumulate = kernels::Accumulate::kSet;
  // c = act(alpha op(a) op(b) + bias). The argument of act goes to pre_activation, which is dense.
  // bias and pre_activation have c's dtype, and null means without. They do not go with batches.
  const void* bias = nullptr;      // [n]
  void* pre_activation = nullptr;  // [m, n]
  kernels::Activation activation = kernels::Activation::kNone;
  // If true, c = alpha op(a) op(b) * act'(pre_activation). pre_activation is then read, and there
  // is no bias.
  bool is_gradient = false;
  // If not null, is set to the sums of op(a)'s rows, in c's dtype. It does not go with any of the
  // above.
  void* row_sums = nullptr;  // [m]
  // The same for op(b)'s columns.
  void* column_sums = nullptr;  // [n]
};

class MatMulEngine {
 public:
  // Makes nothing on the card but a workspace that is used on one stream only. If `measures`,
  // choices may be measured, and may differ between two runs. `tuning` and `errors` must outlive
  // the engine.
  static absl::StatusOr<std::unique_ptr<MatMulEngine>> Create(int compute_capability, bool measures,
                                                              Tuning* tuning, Errors* errors);

  // Returns true if cuBLASLt knows an algorithm for the product, with what is fused into it. Run()
  // may still fail.
  bool Supports(const MatMulCall& call);
  // Queues the product. m, n, k and batch must be at least 1. Failures go to `errors`.
  void Run(const MatMulCall& call, bool is_recording, cudaStream_t stream);
  // Does the same, but if cuBLASLt refuses the call, nothing is queued, and the caller must compute
  // the product otherwise.
  cublasStatus_t TryRun(const MatMulCall& call, bool is_recording, cudaStream_t stream);
  // Returns one line for each product whose algorithm was timed, with the times. Thread-safe.
  std::string Describe() const;

 private:
  struct Key {
    int64_t m, n, k, batch, lda, ldb, ldc, stride_a, stride_b, stride_c;
    bool transpose_a, transpose_b;
    kernels::DType inputs, output;
    uint32_t epilogue;
    // The alignments of c, a, b, the epilogue's vector and its matrix, as powers of two.
    uint8_t alignments[5];

    auto operator<=>(const Key&) const = default;
  };
  struct Plan {
    MatMulDescription description;
    MatrixLayout a, b, c;  // of the library's view: its A is our B
    cublasLtMatmulAlgo_t algorithm;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    std::string name;    // what it computes, in words
    size_t c_bytes = 0;  // from the first element to the last
    // The algorithms from which `algorithm` is to be chosen; it is the first of them until then.
    // Empty means that it is chosen.
    std::vector<cublasLtMatmulAlgo_t> candidates;
    cudaError_t timing_error = cudaSuccess;  // what choosing has come upon
  };

  MatMulEngine(bool measures, Tuning* tuning, Errors* errors, size_t workspace_bytes)
      : measures_(measures), tuning_(tuning), errors_(errors), workspace_bytes_(workspace_bytes) {}

  static Key KeyOf(const MatMulCall& call);
  static std::string NameOf(const Key& key);
  Plan& PlanFor(const MatMulCall& call);
  Plan MakePlan(const Key& key, const MatMulCall& call);
  // Sets the epilogue's addresses, which the heuristic also looks at.
  static cublasStatus_t SetPointers(const MatMulCall& call, const Plan& plan);
  cublasStatus_t FindAlgorithm(const Key& key, Plan* plan);
  // Tries to set plan->algorithm to that of an earlier run. Returns true if it is set.
  bool TakeKept(Plan* plan);
  cublasStatus_t AskHeuristic(const Key& key, Plan* plan);
  // Sets plan->algorithm to the fastest candidate. Afterwards the values of c, and of all else that
  // the product sets, are undefined, unless it adds to c.
  void ChooseAlgorithm(const MatMulCall& call, Plan* plan, cudaStream_t stream);
  // Sets *seconds to the seconds of one call with each candidate. They are negative if a candidate
  // is refused, or so slow that one call has shown it. Errors: those of the card.
  cudaError_t TimeCandidates(const MatMulCall& call, Plan* plan, cudaStream_t stream,
                             std::vector<double>* seconds);
  // Does the same for one candidate. If *seconds is negative, leaves it as it is.
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
