// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/fusion_choice.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lodestar::cuda {
namespace {

// Number of calls before the timed calls. The first calls are slow: the code must be loaded, and
// the card's clock rate is still low.
constexpr int kWarmUps = 2;
constexpr int kTrials = 3;
constexpr int kCallsPerTrial = 4;

// Names of the choices in `tuning_`.
constexpr char kFused[] = "fused";
constexpr char kSeparate[] = "separate";

// Returns the reason why the fused call was not queued. Also clears the error in the runtime.
// Requires: !result.is_queued().
std::string Refusal(const FusedResult& result) {
  cudaGetLastError();  // clears the error, which is handled here
  return result.refusal();
}

}  // namespace

FusedResult::FusedResult(cublasStatus_t status) : is_queued_(status == CUBLAS_STATUS_SUCCESS) {
  if (is_queued_) return;
  refusal_ = absl::StrCat("cuBLASLt refuses to fuse it: ", cublasLtGetStatusString(status));
}

double FusionChoice::Measure(cudaStream_t stream, absl::FunctionRef<void()> run) {
  for (int i = 0; i < kWarmUps; ++i) run();
  double best = -1.0;
  for (int trial = 0; trial < kTrials; ++trial) {
    double seconds = 0.0;
    if (!errors_->Check(timer_.Measure(stream, kCallsPerTrial, run, &seconds), "timing")) {
      return -1.0;
    }
    best = best < 0.0 ? seconds : std::min(best, seconds);
  }
  return best;
}

std::string FusionChoice::Try(const std::string& operation, cudaStream_t stream, Fused fused) {
  // Errors of earlier operations must not be mistaken for errors of this call.
  if (!errors_->Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize")) {
    return "the card had failed before";
  }
  const FusedResult result = fused();
  const std::string refusal = result.is_queued() ? "" : Refusal(result);
  const cudaError_t error = cudaStreamSynchronize(stream);
  if (error != cudaSuccess) {
    errors_->Note(absl::InternalError(absl::StrCat(
        errors_->device(), ": ", operation, words_.what_breaks,
        " has broken the card: ", cudaGetErrorName(error), ": ", cudaGetErrorString(error),
        "; no call on it will succeed any more in this process; start it again with "
        "--fusion=never")));
    return "it has broken the card";
  }
  return refusal;
}

std::optional<FusionChoice::Choice> FusionChoice::Choose(const std::string& operation,
                                                         const std::optional<Choice>& kept,
                                                         cudaStream_t stream, Fused fused,
                                                         Separate separate,
                                                         std::optional<Compare> compare) {
  const std::string refusal = Try(operation, stream, fused);
  if (!refusal.empty()) return Choice{.fuses = false, .why = refusal};
  if (compare.has_value()) {
    const absl::StatusOr<Comparison> found = (*compare)();
    if (!found.ok()) {
      return Choice{.fuses = false,
                    .why = absl::StrCat("its outputs could not be compared with those of ",
                                        words_.separate, ": ", found.status().message())};
    }
    if (found->verdict == Comparison::Verdict::kUndecided) return std::nullopt;
    if (found->verdict == Comparison::Verdict::kUnequal) {
      return Choice{.fuses = false,
                    .why = absl::StrCat("refused, its outputs are not those of ", words_.separate,
                                        ": ", found->why),
                    .is_unequal = true};
    }
  }
  if (kept.has_value()) return kept;
  if (policy_ == factory::FusionPolicy::kAlways)
    return Choice{.fuses = true, .why = "--fusion=always"};
  const double separate_seconds = Measure(stream, separate);
  FusedResult result;
  const double fused_seconds = Measure(stream, [&] {
    if (result.is_queued()) result = fused();
  });
  if (!result.is_queued()) return Choice{.fuses = false, .why = Refusal(result)};
  return Choice{.fuses = fused_seconds >= 0.0 && fused_seconds < separate_seconds,
                .why = absl::StrFormat("%s %.1f us, %s %.1f us", words_.fused, fused_seconds * 1e6,
                                       words_.separate, separate_seconds * 1e6)};
}

std::string FusionChoice::KeptName(const std::string& operation) const {
  return absl::StrCat("fusion ", compute_ == kernels::DType::kBf16 ? "bf16 " : "fp32 ", operation);
}

std::optional<FusionChoice::Choice> FusionChoice::FindKept(const std::string& operation) {
  if (policy_ != factory::FusionPolicy::kMeasure) return std::nullopt;
  const std::string name = KeptName(operation);
  const std::optional<std::string> kept = tuning_->Find(name);
  if (!kept.has_value()) return std::nullopt;
  if (*kept == kFused || *kept == kSeparate) {
    return Choice{.fuses = *kept == kFused, .why = "as an earlier run has chosen"};
  }
  tuning_->Refuse(name, "it is neither fused nor separate; both are measured again");
  return std::nullopt;
}

const FusionChoice::Choice& FusionChoice::Settle(const std::string& operation,
                                                 const Choice& choice) {
  // The choice is stored in `tuning_` only if the card works and no comparison has refused the
  // fused call. After such a refusal the next process compares again, because it may use another
  // version of the library.
  if (choice.is_unequal) {
    tuning_->Refuse(KeptName(operation), choice.why);
  } else if (policy_ == factory::FusionPolicy::kMeasure && errors_->first().ok()) {
    tuning_->Keep(KeptName(operation), choice.fuses ? kFused : kSeparate, choice.why);
  }
  return Adopt(operation, choice);
}

const FusionChoice::Choice& FusionChoice::Adopt(const std::string& operation,
                                                const Choice& choice) {
  const std::lock_guard lock(mutex_);
  return choices_[operation] = choice;
}

void FusionChoice::RunFaster(const std::string& operation, bool is_recording, cudaStream_t stream,
                             Fused fused, Separate separate, std::optional<Compare> compare) {
  if (policy_ == factory::FusionPolicy::kNever) {
    separate();
    return;
  }
  const auto it = choices_.find(operation);
  const Choice* choice = it != choices_.end() ? &it->second : nullptr;
  if (choice == nullptr) {
    const std::optional<Choice> kept = FindKept(operation);
    if (kept.has_value() && !(kept->fuses && compare.has_value())) {
      choice = &Adopt(operation, *kept);
    } else if (!is_recording) {
      const std::optional<Choice> chosen =
          Choose(operation, kept, stream, fused, separate, compare);
      if (chosen.has_value()) {
        const bool stands = kept.has_value() && chosen->fuses;
        choice = stands ? &Adopt(operation, *kept) : &Settle(operation, *chosen);
      }
    }
  }
  if (choice == nullptr) {
    separate();
    return;
  }
  if (choice->fuses) {
    const FusedResult result = fused();
    if (result.is_queued()) return;
    const std::string refusal = Refusal(result);
    tuning_->Refuse(KeptName(operation), refusal);
    Settle(operation, {.fuses = false, .why = refusal});
  }
  separate();
}

std::string FusionChoice::Describe() const {
  const std::lock_guard lock(mutex_);
  std::string lines;
  for (const auto& [operation, choice] : choices_) {
    absl::StrAppend(&lines, lines.empty() ? "" : "\n", operation, ": ",
                    choice.fuses ? words_.fused : words_.separate, " (", choice.why, ")");
  }
  return lines;
}

int64_t FusionChoice::num_unequal() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::count_if(choices_, [](const auto& entry) { return entry.second.is_unequal; });
}

}  // namespace lodestar::cuda
