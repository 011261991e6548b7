// A parameter server in memory, for tests of whole rounds with one worker: plain SGD on gradients,
// and the outer steps of local SGD with learning rate 1, or with momentum.
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
  // Starts with the layout's initial weights. Many buckets per block. `job.model` must be set.
  LocalParameterServer(const JobSpec& job, double learning_rate);

  const Registration& registration() const { return registration_; }
  // The worker has lost its lease, and has registered again.
  void BeginAnotherLife() {
    registration_.life.incarnation = Incarnation(registration_.life.incarnation.value() + 1);
  }
  // The servers were started again, and the worker has registered with them.
  void BeginAnotherServerLife() {
    ++registration_.server_incarnation;
    BeginAnotherLife();
  }
  // From here on pseudo-gradients are those of Nesterov's outer step.
  void UseOuterMomentum(double learning_rate, double momentum) {
    outer_learning_rate_ = static_cast<float>(learning_rate);
    outer_momentum_ = static_cast<float>(momentum);
  }
  // Rounds went by without this worker, and have changed nothing.
  void SkipRounds(int64_t rounds) {
    absl::MutexLock lock(&mutex_);
    rounds_done_ += rounds;
  }
  // From here on pulls wait until they are cancelled.
  void HoldPulls() {
    absl::MutexLock lock(&mutex_);
    holds_pulls_ = true;
  }
  void ReleasePulls() {
    absl::MutexLock lock(&mutex_);
    holds_pulls_ = false;
  }
  // Sets the rounds that the worker's name has completed before this process.
  void RememberRounds(uint64_t completed) { registration_.rounds_completed = completed; }
  const std::vector<float>& weights() const { return weights_; }
  // Rounds that are over.
  Version version() {
    absl::MutexLock lock(&mutex_);
    return Version(rounds_done_);
  }
  // The bytes that were contributed last, by bucket.
  const std::vector<std::vector<std::byte>>& pushed() const { return pushed_; }
  // Returns the header of the last contribution.
  const client::ContributionHeader& last_header() const { return last_header_; }
  // Called when a worker hands a bucket over.
  std::function<void(uint32_t bucket)> on_add_ = [](uint32_t) {};
  // Called before weights are given out, which pulls wait for until the rounds before theirs are
  // over; on the thread that pulls.
  std::function<void()> on_pull_ = [] {};
  // Called before a push is counted, and answered.
  std::function<void()> on_finish_ = [] {};
  // What PushSession::bytes_unsent() of pushes returns.
  int64_t bytes_unsent_ = 0;
  // Buckets of the pull that was begun last, in the order in which they are asked for.
  std::vector<uint32_t> asked() {
    absl::MutexLock lock(&mutex_);
    return asked_;
  }
  // What the next push is answered, if it is an error; counted or not.
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

  void Apply(const client::ContributionHeader& header, ElementRange range,
             const float* contribution);

  Registration registration_;
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
  std::vector<Version> versions_;  // by bucket
};

}  // namespace lodestar::trainer
