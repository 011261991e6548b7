// WindowEnd: whether a worker that was told to stop computes the rest of its window of local steps.
// It does if that, and handing the contribution in, fits into the time that it has left; else the
// window ends after the step at hand, and the contribution weighs as much as the samples that were
// computed. The times are measured step by step, and it is asked again before each step.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/cluster_messages.h"
#include "common/ids.h"

namespace lodestar {

struct RestOfWindow {
  int steps = 0;                   // still to be made
  absl::Duration step = {};        // that one of them takes
  absl::Duration handing_in = {};  // until servers have acknowledged a contribution
  absl::Duration left = {};        // until the worker is to be gone
};

// Steps may take a quarter longer than measured and handing in twice as long, but at least a
// second.
bool FitsIn(const RestOfWindow& rest);

// Thread-safe.
class WindowEnd {
 public:
  // `time_left`: of a worker that was told to stop.
  WindowEnd(std::function<bool()> stop_requested, std::function<absl::Duration()> time_left);

  // A step was made. `waited`: for weights, too, so that it says little of the steps to come.
  void OnStep(absl::Duration duration, bool waited);
  // All servers have acknowledged a contribution so long after it was made.
  void OnHandedIn(absl::Duration duration);
  // Pulling the weights took so long: what handing in is thought to take until it was measured.
  void OnPulled(absl::Duration duration);

  // Before local step `step` of `grant`, in [0, grant.local_steps]: no further one is to be made.
  // Tells so, and what is not trained on; or, once for each round, that the rest is computed.
  bool IsDue(const Grant& grant, int step);
  // The window of `grant` ends after `num_steps`, for the reason given: tells what of its samples
  // is not trained on; nothing if that is none.
  static void TellCut(const Grant& grant, int num_steps, const std::string& reason);

 private:
  // Of steps: one that was slow for once is forgotten soon.
  static constexpr int kRemembered = 8;

  RestOfWindow Rest(int steps) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration LongestStep() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::function<bool()> stop_requested_;
  const std::function<absl::Duration()> time_left_;
  absl::Mutex mutex_;
  std::array<absl::Duration, kRemembered> steps_ ABSL_GUARDED_BY(mutex_);
  int64_t num_steps_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Duration> waited_step_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Duration> handing_in_ ABSL_GUARDED_BY(mutex_);
  absl::Duration pulling_ ABSL_GUARDED_BY(mutex_);
  std::optional<Round> told_round_ ABSL_GUARDED_BY(mutex_);  // whose rest is computed
};

}  // namespace lodestar
