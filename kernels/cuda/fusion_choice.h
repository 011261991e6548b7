// Fused or not: some operations can be one call of cuBLASLt or several kernels, and which is faster
// depends on card, shape and version. The first use of a shape measures both on the card, with its
// own arguments, and keeps the faster, unless an earlier run has chosen (Tuning).
//
// cuBLASLt may refuse a fused call for which it has named an algorithm. Then the operation is not
// fused from there on, and the device goes on. Where the fused call has broken the card, which no
// process can mend, the device's error says so, and which call it was.
//
// Attention by another library or by our kernels is such a choice, too, in other words. There the
// caller compares both: a library whose outputs are not those of our kernels is refused.
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
#include "kernels/cuda_plugin.h"

namespace lodestar::cuda {

// How the two are named in what is said about them.
struct FusionWords {
  const char* fused = "fused";
  const char* separate = "separate";
  const char* what_breaks = " fused into a matrix product";  // after the operation
};

// Whether a fused call was queued; else why not.
class FusedResult {
 public:
  FusedResult() = default;
  FusedResult(cublasStatus_t status);      // NOLINT: what cuBLASLt says of a call
  FusedResult(const absl::Status& status)  // NOLINT: what another library says
      : is_queued_(status.ok()), refusal_(status.message()) {}
  bool is_queued() const { return is_queued_; }
  const std::string& refusal() const { return refusal_; }

 private:
  bool is_queued_ = true;
  std::string refusal_;
};

// The result of comparing the outputs of both.
struct Comparison {
  enum class Verdict : uint8_t {
    kEqual,
    kUnequal,
    kUndecided,  // these arguments prove nothing; later ones may
  };
  Verdict verdict = Verdict::kEqual;
  std::string why = "";  // of kUnequal: what differs, and by how much
};

class FusionChoice {
 public:
  // What runs fused says whether it was queued; else the outputs are not to be used.
  using Fused = absl::FunctionRef<FusedResult()>;
  using Separate = absl::FunctionRef<void()>;
  // Called after a fused call that the stream has run. Errors: why the two cannot be compared; the
  // fused one is then not used.
  using Compare = absl::FunctionRef<absl::StatusOr<Comparison>()>;

  // `compute`: of all operations. `tuning` and `errors` outlive it.
  FusionChoice(FusionPolicy policy, DType compute, Tuning* tuning, Errors* errors,
               FusionWords words = {})
      : policy_(policy), compute_(compute), tuning_(tuning), errors_(errors), words_(words) {}

  // Runs one of the two, which give the same results and may be repeated. `operation` names what is
  // done, with its shape: equal names share the choice. The first use of an operation waits for the
  // stream, so while it is recorded, what was not run before runs separately. With `compare`, the
  // fused one is used only after a comparison in this process, also where an earlier run has
  // chosen it; until one decides, the operation runs separately.
  void RunFaster(const std::string& operation, bool is_recording, cudaStream_t stream, Fused fused,
                 Separate separate, std::optional<Compare> compare = std::nullopt);
  // One line for each operation that has a choice: which, and why. Thread-safe.
  std::string Describe() const;
  // Number of operations that a comparison has refused. Thread-safe.
  int64_t num_unequal() const;

 private:
  struct Choice {
    bool fuses = false;
    std::string why;
    bool is_unequal = false;
  };
  // In `tuning_`: where operations of another dtype are, too.
  std::string KeptName(const std::string& operation) const;
  std::optional<Choice> FindKept(const std::string& operation);
  // The choice that holds from here on, also in later runs unless a comparison made it.
  const Choice& Settle(const std::string& operation, const Choice& choice);
  const Choice& Adopt(const std::string& operation, const Choice& choice);
  // `kept`: the choice of an earlier run. Nothing if the comparison has not decided.
  std::optional<Choice> Choose(const std::string& operation, const std::optional<Choice>& kept,
                               cudaStream_t stream, Fused fused, Separate separate,
                               std::optional<Compare> compare);
  // The first fused call. Empty: the stream has run it; else why the operation is not to be fused.
  std::string Try(const std::string& operation, cudaStream_t stream, Fused fused);
  // Seconds of one call; negative if it failed, which is noted.
  double Measure(cudaStream_t stream, absl::FunctionRef<void()> run);

  const FusionPolicy policy_;
  const DType compute_;
  Tuning* tuning_;
  Errors* errors_;
  const FusionWords words_;
  StreamTimer timer_;
  mutable std::mutex mutex_;
  std::map<std::string, Choice> choices_;  // changed with mutex_ held, by one thread
};

}  // namespace lodestar::cuda
