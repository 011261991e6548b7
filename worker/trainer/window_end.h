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
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"

namespace lodestar::trainer {

struct RestOfWindow {
  int steps = 0;                   // The steps still to be made.
  absl::Duration step = {};        // The time that one of them takes.
  absl::Duration handing_in = {};  // The time until servers have acknowledged a contribution.
  absl::Duration left = {};        // The time until the worker is to be gone.
};

// Whether the rest fits. Steps may take a quarter longer than measured, and handing in may take
// twice as long, but at least a second.
bool FitsIn(const RestOfWindow& rest);

// Thread-safe.
class WindowEnd {
 public:
  // `time_left` returns the time that a worker has left that was told to stop.
  WindowEnd(std::function<bool()> stop_requested, std::function<absl::Duration()> time_left);

  // Must be called when a step was made. `waited` means that the step waited for weights as well,
  // so that it says little of the steps to come.
  void OnStep(absl::Duration duration, bool waited);
  // Must be called when all servers have acknowledged a contribution so long after it was made.
  void OnHandedIn(absl::Duration duration);
  // Must be called when pulling the weights took so long. Handing in is thought to take that long
  // until it was measured.
  void OnPulled(absl::Duration duration);

  // Whether the window ends before local step `step` of `grant`, in [0, grant.local_steps]. If it
  // does, tells so, and what is not trained on. If the worker was told to stop and the window goes
  // on, tells once for each round that the rest is computed.
  bool IsDue(const Grant& grant, int step);
  // Tells which samples of `grant` are not trained on, because the window ends after `num_steps`
  // for the reason given. Tells nothing if there are none.
  static void TellCut(const Grant& grant, int num_steps, const std::string& reason);

 private:
  // The number of steps that are remembered. It is small, so that a step that was slow once is
  // forgotten soon.
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
  // The round of which it was told that the rest is computed.
  std::optional<Round> told_round_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::trainer
