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

// Why an operation is not to be fused, after a call that was not queued.
std::string Refusal(cublasStatus_t status) {
  cudaGetLastError();  // it is handled here
  return absl::StrCat("cuBLASLt refuses to fuse it: ", cublasLtGetStatusString(status));
}

}  // namespace

double FusionChoice::Measure(cudaStream_t stream, absl::FunctionRef<void()> run) {
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

std::string FusionChoice::Try(const std::string& operation, cudaStream_t stream, Fused fused) {
  // What earlier operations have broken is not this call's fault.
  if (!errors_->Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize")) {
    return "the card had failed before";
  }
  const cublasStatus_t status = fused();
  const std::string refusal = status == CUBLAS_STATUS_SUCCESS ? "" : Refusal(status);
  const cudaError_t error = cudaStreamSynchronize(stream);
  if (error != cudaSuccess) {
    errors_->Note(absl::InternalError(absl::StrCat(
        errors_->device(), ": ", operation, " fused into a matrix product has broken the card: ",
        cudaGetErrorName(error), ": ", cudaGetErrorString(error),
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
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const double fused_seconds = Measure(stream, [&] {
    if (status == CUBLAS_STATUS_SUCCESS) status = fused();
  });
  if (status != CUBLAS_STATUS_SUCCESS) return {.fuses = false, .why = Refusal(status)};
  return {.fuses = fused_seconds >= 0.0 && fused_seconds < separate_seconds,
          .why = absl::StrFormat("fused %.1f us, separate %.1f us", fused_seconds * 1e6,
                                 separate_seconds * 1e6)};
}

void FusionChoice::RunFaster(const std::string& operation, bool is_recording, cudaStream_t stream,
                             Fused fused, Separate separate) {
  if (policy_ == FusionPolicy::kNever) {
    separate();
    return;
  }
  auto it = choices_.find(operation);
  if (it == choices_.end()) {
    if (is_recording) {
      separate();
      return;
    }
    it = choices_.emplace(operation, Choose(operation, stream, fused, separate)).first;
  }
  if (it->second.fuses) {
    const cublasStatus_t status = fused();
    if (status == CUBLAS_STATUS_SUCCESS) return;
    it->second = {.fuses = false, .why = Refusal(status)};
  }
  separate();
}

std::string FusionChoice::Describe() const {
  std::string lines;
  for (const auto& [operation, choice] : choices_) {
    if (choice.why.empty()) continue;
    absl::StrAppend(&lines, lines.empty() ? "" : "\n", operation, ": ",
                    choice.fuses ? "fused" : "separate", " (", choice.why, ")");
  }
  return lines;
}

}  // namespace lodestar::cuda
