// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/stragglers/worker_activity.h"

#include <algorithm>
#include <utility>

namespace lodestar::stragglers {
namespace {

uint64_t Increase(uint64_t before, uint64_t after) { return after > before ? after - before : 0; }

}  // namespace

void WorkerActivity::BeginLife(bool is_same_process) {
  const WorkerActivity before = std::exchange(*this, WorkerActivity());
  was_waited_for_ = before.was_waited_for_;
  if (is_same_process || before.memory_.kept_space) {
    memory_.rests_until = before.memory_.rests_until;
  }
  if (!is_same_process) return;
  memory_.times_dropped = before.memory_.times_dropped;
  pace_ = before.pace_;
  last_num_samples_ = before.last_num_samples_;
}

void WorkerActivity::EndLife() {
  pushes_ = MemberPushes();
  activity_.clear();
  path_stall_.reset();
}

void WorkerActivity::OnHeartbeat(const messages::HeartbeatCall& call, absl::Time now) {
  const bool is_same = activity_ == call.activity && bytes_pushed_ == call.bytes_pushed &&
                       bytes_pulled_ == call.bytes_pulled;
  if (!is_same) same_since_ = now;
  if (call.bytes_pushed > bytes_pushed_ || call.bytes_pulled > bytes_pulled_) moved_at_ = now;
  if (activity_ != call.activity) active_since_ = now;
  activity_ = call.activity;
  path_stall_.reset();
  // A computing worker moves no bytes, so its reported standstill may be out of date.
  if (call.standstill.has_value() && (is_delivering() || is_pulling())) {
    path_stall_ = {call.standstill->shard, std::max(now - call.standstill->age, active_since_)};
  }
  push_bytes_.Add(static_cast<double>(Increase(bytes_pushed_, call.bytes_pushed)), now);
  pull_bytes_.Add(static_cast<double>(Increase(bytes_pulled_, call.bytes_pulled)), now);
  bytes_pushed_ = call.bytes_pushed;
  bytes_pulled_ = call.bytes_pulled;
}

void WorkerActivity::OnReport(const std::optional<messages::Grant>& grant, absl::Duration time) {
  memory_.times_dropped = 0;
  if (!grant.has_value()) return;
  pace_.OnRound(*grant, time);
  last_num_samples_ = grant->num_samples;
}

std::optional<absl::Duration> WorkerActivity::UsualRound(
    const std::optional<messages::Grant>& grant) const {
  if (!grant.has_value()) return pace_.LatelyFor(last_num_samples_);
  if (grant->num_heldout_samples > 0) return std::nullopt;
  return pace_.LatelyFor(grant->num_samples);
}

void WorkerActivity::OnDropped(absl::Duration rest, bool lacks_time, absl::Time now) {
  if (lacks_time) ++memory_.times_dropped;
  memory_.kept_space = !lacks_time;
  memory_.rests_until = now + rest;
}

}  // namespace lodestar::stragglers
