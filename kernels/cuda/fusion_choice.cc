#include "kernels/cuda/fusion_choice.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lodestar::cuda {
namespace {

// The first call loads code and finds clocks low.
constexpr int kWarmUps = 2;
constexpr int kTrials = 3;
constexpr int kCallsPerTrial = 4;

// As they are kept.
constexpr char kFused[] = "fused";
constexpr char kSeparate[] = "separate";

// Why an operation is not to be fused, after a call that was not queued.
std::string Refusal(const FusedResult& result) {
  cudaGetLastError();  // it is handled here
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
  // What earlier operations have broken is not this call's fault.
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

FusionChoice::Choice FusionChoice::Choose(const std::string& operation, cudaStream_t stream,
                                          Fused fused, Separate separate) {
  const std::string refusal = Try(operation, stream, fused);
  if (!refusal.empty()) return {.fuses = false, .why = refusal};
  if (policy_ == FusionPolicy::kAlways) return {.fuses = true, .why = ""};
  const double separate_seconds = Measure(stream, separate);
  FusedResult result;
  const double fused_seconds = Measure(stream, [&] {
    if (result.is_queued()) result = fused();
  });
  if (!result.is_queued()) return {.fuses = false, .why = Refusal(result)};
  return {.fuses = fused_seconds >= 0.0 && fused_seconds < separate_seconds,
          .why = absl::StrFormat("%s %.1f us, %s %.1f us", words_.fused, fused_seconds * 1e6,
                                 words_.separate, separate_seconds * 1e6)};
}

std::string FusionChoice::KeptName(const std::string& operation) const {
  return absl::StrCat("fusion ", compute_ == DType::kBf16 ? "bf16 " : "fp32 ", operation);
}

std::optional<FusionChoice::Choice> FusionChoice::FindKept(const std::string& operation) {
  if (policy_ != FusionPolicy::kMeasure) return std::nullopt;
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
  // A card that is broken has measured nothing.
  if (policy_ == FusionPolicy::kMeasure && errors_->first().ok()) {
    tuning_->Keep(KeptName(operation), choice.fuses ? kFused : kSeparate, choice.why);
  }
  const std::lock_guard lock(mutex_);
  return choices_[operation] = choice;
}

void FusionChoice::RunFaster(const std::string& operation, bool is_recording, cudaStream_t stream,
                             Fused fused, Separate separate) {
  if (policy_ == FusionPolicy::kNever) {
    separate();
    return;
  }
  const auto it = choices_.find(operation);
  const Choice* choice = it != choices_.end() ? &it->second : nullptr;
  if (choice == nullptr) {
    if (const std::optional<Choice> kept = FindKept(operation); kept.has_value()) {
      const std::lock_guard lock(mutex_);
      choice = &(choices_[operation] = *kept);
    } else if (is_recording) {
      separate();
      return;
    } else {
      choice = &Settle(operation, Choose(operation, stream, fused, separate));
    }
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
    if (choice.why.empty()) continue;
    absl::StrAppend(&lines, lines.empty() ? "" : "\n", operation, ": ",
                    choice.fuses ? words_.fused : words_.separate, " (", choice.why, ")");
  }
  return lines;
}

}  // namespace lodestar::cuda
