// SPDX-License-Identifier: Apache-2.0

// A parameter server in memory, for tests of whole rounds with one worker. It applies gradients by
// plain SGD. It applies pseudo-gradients by the outer step of local SGD, with learning rate 1, or
// as set by UseOuterMomentum().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/messages/cluster_messages.h"
#include "common/messages/contribution.h"
#include "worker/client/bulk_transport.h"

namespace lodestar::trainer {

class LocalParameterServer final : public client::ParameterTransport {
 public:
  // Starts with the layout's initial weights, and with many buckets per block. Requires:
  // `job.model` is set.
  LocalParameterServer(const job::JobSpec& job, double learning_rate);

  const messages::Registration& registration() const { return registration_; }
  // Gives the worker a new incarnation, as if it had lost its lease and registered again.
  void BeginAnotherLife() {
    registration_.life.incarnation = Incarnation(registration_.life.incarnation.value() + 1);
  }
  // Gives the servers a new incarnation, as if they had restarted and the worker had registered
  // again.
  void BeginAnotherServerLife() {
    ++registration_.server_incarnation;
    BeginAnotherLife();
  }
  // Applies Nesterov's outer step to pseudo-gradients from now on.
  void UseOuterMomentum(double learning_rate, double momentum) {
    outer_learning_rate_ = static_cast<float>(learning_rate);
    outer_momentum_ = static_cast<float>(momentum);
  }
  // Adds rounds in which this worker took no part and the weights did not change.
  void SkipRounds(int64_t rounds) {
    absl::MutexLock lock(&mutex_);
    rounds_done_ += rounds;
  }
  // From now on, pulls block until they are cancelled, or until ReleasePulls().
  void HoldPulls() {
    absl::MutexLock lock(&mutex_);
    holds_pulls_ = true;
  }
  void ReleasePulls() {
    absl::MutexLock lock(&mutex_);
    holds_pulls_ = false;
  }
  // Sets the number of rounds that earlier processes of the worker's name have completed.
  void RememberRounds(uint64_t completed) { registration_.rounds_completed = completed; }
  const std::vector<float>& weights() const { return weights_; }
  // Returns the number of rounds that are over.
  Version version() {
    absl::MutexLock lock(&mutex_);
    return Version(rounds_done_);
  }
  // Returns the bytes of the last contribution, by bucket.
  const std::vector<std::vector<std::byte>>& pushed() const { return pushed_; }
  // Returns the header of the last contribution.
  const client::ContributionHeader& last_header() const { return last_header_; }
  // Called when the worker adds a bucket to a push.
  std::function<void(uint32_t bucket)> on_add_ = [](uint32_t) {};
  // Called on the thread that pulls, before the pull waits for earlier rounds.
  std::function<void()> on_pull_ = [] {};
  // Called before a push is counted and answered.
  std::function<void()> on_finish_ = [] {};
  // Value that PushSession::bytes_unsent() returns.
  int64_t bytes_unsent_ = 0;
  // Returns the buckets of the last pull, in the order in which the worker asked for them.
  std::vector<uint32_t> asked() {
    absl::MutexLock lock(&mutex_);
    return asked_;
  }
  // If not OK, push_failure_ is the answer to the next push. counts_before_failing_ says whether
  // that push is counted.
  absl::Status push_failure_;
  bool counts_before_failing_ = false;

  std::unique_ptr<client::PushSession> StartPush(const client::ContributionHeader& header) override;
  std::unique_ptr<client::PullSession> StartPull(client::PullSpec spec,
                                                 BucketCallback on_bucket) override;
  uint64_t bytes_pushed() const override { return 0; }
  uint64_t bytes_pulled() const override { return 0; }

 private:
  class Push;
  class Pull;

  void Apply(const client::ContributionHeader& header, params::ElementRange range,
             const float* contribution);

  messages::Registration registration_;
  const float learning_rate_;
  std::vector<float> weights_;
  std::vector<std::vector<std::byte>> pushed_;
  client::ContributionHeader last_header_;
  float outer_learning_rate_ = 1.0f;
  float outer_momentum_ = 0.0f;
  std::vector<float> momentum_;

  absl::Mutex mutex_;
  int64_t rounds_done_ ABSL_GUARDED_BY(mutex_) = 0;
  bool holds_pulls_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<uint32_t> asked_ ABSL_GUARDED_BY(mutex_);
  std::vector<Version> versions_;  // One entry per bucket.
};

}  // namespace lodestar::trainer
