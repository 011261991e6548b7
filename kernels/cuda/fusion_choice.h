// Fused or not: some operations can be one call of cuBLASLt or several kernels, and which is faster
// depends on card, shape and version. The first use of a shape measures both on the card, with its
// own arguments, and keeps the faster.
#pragma once

#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "kernels/cuda/errors.h"
#include "kernels/cuda/resources.h"
#include "kernels/cuda_plugin.h"

namespace lodestar::cuda {

class FusionChoice {
 public:
  using Run = absl::FunctionRef<void()>;

  FusionChoice(FusionPolicy policy, Errors* errors) : policy_(policy), errors_(errors) {}

  // Runs one of the two, which give the same results and may be repeated. `operation` names what is
  // done, with its shape: equal names share the choice. Measuring waits for the stream, so while it
  // is recorded, what was not measured before runs separately.
  void RunFaster(const std::string& operation, bool is_recording, cudaStream_t stream, Run fused,
                 Run separate);
  // One line for each operation that was measured, with the times.
  std::string Describe() const;

 private:
  struct Measured {
    double fused_seconds, separate_seconds;
  };
  // Of one call; negative if it failed.
  double Measure(cudaStream_t stream, Run run);

  const FusionPolicy policy_;
  Errors* errors_;
  Event begin_, end_;
  std::map<std::string, Measured> measured_;
};

}  // namespace lodestar::cuda
