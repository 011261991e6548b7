// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/cluster_health.h"

#include <algorithm>

namespace lodestar::psctl {
namespace {

// An alarm that is younger than this means that something is wrong now. A server retries what has
// failed, such as saving, after a shorter time.
constexpr double kRecentSeconds = 600;

bool IsWrongNow(const v1::Alarm& alarm) {
  return !alarm.is_reminder() && alarm.age_seconds() < kRecentSeconds;
}

}  // namespace

ClusterHealth HealthOf(const v1::ClusterStatus& status) {
  if (status.state() == "failed" || status.state() == "diverged" ||
      std::any_of(status.alarms().begin(), status.alarms().end(), &IsWrongNow)) {
    return ClusterHealth::kNeedsOperator;
  }
  for (const char* state : {"saving", "stopping", "done"}) {
    if (status.state() == state) return ClusterHealth::kGood;
  }
  // "waiting_for_upstream" is normal for a site: it gets its work from its upstream server. If the
  // wait gets too long, is_held_up() is true.
  const bool has_work = status.state() == "training" || status.state() == "evaluating" ||
                        status.state() == "waiting_for_upstream";
  const bool has_worker =
      std::any_of(status.workers().begin(), status.workers().end(),
                  [](const v1::WorkerStatus& worker) { return worker.state() == "member"; });
  const bool goes_on = has_work && has_worker && !status.open_round().is_held_up();
  return goes_on ? ClusterHealth::kGood : ClusterHealth::kStandsStill;
}

}  // namespace lodestar::psctl
