// What the coordinator keeps per worker beside its membership: the grant it holds, how far it is,
// and how fast. Pure data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "server/coordinator/cluster_snapshot.h"
#include "server/coordinator/messages.h"
#include "server/coordinator/rate_meter.h"
#include "server/membership/membership_table.h"

namespace lodestar {

class WorkerDesk {
 public:
  // A new life; what was counted over all lives stays.
  void BeginLife(const RegisterCall& call);
  void EndLife();
  void SetPeer(const std::string& peer) { peer_ = peer; }

  void OnHeartbeat(const HeartbeatCall& call, absl::Time now);
  void Give(const Grant& grant);
  // What a report is: of the grant held, of one reported before, or of none (InvalidArgument).
  enum class Match : uint8_t { kCurrent, kRepeat };
  absl::StatusOr<Match> Classify(const GrantReport& report) const;
  // The grant held is done.
  void Complete(const GrantReport& report, absl::Time now);
  // Asked for a grant; kept until it gets one or its life ends.
  void SetWaiting() { is_waiting_ = !grant_.has_value(); }

  bool is_waiting() const { return is_waiting_; }
  const std::optional<Grant>& grant() const { return grant_; }
  // Rounds completed in this life, from where the slowest member was when it joined.
  int64_t progress() const { return progress_; }
  void set_progress(int64_t progress) { progress_ = progress; }

  // `newest`: number of the newest round granted to anyone; -1: none.
  WorkerSnapshot Snapshot(const WorkerRecord& record, int64_t newest, absl::Time now) const;

  // By its last heartbeat its contribution has left and is not yet acknowledged.
  bool is_delivering() const { return activity_ == "push"; }

 private:
  void CountTimes(const GrantReport& report);

  std::string device_;
  std::string peer_;
  std::string activity_;
  bool is_waiting_ = false;
  std::optional<Grant> grant_;
  int64_t last_granted_ = -1;
  int64_t last_reported_ = -1;
  int64_t progress_ = 0;
  uint64_t rounds_completed_ = 0;
  uint64_t bytes_pushed_ = 0;  // by the last heartbeat
  uint64_t bytes_pulled_ = 0;
  RateMeter samples_;
  RateMeter push_bytes_;
  RateMeter pull_bytes_;
  double compute_seconds_ = 0.0;  // fading sums over the last rounds
  double communication_seconds_ = 0.0;
  double wait_seconds_ = 0.0;
};

}  // namespace lodestar
