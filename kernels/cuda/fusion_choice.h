// FusionChoice chooses between a fused call and separate kernels. Some operations can be one call
// of cuBLASLt or several kernels, and which is faster depends on card, shape and version. The first
// use of a shape measures both on the card, with its own arguments, and keeps the faster, unless an
// earlier run has chosen (Tuning).
//
// cuBLASLt may refuse a fused call for which it has named an algorithm. The operation is then never
// fused again, and the device goes on. If the fused call has broken the card, this process
// cannot use the card any more; the device's error then names the call.
//
// The choice between a library's attention and our kernels works the same way, with other words.
// There the caller compares both, and a library whose outputs differ from ours is refused.
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

// Names of the two ways in messages.
struct FusionWords {
  const char* fused = "fused";
  const char* separate = "separate";
  const char* what_breaks = " fused into a matrix product";  // follows the operation's name
};

// Says whether a fused call was queued, and if not, why.
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

// The result of comparing the outputs of the fused call with those of separate kernels.
struct Comparison {
  enum class Verdict : uint8_t {
    kEqual,
    kUnequal,
    kUndecided,  // these arguments prove nothing, but later ones may
  };
  Verdict verdict = Verdict::kEqual;
  std::string why = "";  // if kUnequal: what differs, and by how much
};

class FusionChoice {
 public:
  // Queues the fused call. If the result says that it was not queued, the outputs must not be used.
  using Fused = absl::FunctionRef<FusedResult()>;
  using Separate = absl::FunctionRef<void()>;
  // Compares the fused call's outputs with those of separate kernels, once the stream has run it.
  // Errors: the reason why they cannot be compared; the fused call is then not used.
  using Compare = absl::FunctionRef<absl::StatusOr<Comparison>()>;

  // `compute` is the dtype of all operations. `tuning` and `errors` must outlive the object.
  FusionChoice(factory::FusionPolicy policy, kernels::DType compute, Tuning* tuning, Errors* errors,
               FusionWords words = {})
      : policy_(policy), compute_(compute), tuning_(tuning), errors_(errors), words_(words) {}

  // Runs `fused` or `separate`. Both give the same results and may be run several times.
  // `operation` names the operation and its shape; equal names share the choice. The first use of a
  // name blocks until the stream has run. If `is_recording` is set, the stream cannot be awaited,
  // so a new name runs separately. With `compare`, the fused call is used only after a comparison
  // in this process, even if an earlier run has chosen it. Until a comparison decides, the
  // operation runs separately.
  void RunFaster(const std::string& operation, bool is_recording, cudaStream_t stream, Fused fused,
                 Separate separate, std::optional<Compare> compare = std::nullopt);
  // Returns one line for each operation that has a choice: the choice, and why. Thread-safe.
  std::string Describe() const;
  // Returns the number of operations that a comparison has refused. Thread-safe.
  int64_t num_unequal() const;

 private:
  struct Choice {
    bool fuses = false;
    std::string why;
    bool is_unequal = false;
  };
  // Returns the operation's name in `tuning_`, which has operations of other dtypes, too.
  std::string KeptName(const std::string& operation) const;
  std::optional<Choice> FindKept(const std::string& operation);
  // Makes a choice final for this process, and keeps it for later runs unless a comparison made it.
  const Choice& Settle(const std::string& operation, const Choice& choice);
  const Choice& Adopt(const std::string& operation, const Choice& choice);
  // Returns the choice, or nothing if the comparison has not decided. `kept` is the choice of an
  // earlier run.
  std::optional<Choice> Choose(const std::string& operation, const std::optional<Choice>& kept,
                               cudaStream_t stream, Fused fused, Separate separate,
                               std::optional<Compare> compare);
  // Makes the first fused call. Returns why the operation must not be fused, or an empty text if
  // the stream has run it.
  std::string Try(const std::string& operation, cudaStream_t stream, Fused fused);
  // Returns the seconds of one call. If it failed, notes the error and returns a negative number.
  double Measure(cudaStream_t stream, absl::FunctionRef<void()> run);

  const factory::FusionPolicy policy_;
  const kernels::DType compute_;
  Tuning* tuning_;
  Errors* errors_;
  const FusionWords words_;
  StreamTimer timer_;
  mutable std::mutex mutex_;
  std::map<std::string, Choice> choices_;  // one thread changes it, with mutex_ held
};

}  // namespace lodestar::cuda
