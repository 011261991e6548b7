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

absl::Status ClusterOrders::CheckGoesOn(absl::Time now) const {
  RETURN_IF_ERROR(CheckKnowsOrders(state_, now));
  if (!state_.ending.failure().ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job has failed: ", state_.ending.failure().message()));
  }
  if (state_.ending.is_stopping()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job is stopping: ", *state_.ending.stop_reason()));
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
  outbox_.Tell(absl::StrCat("the job continues after a pause of ", DurationText(lasted)));
  return absl::OkStatus();
}

absl::Status ClusterOrders::CheckHasLearningRate(absl::Time now) const {
  const auto refuse = [](absl::string_view because) {
    return absl::FailedPreconditionError(
        absl::StrCat("the learning rate cannot be set: ", because));
  };
  RETURN_IF_ERROR(CheckGoesOn(now));
  if (state_.rounds.is_site()) {
    return refuse(absl::StrCat("this server belongs to a site, and gets the learning rate from ",
                               state_.rounds.site().upstream(), "; set it with that server"));
  }
  if (job::ReducesOnly(state_.model.job())) {
    return refuse(
        "the programs make the steps themselves, with learning rates of their own; set it in the "
        "programs");
  }
  if (!job::HasRosters(state_.model.job()) && !job::HasLocalSteps(state_.model.job())) {
    return refuse(
        "in --mode=async it cannot be changed while the job runs; stop the job, and start it again "
        "with --learning_rate");
  }
  if (state_.model.tuning().is_measuring())
    return refuse("the job is still measuring to choose its exchange settings; try again later");
  if (!state_.is_ready()) return refuse(WaitingFor(state_, now));
  if (state_.rounds.ledger().is_exhausted()) return refuse("the job has no further round");
  return absl::OkStatus();
}

absl::StatusOr<LearningRateChange> ClusterOrders::SetLearningRate(double learning_rate,
                                                                  absl::Time now) {
  if (!std::isfinite(learning_rate) || learning_rate <= 0.0 ||
      learning_rate > job::kMaxLearningRate) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the learning rate ", learning_rate,
        " is out of range; allowed is more than 0 and at most ", job::kMaxLearningRate));
  }
  RETURN_IF_ERROR(CheckHasLearningRate(now));
  const double before =
      state_.rounds.ledger().LearningRate(state_.rounds.ledger().next_round(), /*step=*/0);
  if (!(before > 0.0)) {
    return absl::FailedPreconditionError(
        "the learning rate cannot be set now: the schedule's rate is 0, and a new rate is stored "
        "as a multiple of it");
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
                            " on; the later rates of the schedule are multiplied by ", scale));
  return LearningRateChange{before, learning_rate, scale};
}

}  // namespace lodestar::coordinator
