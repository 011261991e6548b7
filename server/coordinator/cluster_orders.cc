// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/cluster_orders.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/job_spec.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/time_text.h"
#include "server/coordinator/cluster_words.h"

namespace lodestar::coordinator {
namespace {

constexpr double kHighestLearningRate = 1e6;

}  // namespace

absl::Status ClusterOrders::CheckGoesOn(absl::Time now) const {
  RETURN_IF_ERROR(CheckKnowsOrders(state_, now));
  if (!state_.ending.failure().ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job has failed: ", state_.ending.failure().message()));
  }
  if (state_.ending.is_stopping()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job stops: ", *state_.ending.stop_reason()));
  }
  if (state_.ending.should_exit() || state_.phase == CoordinatorPhase::kSaving ||
      state_.phase == CoordinatorPhase::kDone) {
    return absl::FailedPreconditionError("the job is over");
  }
  return absl::OkStatus();
}

absl::Status ClusterOrders::Pause(absl::string_view reason, absl::Time now) {
  RETURN_IF_ERROR(CheckGoesOn(now));
  state_.ending.Pause(reason, now);
  saves_.OnOrdersChanged(now);
  outbox_.Remember();
  outbox_.Touch();
  outbox_.Tell(absl::StrCat("paused: ", reason));
  return absl::OkStatus();
}

absl::Status ClusterOrders::Resume(absl::Time now) {
  RETURN_IF_ERROR(CheckGoesOn(now));
  if (!state_.ending.pause().has_value()) {
    return absl::FailedPreconditionError("the job is not paused");
  }
  const absl::Duration lasted = now - state_.ending.pause()->since;
  state_.ending.EndPause();
  state_.rounds.EndStandstill();
  saves_.OnOrdersChanged(now);
  outbox_.Remember();
  outbox_.Touch();
  outbox_.Tell(absl::StrCat("goes on after a pause of ", DurationText(lasted)));
  return absl::OkStatus();
}

absl::Status ClusterOrders::CheckHasLearningRate(absl::Time now) const {
  const auto refuse = [](absl::string_view because) {
    return absl::FailedPreconditionError(absl::StrCat("no learning rate can be set: ", because));
  };
  RETURN_IF_ERROR(CheckGoesOn(now));
  if (state_.rounds.is_site()) {
    return refuse(absl::StrCat("this is a site, whose learning rate comes from ",
                               state_.rounds.site().upstream(), "; set it there"));
  }
  if (job::ReducesOnly(state_.model.job())) {
    return refuse("the clients make the steps, with their own");
  }
  if (!job::HasRosters(state_.model.job()) && !job::HasLocalSteps(state_.model.job())) {
    return refuse(
        "in --mode=async every server has the schedule; stop the job, and start it again with "
        "--learning_rate");
  }
  if (state_.model.tuning().is_measuring()) return refuse("the job measures how to exchange");
  if (!state_.is_ready()) return refuse(WaitingFor(state_, now));
  if (state_.rounds.ledger().is_exhausted()) return refuse("no round follows");
  return absl::OkStatus();
}

absl::StatusOr<LearningRateChange> ClusterOrders::SetLearningRate(double learning_rate,
                                                                  absl::Time now) {
  if (!std::isfinite(learning_rate) || learning_rate <= 0.0 ||
      learning_rate > kHighestLearningRate) {
    return absl::InvalidArgumentError(absl::StrCat("a learning rate of ", learning_rate,
                                                   "; wanted is more than 0 and at most ",
                                                   kHighestLearningRate));
  }
  RETURN_IF_ERROR(CheckHasLearningRate(now));
  const double before =
      state_.rounds.ledger().LearningRate(state_.rounds.ledger().next_round(), /*step=*/0);
  if (!(before > 0.0)) {
    return absl::FailedPreconditionError(
        "no learning rate can be set: that of the schedule is 0 now, and what is set is a multiple "
        "of it");
  }
  const double factor = learning_rate / before;
  state_.rounds.MultiplyLearningRateScale(factor);
  state_.faults.MultiplyLearningRateScale(factor);
  const double scale = state_.rounds.ledger().state().learning_rate_scale;
  saves_.OnOrdersChanged(now);
  outbox_.Remember();
  outbox_.Touch();
  outbox_.Tell(absl::StrCat("learning rate set: ", learning_rate, " instead of ", before,
                            " from round ", state_.rounds.ledger().next_round().value(),
                            " on; the schedule goes on times ", scale));
  return LearningRateChange{before, learning_rate, scale};
}

}  // namespace lodestar::coordinator
