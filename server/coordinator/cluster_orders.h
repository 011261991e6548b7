// SPDX-License-Identifier: Apache-2.0

// Carries out orders of operators to a job that is under way: pause, resume, and set the learning
// rate. Pure; only the coordinator uses it.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/coordinator/cluster_saves.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/outbox.h"

namespace lodestar::coordinator {

struct LearningRateChange {
  double before = 0.0;
  double after = 0.0;
  double scale = 1.0;  // factor on the schedule's learning rate from now on
};

class ClusterOrders {
 public:
  // The three objects must outlive this one.
  ClusterOrders(ClusterState* state, Outbox* outbox, ClusterSaves* saves)
      : state_(*state), outbox_(*outbox), saves_(*saves) {}

  // See Coordinator.
  absl::Status Pause(absl::string_view reason, absl::Time now);
  absl::Status Resume(absl::Time now);
  absl::StatusOr<LearningRateChange> SetLearningRate(double learning_rate, absl::Time now);

 private:
  // Checks that the job goes on. Errors: those of CheckKnowsOrders(); FailedPrecondition (the job
  // is over, has failed, or stops).
  absl::Status CheckGoesOn(absl::Time now) const;
  absl::Status CheckHasLearningRate(absl::Time now) const;

  ClusterState& state_;
  Outbox& outbox_;
  ClusterSaves& saves_;
};

}  // namespace lodestar::coordinator
