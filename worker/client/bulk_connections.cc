// SPDX-License-Identifier: Apache-2.0

#include "worker/client/bulk_connections.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/net/host_port.h"
#include "common/runtime/check.h"
#include "common/runtime/status_macros.h"
#include "proto/bulk_options.h"
#include "proto/status_mapping.h"
#include "worker/client/shared_memory_plan.h"

namespace lodestar::client {
namespace {

std::vector<int64_t> BytesByShard(const BulkGrpcTransportConfig& config) {
  std::vector<int64_t> bytes(config.servers.size());
  for (const params::Bucket& bucket : config.buckets) {
    LODESTAR_CHECK(bucket.shard >= 0 && bucket.shard < config.servers.size())
        << "bucket " << bucket.index << " is of shard " << bucket.shard;
    bytes[bucket.shard] += bucket.range.size() * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

// Returns true if `bucket` is better than `other` for a test of a stream. The smallest bucket of at
// least 64 KiB is best. If all buckets are smaller, the largest is best.
bool IsBetterForTrial(const params::Bucket& bucket, const params::Bucket& other) {
  constexpr int64_t kEnough = 65536 / sizeof(float);
  const int64_t size = bucket.range.size();
  const int64_t other_size = other.range.size();
  if ((size >= kEnough) != (other_size >= kEnough)) return size >= kEnough;
  return size >= kEnough ? size < other_size : size > other_size;
}

std::function<void(const absl::Status&)> ForShard(
    const std::function<void(int, const absl::Status&)>& callback, int shard) {
  if (callback == nullptr) return nullptr;
  return [callback, shard](const absl::Status& status) { callback(shard, status); };
}

}  // namespace

absl::Status ErrorOfStream(const grpc::Status& status) {
  absl::Status error = wire::FromGrpcStatus(status);
  if (!absl::IsCancelled(error)) return error;
  return absl::UnavailableError(
      "the server has ended the stream, because this worker sent or received nothing for too long "
      "(--message_timeout); the worker opens a new stream");
}

BulkConnections::BulkConnections(BulkGrpcTransportConfig config)
    : config_(std::move(config)),
      shard_bytes_(BytesByShard(config_)),
      servers_(config_.servers),
      executor_(config_.num_threads, "bulk") {
  LODESTAR_CHECK(config_.channels_per_server >= 1) << config_.channels_per_server;
  for (const size_t bytes : {config_.chunk_bytes, config_.shared_block_bytes}) {
    LODESTAR_CHECK(bytes >= sizeof(float) && bytes <= wire::kMaxChunkBytes &&
                   bytes % sizeof(float) == 0)
        << "chunks of " << bytes << " bytes";
  }
  for (int stream = 0; stream < num_streams(); ++stream) {
    connections_.push_back(Open(stream));
    if (config_.shared_memory && stream % config_.channels_per_server == 0) {
      links_.push_back(MakeLink(connections_.back().channel));
    }
  }
  if (config_.patience == absl::InfiniteDuration()) return;
  watchdog_ = std::make_unique<CallWatchdog>(
      config_.patience, config_.chunk_bytes, [this](int stream) { return ChannelOf(stream); },
      [this](int stream) { return Replace(stream); });
}

std::function<void()> BulkConnections::Replace(int stream) {
  Connection connection = Open(stream);
  absl::MutexLock lock(&mutex_);
  std::swap(connections_[stream], connection);
  return [socket = connection.socket] { socket->Abort(); };
}

void BulkConnections::MoveTo(const std::vector<std::string>& addresses) {
  std::vector<int> moved;
  {
    absl::MutexLock lock(&mutex_);
    for (size_t shard = 0; shard < std::min(addresses.size(), servers_.size()); ++shard) {
      if (servers_[shard] == addresses[shard]) continue;
      servers_[shard] = addresses[shard];
      moved.push_back(static_cast<int>(shard));
    }
  }
  for (const int shard : moved) {
    const int first = shard * config_.channels_per_server;
    std::vector<std::function<void()>> old_connections;
    for (int channel = 0; channel < config_.channels_per_server; ++channel) {
      old_connections.push_back(Replace(first + channel));
    }
    if (!links_.empty()) links_[shard]->UseChannel(ChannelOf(first));
    for (const std::function<void()>& end : old_connections) end();
  }
}

BulkConnections::Connection BulkConnections::Open(int stream) const {
  grpc::ChannelArguments arguments = wire::DataChannelArguments();
  Connection connection;
  connection.socket = ConnectionSocket::Of(arguments);
  connection.channel =
      grpc::CreateCustomChannel(server(stream), config_.security.channel_credentials(), arguments);
  return connection;
}

std::shared_ptr<grpc::Channel> BulkConnections::ChannelOf(int stream) {
  absl::MutexLock lock(&mutex_);
  return connections_[stream].channel;
}

size_t BulkConnections::ChunkBytes(int stream, bool is_push) {
  return watchdog_ == nullptr ? config_.chunk_bytes : watchdog_->ChunkBytes(stream, is_push);
}

uint64_t BulkConnections::BeginCall(int stream, const std::shared_ptr<WatchedCall>& call,
                                    grpc::ClientContext& context) {
  if (!config_.life_secret.empty()) context.AddMetadata(wire::kLifeSecretKey, config_.life_secret);
  if (watchdog_ == nullptr) return 0;
  const uint64_t number = watchdog_->NewNumber();
  context.AddMetadata(wire::kCallNumberKey, absl::StrCat(number));
  watchdog_->Watch(number, stream, call);
  return number;
}

void BulkConnections::EndCall(uint64_t number, const absl::Status& status) {
  if (watchdog_ != nullptr) watchdog_->Forget(number, status);
}

void BulkConnections::CheckConnection(int stream, const std::shared_ptr<grpc::Channel>& channel,
                                      const grpc::Status& status) {
  const grpc::StatusCode code = status.error_code();
  if (code != grpc::StatusCode::UNKNOWN && code != grpc::StatusCode::INTERNAL) return;
  Connection connection = Open(stream);
  {
    absl::MutexLock lock(&mutex_);
    // After another call, this connection was replaced already.
    if (connections_[stream].channel != channel) return;
    std::swap(connections_[stream], connection);
  }
  connection.socket->Abort();
}

std::optional<messages::Standstill> BulkConnections::standstill() const {
  if (watchdog_ == nullptr) return std::nullopt;
  const std::optional<std::pair<int, absl::Duration>> still = watchdog_->Standstill();
  if (!still.has_value()) return std::nullopt;
  return messages::Standstill{still->first / config_.channels_per_server, still->second};
}

std::unique_ptr<SharedMemoryLink> BulkConnections::MakeLink(
    const std::shared_ptr<grpc::Channel>& channel) const {
  const int shard = static_cast<int>(links_.size());
  const int64_t bytes = shard_bytes_[shard];
  SharedMemoryLink::Config link;
  link.channel = channel;
  link.call = {.life = {config_.worker, config_.incarnation},
               .life_secret = config_.life_secret,
               .block_bytes = config_.shared_block_bytes,
               .blocks = SharedBlocksFor(bytes, config_.shared_block_bytes),
               .outlives_process = config_.outlives_process,
               .on_settled = ForShard(config_.on_shared_memory, shard),
               .registry = config_.registry,
               .on_registered = ForShard(config_.on_registered, shard)};
  return std::make_unique<SharedMemoryLink>(std::move(link));
}

void BulkConnections::PrepareSharedMemory() {
  for (const auto& link : links_) link->Prepare();
}

std::shared_ptr<SharedMemoryCall> BulkConnections::SharedMemory(int stream) {
  if (links_.empty()) return nullptr;
  return links_[stream / config_.channels_per_server]->Current();
}

bool BulkConnections::ReachesDevice(uint32_t bucket) {
  const absl::StatusOr<int> stream = StreamOf(bucket);
  if (!stream.ok()) return false;
  const std::shared_ptr<SharedMemoryCall> shared = SharedMemory(*stream);
  return shared != nullptr && shared->is_registered();
}

void BulkConnections::Abandon(int stream, const std::shared_ptr<SharedMemoryCall>& call) {
  links_[stream / config_.channels_per_server]->Abandon(call);
}

void BulkConnections::MeasureSent() {
  uint64_t bytes = 0;
  // The longest sending time of all connections. Times are not added, because the connections send
  // at the same time.
  absl::Duration sending;
  absl::Duration round_trip = absl::InfiniteDuration();
  {
    absl::MutexLock lock(&mutex_);
    for (Connection& connection : connections_) {
      const std::optional<SocketCounts> counts = connection.socket->Counts();
      if (!counts.has_value()) continue;
      const SocketCounts last = std::exchange(connection.measured, *counts);
      round_trip = std::min(round_trip, counts->round_trip);
      // Counts that went down show that gRPC has made a new connection for this channel.
      if (counts->bytes_sent < last.bytes_sent || counts->sending < last.sending) continue;
      bytes += counts->bytes_sent - last.bytes_sent;
      sending = std::max(sending, counts->sending - last.sending);
    }
  }
  if (bytes > 0) meter_.OnSent(bytes, sending, round_trip);
}

std::string BulkConnections::server(int stream) const {
  absl::MutexLock lock(&mutex_);
  return servers_[stream / config_.channels_per_server];
}

absl::Status BulkConnections::Explain(absl::string_view deed, int stream,
                                      const absl::Status& error) const {
  const absl::string_view text = error.message();
  const std::string address = server(stream);
  std::string explained = absl::StrCat(deed, " ", address, ": ", text);
  // These are gRPC's texts for a name without an address, and for a loopback address that does not
  // answer. In the second case the server's name resolves to the machine of this worker.
  const bool is_unknown = absl::StrContains(text, "DNS resolution failed");
  const absl::StatusOr<net::HostPort> place = net::ParseHostPort("", address, /*lowest_port=*/1);
  const bool is_this_machine =
      absl::StrContains(text, "failed to connect") &&
      (absl::StrContains(text, "ipv4:127.") || absl::StrContains(text, "ipv6:%5B::1%5D")) &&
      place.ok() && !place->IsLoopback();
  if (is_unknown || is_this_machine) {
    absl::StrAppend(&explained, "; the server of shard ", stream / config_.channels_per_server,
                    " gives its address as ", address, ", which ",
                    is_unknown ? "this machine cannot resolve. Start"
                               : "means this machine itself. Either that server has ended, or it "
                                 "is on another machine; then start",
                    " it with --advertise=HOST:PORT, an address that workers reach");
  }
  return absl::Status(absl::IsUnauthenticated(error) ? absl::StatusCode::kAborted : error.code(),
                      explained);
}

absl::StatusOr<int> BulkConnections::StreamOf(uint32_t bucket) const {
  if (bucket < config_.buckets.size()) return StreamOf(config_.buckets[bucket]);
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no bucket ", bucket, "; the number of buckets is ", config_.buckets.size()));
}

absl::StatusOr<int> BulkConnections::StreamOf(uint32_t bucket, params::Encoding encoding,
                                              size_t num_bytes) const {
  ASSIGN_OR_RETURN(const int stream, StreamOf(bucket));
  const params::Bucket& plan = config_.buckets[bucket];
  if (num_bytes != static_cast<size_t>(params::EncodedBytes(encoding, plan.range.size()))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "bucket ", bucket, " has ", plan.range.size(), " elements, but the data to be sent have ",
        num_bytes, " bytes of ", params::EncodingName(encoding),
        ", which is not the size of that many elements"));
  }
  return stream;
}

int BulkConnections::StreamOf(const params::Bucket& bucket) const {
  const int first = bucket.shard * config_.channels_per_server;
  if (shard_bytes_[bucket.shard] < config_.bytes_for_many_channels) return first;
  return first + static_cast<int>(bucket.index % config_.channels_per_server);
}

std::map<int, const params::Bucket*> BulkConnections::TrialBuckets() const {
  std::map<int, const params::Bucket*> chosen;
  for (const params::Bucket& bucket : config_.buckets) {
    const params::Bucket*& best = chosen[StreamOf(bucket)];
    if (best == nullptr || IsBetterForTrial(bucket, *best)) best = &bucket;
  }
  return chosen;
}

}  // namespace lodestar::client
