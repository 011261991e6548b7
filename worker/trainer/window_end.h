// SPDX-License-Identifier: Apache-2.0

// WindowEnd decides whether a worker that was told to stop computes the rest of its window of local
// steps. It does so if the steps, and handing in the contribution, fit into the time that is left.
// Otherwise the window ends after the present step, and the contribution counts only the samples
// that were computed. The time of steps is measured, and the decision is repeated before each step.
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
  int steps = 0;             // Steps that are not made yet.
  absl::Duration step = {};  // Time of one step.
  // Time from the last step until the servers have acknowledged the contribution.
  absl::Duration handing_in = {};
  absl::Duration left = {};  // Time until the worker must have left.
};

// Returns true if the rest fits into rest.left. Assumes that each step takes a quarter longer than
// measured. Assumes that handing in takes twice as long as measured, and at least a second.
bool FitsIn(const RestOfWindow& rest);

// Decides whether a window ends early. Thread-safe.
class WindowEnd {
 public:
  // `time_left` returns the time that is left to a worker that was told to stop.
  WindowEnd(std::function<bool()> stop_requested, std::function<absl::Duration()> time_left);

  // Must be called after each step. If `waited`, the step also waited for weights. Its time is then
  // used only until a step without waiting has been measured.
  void OnStep(absl::Duration duration, bool waited);
  // Must be called when all servers have acknowledged a contribution, with the time since the
  // contribution was made.
  void OnHandedIn(absl::Duration duration);
  // Must be called with the time that pulling the weights took. Until OnHandedIn() is called, this
  // time is the estimate for handing in.
  void OnPulled(absl::Duration duration);

  // Returns true if the window ends before local step `step` of `grant`. If so, logs the samples
  // that are not trained on. If the worker was told to stop and the window continues, logs this
  // once per round. Requires: 0 <= step <= grant.local_steps.
  bool IsDue(const messages::Grant& grant, int step);
  // Logs which samples of `grant` are not trained on, because the window ends after `num_steps`
  // steps. `reason` says in the log why it ends. Logs nothing if no steps are left.
  static void TellCut(const messages::Grant& grant, int num_steps, const std::string& reason);

 private:
  // Number of step times that are remembered. It is small, so that one slow step has an effect only
  // for a short time.
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
  // The last round for which the log has said that the rest is computed.
  std::optional<Round> told_round_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::trainer
