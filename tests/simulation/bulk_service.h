// SPDX-License-Identifier: Apache-2.0

// BulkService does the pushes and pulls of a simulated server on the real ParameterShard. It stands
// for the part of server/rpc/parameter_push.cc and parameter_pull.cc that is not gRPC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/params/encoding.h"
#include "common/runtime/ids.h"
#include "server/shard/parameter_shard.h"
#include "tests/simulation/audit.h"
#include "tests/simulation/network.h"
#include "worker/client/bulk_transport.h"
#include "worker/client/call_watch.h"

namespace lodestar::simulation {

// A bucket of a contribution on the wire.
struct PushedBucket {
  shard::ContributionKey key;
  uint32_t bucket = 0;
  std::shared_ptr<const std::vector<std::byte>> bytes;
  bool is_damaged = false;
};

struct PullOrder {
  WorkerId worker;
  Incarnation incarnation;
  Round min_round;
  params::Encoding encoding = params::Encoding::kFp32;
  std::vector<uint32_t> buckets;
  std::vector<std::optional<Version>> held;  // by position in `buckets`
};

// The content of a bucket of a pull: its elements, or encoded changes.
struct DeliveredBucket {
  uint32_t bucket = 0;
  Version version;
  std::vector<float> elements;
  std::vector<std::vector<std::byte>> changes;
};

class ServedPush : public std::enable_shared_from_this<ServedPush> {
 public:
  using Answer = std::function<void(absl::StatusOr<client::PushResult>)>;

  ServedPush(std::shared_ptr<shard::ParameterShard> shard, ShardAudit* audit, Answer answer)
      : shard_(std::move(shard)), audit_(audit), answer_(std::move(answer)) {}

  void Take(PushedBucket bucket);
  void OnClientDone();
  // Ends the push because the client is gone.
  void Abandon() { Fail(absl::CancelledError("the client is gone")); }
  client::ServedCall Describe() const { return {.is_held = is_held_, .bytes = bytes_}; }

 private:
  void Pump();
  void OnSpace(absl::StatusOr<shard::StagedBucket> staged);
  void OnCounted(const shard::ContributionKey& key, uint32_t bucket,
                 const absl::StatusOr<shard::PushOutcome>& outcome);
  void MaybeFinish();
  void Fail(const absl::Status& status);

  const std::shared_ptr<shard::ParameterShard> shard_;
  ShardAudit* const audit_;
  Answer answer_;
  std::deque<PushedBucket> inbox_;
  shard::PendingCall waiting_;
  bool is_held_ = false;  // true while the push waits for space
  bool is_over_ = false;
  bool client_done_ = false;
  int num_uncounted_ = 0;
  uint64_t bytes_ = 0;
  client::PushResult result_;
};

class ServedPull : public std::enable_shared_from_this<ServedPull> {
 public:
  using Deliver = std::function<void(DeliveredBucket)>;
  using Answer = std::function<void(const absl::Status&)>;

  ServedPull(std::shared_ptr<shard::ParameterShard> shard, PullOrder order, Deliver deliver,
             Answer answer)
      : shard_(std::move(shard)),
        order_(std::move(order)),
        deliver_(std::move(deliver)),
        answer_(std::move(answer)) {}

  void ReadNext();
  void Abandon();
  client::ServedCall Describe() const { return {.is_held = is_held_, .bytes = bytes_}; }

 private:
  void OnRead(uint32_t bucket, const absl::StatusOr<shard::PublishedBucket>& published);

  const std::shared_ptr<shard::ParameterShard> shard_;
  const PullOrder order_;
  const Deliver deliver_;
  const Answer answer_;
  shard::PendingCall waiting_;
  size_t num_read_ = 0;
  bool is_held_ = false;
  bool is_over_ = false;
  uint64_t bytes_ = 0;
};

}  // namespace lodestar::simulation
