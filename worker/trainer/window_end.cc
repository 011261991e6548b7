// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/window_end.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "worker/trainer/grant_samples.h"

namespace lodestar::trainer {
namespace {

constexpr double kStepMargin = 1.25;
constexpr int kHandingInMargin = 2;
constexpr absl::Duration kLeastHandingIn = absl::Seconds(1);

// Rounds to milliseconds, or to tenths of a second from 10 s on, for messages.
std::string Rounded(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(
      duration, duration < absl::Seconds(10) ? absl::Milliseconds(1) : absl::Milliseconds(100)));
}

}  // namespace

bool FitsIn(const RestOfWindow& rest) {
  const absl::Duration computing = rest.steps * rest.step * kStepMargin;
  return computing + std::max(rest.handing_in * kHandingInMargin, kLeastHandingIn) <= rest.left;
}

WindowEnd::WindowEnd(std::function<bool()> stop_requested,
                     std::function<absl::Duration()> time_left)
    : stop_requested_(std::move(stop_requested)), time_left_(std::move(time_left)) {}

void WindowEnd::OnStep(absl::Duration duration, bool waited) {
  absl::MutexLock lock(&mutex_);
  if (waited) {
    waited_step_ = duration;
  } else {
    steps_[num_steps_++ % kRemembered] = duration;
  }
}

void WindowEnd::OnHandedIn(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  handing_in_ = duration;
}

void WindowEnd::OnPulled(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  pulling_ = duration;
}

absl::Duration WindowEnd::LongestStep() const {
  if (num_steps_ == 0) return waited_step_.value_or(absl::InfiniteDuration());
  return *std::max_element(steps_.begin(),
                           steps_.begin() + std::min<int64_t>(num_steps_, kRemembered));
}

RestOfWindow WindowEnd::Rest(int steps) const {
  return {.steps = steps,
          .step = LongestStep(),
          .handing_in = handing_in_.value_or(pulling_),
          .left = time_left_()};
}

bool WindowEnd::IsDue(const messages::Grant& grant, int step) {
  if (step == grant.local_steps || !stop_requested_()) return false;
  absl::MutexLock lock(&mutex_);
  const RestOfWindow rest = Rest(grant.local_steps - step);
  const std::string times =
      rest.step == absl::InfiniteDuration()
          ? absl::StrCat("the time of a step is not known yet, and ", Rounded(rest.left),
                         " are left until this worker must leave")
          : absl::StrCat(
                rest.steps,
                rest.steps == 1 ? " step is left, which takes " : " steps are left, each takes ",
                Rounded(rest.step), ", sending takes ", Rounded(rest.handing_in), ", and ",
                Rounded(rest.left), " are left until this worker must leave");
  if (!FitsIn(rest)) {
    TellCut(grant, step, times);
    return true;
  }
  if (std::exchange(told_round_, grant.round) != grant.round) {
    logging::LogInfo(
        "stopping: this worker finishes round {} first, with {} of {} local steps made: {}",
        grant.round, step, grant.local_steps, times);
  }
  return false;
}

void WindowEnd::TellCut(const messages::Grant& grant, int num_steps, const std::string& reason) {
  if (num_steps >= grant.local_steps) return;
  const int64_t computed = SamplesOfStep(grant, num_steps).first - grant.first_sample;
  logging::LogInfo(
      "stopping: round {} ends after {} of its {} local steps ({}); {} of its {} samples are not "
      "used for training",
      grant.round, num_steps, grant.local_steps, reason, grant.num_samples - computed,
      grant.num_samples);
}

}  // namespace lodestar::trainer
