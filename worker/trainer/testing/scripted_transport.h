// SPDX-License-Identifier: Apache-2.0

// Transports that give scripted answers, and other classes for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/clock.h"
#include "worker/client/bulk_transport.h"

namespace lodestar::trainer {

// Returns a registration with two blocks of two elements, one bucket per block.
messages::Registration TwoBlocks();
// Returns a registration with a block of eight elements in buckets 0 to 3, and a block of two
// elements in bucket 4.
messages::Registration ABlockOfFourBuckets();

// Ends each push and pull with the next status of script_, or with OK if none is left. A pull
// delivers bucket b with values 10 + b and version min_round + b. A pull that fails delivers its
// first bucket before it fails.
class ScriptedTransport final : public client::ParameterTransport {
 public:
  struct Sent {
    uint32_t bucket;
    Version base_version;
    std::vector<std::byte> data;
    bool is_from_device = false;
    // Returns the elements. Requires: the encoding is fp32.
    std::vector<float> values() const;
  };

  std::unique_ptr<client::PushSession> StartPush(const client::ContributionHeader& header) override;
  std::unique_ptr<client::PullSession> StartPull(client::PullSpec spec,
                                                 BucketCallback on_bucket) override;
  bool ReachesDevice(uint32_t) override { return reaches_device_; }
  uint64_t bytes_pushed() const override { return 0; }
  uint64_t bytes_pulled() const override { return 0; }

  absl::Status NextStatus();

  bool reaches_device_ = false;
  std::vector<absl::Status> script_;
  std::vector<std::vector<Sent>> pushes_;  // One entry per session.
  std::vector<std::vector<uint32_t>> pulls_;
  std::vector<client::ContributionHeader> headers_;
  std::function<void(uint32_t bucket)> on_add_ = [](uint32_t) {};
  int64_t bytes_unsent_ = 0;  // The answer of every push.
  client::PushWait wait_;     // The answer of every push.
};

// A transport whose sessions end only when they are cancelled.
class StuckTransport final : public client::ParameterTransport {
 public:
  std::unique_ptr<client::PushSession> StartPush(const client::ContributionHeader& header) override;
  std::unique_ptr<client::PullSession> StartPull(client::PullSpec spec,
                                                 BucketCallback on_bucket) override;
  uint64_t bytes_pushed() const override { return 0; }
  uint64_t bytes_pulled() const override { return 0; }

  // Set when Wait() or Finish() of a session is called for the first time.
  absl::Notification waiting_;
};

// A clock whose Sleep() returns at once, so that pauses between retries do not slow a test.
class InstantClock final : public Clock {
 public:
  absl::Time Now() override { return absl::UnixEpoch() + slept_; }
  void Sleep(absl::Duration duration) override { slept_ += duration; }

 private:
  absl::Duration slept_;
};

}  // namespace lodestar::trainer
