// SPDX-License-Identifier: Apache-2.0

// FusionChoice chooses between a fused call and separate kernels. Some operations can be computed
// by one call of cuBLASLt or by several kernels. Which way is faster depends on the card, the shape
// and the versions of driver and libraries. The first use of a shape measures both ways on the
// card, with the arguments of the call. The faster way is then used for this shape. If an earlier
// run has stored its choice (Tuning), that choice is used and nothing is measured.
//
// cuBLASLt may refuse a fused call although it has named an algorithm. In that case the operation
// is never fused again, and the device still works. If the fused call has broken the card, this
// process cannot use the card any more, and the device's error names the call.
//
// FusionChoice also chooses between a library's attention (as the fused call) and our own kernels
// (as the separate ones). FusionWords then changes the words of messages. For attention, the caller
// also compares the outputs of both. If they differ, the library is not used.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/errors.h"
#include "kernels/cuda/resources.h"
#include "kernels/cuda/stream_timer.h"
#include "kernels/cuda/tuning.h"
#include "kernels/factory/cuda_plugin.h"

namespace lodestar::cuda {

// Words by which messages name the two ways to compute an operation.
struct FusionWords {
  const char* fused = "fused";
  const char* separate = "separate";
  const char* what_breaks = " fused into a matrix product";  // follows the operation's name
};

// Says whether a fused call was queued. If it was not, says why.
class FusedResult {
 public:
  FusedResult() = default;
  FusedResult(cublasStatus_t status);      // NOLINT: converts the status of a cuBLASLt call
  FusedResult(const absl::Status& status)  // NOLINT: converts another library's status
      : is_queued_(status.ok()), refusal_(status.message()) {}
  bool is_queued() const { return is_queued_; }
  const std::string& refusal() const { return refusal_; }

 private:
  bool is_queued_ = true;
  std::string refusal_;
};

// Result of the comparison of the fused call's outputs with those of separate kernels.
struct Comparison {
  enum class Verdict : uint8_t {
    kEqual,
    kUnequal,
    kUndecided,  // equal, but with these arguments this proves nothing
  };
  Verdict verdict = Verdict::kEqual;
  std::string why = "";  // if kUnequal: what differs, and by how much
};

class FusionChoice {
 public:
  // Queues the fused call. If the result says that it was not queued, the outputs must not be used.
  using Fused = absl::FunctionRef<FusedResult()>;
  using Separate = absl::FunctionRef<void()>;
  // Compares the outputs of the fused call with those of separate kernels. Called once the stream
  // has run the fused call. Errors: the reason why the outputs cannot be compared. In that case the
  // fused call is not used.
  using Compare = absl::FunctionRef<absl::StatusOr<Comparison>()>;

  // `compute` is the dtype of all operations. `tuning` and `errors` must outlive the object.
  FusionChoice(factory::FusionPolicy policy, kernels::DType compute, Tuning* tuning, Errors* errors,
               FusionWords words = {})
      : policy_(policy), compute_(compute), tuning_(tuning), errors_(errors), words_(words) {}

  // Runs `fused` or `separate`, which must give the same results. `operation` names the operation
  // and its shape. Operations of the same name share one choice.
  //
  // - With FusionPolicy::kNever, the call runs `separate`.
  // - If there is no choice for the name, neither here nor from an earlier run, the call makes one.
  //   It may run `fused` and `separate` several times, and blocks until the stream is idle.
  // - With `is_recording`, the call cannot block. So it runs `separate` if there is no choice.
  // - With `compare`, `fused` is chosen only after a comparison in this process, even if an earlier
  //   run has chosen it. The call runs `separate` until a comparison has decided.
  void RunFaster(const std::string& operation, bool is_recording, cudaStream_t stream, Fused fused,
                 Separate separate, std::optional<Compare> compare = std::nullopt);
  // Returns one line for each operation that has a choice, with the choice and the reason.
  // Thread-safe.
  std::string Describe() const;
  // Returns the number of operations whose fused call was refused because its outputs differ.
  // Thread-safe.
  int64_t num_unequal() const;

 private:
  struct Choice {
    bool fuses = false;
    std::string why;
    bool is_unequal = false;
  };
  // Returns the operation's name in `tuning_`. The name includes the dtype, because `tuning_` may
  // also have operations of other dtypes.
  std::string KeptName(const std::string& operation) const;
  std::optional<Choice> FindKept(const std::string& operation);
  // Makes a choice final for this process. Stores it for later runs if choices are measured, the
  // card works, and no comparison has refused the fused call.
  const Choice& Settle(const std::string& operation, const Choice& choice);
  const Choice& Adopt(const std::string& operation, const Choice& choice);
  // Makes the first fused call and chooses. Returns nullopt if `compare` could not decide with
  // these arguments. `kept` is the choice of an earlier run, if there is one.
  std::optional<Choice> Choose(const std::string& operation, const std::optional<Choice>& kept,
                               cudaStream_t stream, Fused fused, Separate separate,
                               std::optional<Compare> compare);
  // Makes the first fused call. Returns the reason why the operation must not be fused. Empty means
  // that the fused call was run without a problem.
  std::string Try(const std::string& operation, cudaStream_t stream, Fused fused);
  // Returns the time of one call in seconds. If the call failed, stores the error and returns a
  // negative number.
  double Measure(cudaStream_t stream, absl::FunctionRef<void()> run);

  const factory::FusionPolicy policy_;
  const kernels::DType compute_;
  Tuning* tuning_;
  Errors* errors_;
  const FusionWords words_;
  StreamTimer timer_;
  mutable std::mutex mutex_;
  std::map<std::string, Choice> choices_;  // only one thread changes choices_, with mutex_ held
};

}  // namespace lodestar::cuda
