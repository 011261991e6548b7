// SPDX-License-Identifier: Apache-2.0

// PolicyModel checks rules that the two policies of every mode must obey. It simulates a tiny
// cluster in memory. A random scheduler makes workers pull, push, repeat pushes, die and come back.
// A new mode needs one line in policy_conformance_test.cc.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/sync/bucket_policy.h"
#include "server/sync/cluster_policy.h"
#include "server/sync/member_directory.h"

namespace lodestar::sync {

class PolicyModel {
 public:
  struct Config {
    int num_workers = 3;
    int num_buckets = 2;
    int min_workers = 1;
    double death_rate = 0.02;   // probability per step
    int max_rounds_ahead = -1;  // the bound to check; -1 means none
  };

  PolicyModel(const BucketPolicy& bucket_policy, const ClusterPolicy& cluster_policy,
              const Config& config, uint64_t seed);

  // Does one random event. Errors: Internal, naming the rule that was broken.
  absl::Status Step();
  // Revives all workers, and continues until each has completed two more grants. No worker dies
  // meanwhile. Errors: Internal (a rule was broken, or the workers are not done after a maximum
  // number of steps).
  absl::Status Drain();

  int64_t updates() const { return updates_; }

 private:
  struct Worker {
    WorkerId id;
    Incarnation incarnation;
    bool is_alive = false;
    bool is_waiting = false;
    std::optional<Round> granted;
    std::set<int> unread;     // buckets that it still has to pull
    std::set<int> unsent;     // buckets that it still has to push
    std::set<int> in_flight;  // buckets whose push is held
    std::vector<Version> base;
    int64_t completed = 0;
  };
  struct Push {
    Incarnation incarnation;
    Round round;
    Version base_version;
  };
  struct BucketModel {
    Version version;
    std::map<Round, RoundPlan> plans;
    std::vector<WorkerId> live;
    std::vector<WorkerId> contributed;
    std::map<WorkerId, CountedContribution> counted;
    std::map<WorkerId, Push> held;
    std::set<std::pair<WorkerId, std::pair<Incarnation, Round>>> applied;
  };

  absl::Status Ask(Worker& worker);
  absl::Status Pull(Worker& worker);
  absl::Status Send(Worker& worker);
  absl::Status RepeatOldPush(Worker& worker);
  absl::Status Kill(Worker& worker);
  void Revive(Worker& worker);

  absl::Status Count(int bucket, WorkerId worker, const Push& push);
  absl::Status Settle(int bucket);
  void Advance(int bucket);
  absl::Status Coordinate();
  absl::StatusOr<bool> MayOpen(const ClusterFacts& cluster);
  absl::Status GrantAlone(const std::vector<MemberProgress>& members, const ClusterFacts& cluster);
  void GiveGrant(Worker& worker, Round round);
  absl::Status CheckAhead() const;
  absl::Status CheckAwaited(const std::string& reason) const;

  BucketFacts FactsOf(const BucketModel& bucket) const;
  std::vector<MemberProgress> Members() const;
  ClusterFacts Cluster(const std::vector<MemberProgress>& members,
                       std::vector<MemberProgress>& missing) const;
  bool Flip(double probability);
  int Pick(int count);

  const BucketPolicy& bucket_policy_;
  const ClusterPolicy& cluster_policy_;
  Config config_;
  std::mt19937_64 random_;
  std::vector<Worker> workers_;
  std::vector<BucketModel> buckets_;
  MemberDirectory directory_;
  uint64_t view_ = 0;
  uint64_t last_incarnation_ = 0;
  Round next_round_;
  std::optional<RoundPlan> open_;
  std::set<WorkerId> reported_;
  std::string last_reason_;
  int64_t updates_ = 0;
};

}  // namespace lodestar::sync
