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

}  // namespace

double FusionChoice::Measure(cudaStream_t stream, Run run) {
  const auto make = [](cudaEvent_t* event) {
    return cudaEventCreateWithFlags(event, cudaEventBlockingSync);
  };
  if (begin_ == nullptr && (!errors_->Check(Make(&begin_, make), "cudaEventCreateWithFlags") ||
                            !errors_->Check(Make(&end_, make), "cudaEventCreateWithFlags"))) {
    return -1.0;
  }
  for (int i = 0; i < kWarmUps; ++i) run();
  double best = -1.0;
  for (int trial = 0; trial < kTrials; ++trial) {
    float milliseconds = 0.0f;
    if (!errors_->Check(cudaEventRecord(begin_.get(), stream), "cudaEventRecord")) return -1.0;
    for (int i = 0; i < kCallsPerTrial; ++i) run();
    if (!errors_->Check(cudaEventRecord(end_.get(), stream), "cudaEventRecord") ||
        !errors_->Check(cudaEventSynchronize(end_.get()), "cudaEventSynchronize") ||
        !errors_->Check(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()),
                        "cudaEventElapsedTime")) {
      return -1.0;
    }
    const double seconds = milliseconds / 1e3 / kCallsPerTrial;
    best = best < 0.0 ? seconds : std::min(best, seconds);
  }
  return best;
}

void FusionChoice::RunFaster(const std::string& operation, bool is_recording, cudaStream_t stream,
                             Run fused, Run separate) {
  if (policy_ != FusionPolicy::kMeasure) {
    policy_ == FusionPolicy::kAlways ? fused() : separate();
    return;
  }
  auto it = measured_.find(operation);
  if (it == measured_.end()) {
    if (is_recording) {
      separate();
      return;
    }
    const double separate_seconds = Measure(stream, separate);
    const double fused_seconds = Measure(stream, fused);
    it = measured_.emplace(operation, Measured{fused_seconds, separate_seconds}).first;
  }
  const Measured& times = it->second;
  const bool fuses = times.fused_seconds >= 0.0 && times.fused_seconds < times.separate_seconds;
  fuses ? fused() : separate();
}

std::string FusionChoice::Describe() const {
  std::string lines;
  for (const auto& [operation, times] : measured_) {
    absl::StrAppend(&lines, lines.empty() ? "" : "\n", operation, ": ",
                    times.fused_seconds < times.separate_seconds ? "fused" : "separate",
                    absl::StrFormat(" (fused %.1f us, separate %.1f us)", times.fused_seconds * 1e6,
                                    times.separate_seconds * 1e6));
  }
  return lines;
}

}  // namespace lodestar::cuda
