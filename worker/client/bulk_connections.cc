#include "worker/client/bulk_connections.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace lodestar {
namespace {

std::vector<int64_t> BytesByShard(const BulkGrpcTransportConfig& config) {
  std::vector<int64_t> bytes(config.servers.size());
  for (const Bucket& bucket : config.buckets) {
    LODESTAR_CHECK(bucket.shard >= 0 && bucket.shard < config.servers.size())
        << "bucket " << bucket.index << " is of shard " << bucket.shard;
    bytes[bucket.shard] += bucket.range.size() * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

}  // namespace

BulkConnections::BulkConnections(BulkGrpcTransportConfig config)
    : config_(std::move(config)),
      shard_bytes_(BytesByShard(config_)),
      executor_(config_.num_threads, "bulk") {
  LODESTAR_CHECK(config_.channels_per_server >= 1) << config_.channels_per_server;
  LODESTAR_CHECK(config_.chunk_bytes >= sizeof(float) && config_.chunk_bytes <= kMaxChunkBytes &&
                 config_.chunk_bytes % sizeof(float) == 0)
      << "chunk_bytes=" << config_.chunk_bytes;
  const std::shared_ptr<grpc::ChannelCredentials> credentials =
      config_.credentials != nullptr ? config_.credentials : grpc::InsecureChannelCredentials();
  stubs_.reserve(config_.servers.size() * config_.channels_per_server);
  for (const std::string& server : config_.servers) {
    for (int i = 0; i < config_.channels_per_server; ++i) {
      const std::shared_ptr<grpc::Channel> channel =
          grpc::CreateCustomChannel(server, credentials, DataChannelArguments());
      stubs_.emplace_back(channel);
      if (i == 0 && config_.shared_memory) links_.push_back(MakeLink(channel));
    }
  }
}

std::unique_ptr<SharedMemoryLink> BulkConnections::MakeLink(
    const std::shared_ptr<grpc::Channel>& channel) const {
  const int shard = static_cast<int>(links_.size());
  const int64_t bytes = shard_bytes_[shard];
  const auto block_bytes = static_cast<int64_t>(config_.chunk_bytes);
  SharedMemoryLink::Config link;
  link.channel = channel;
  link.worker = config_.worker;
  link.incarnation = config_.incarnation;
  link.block_bytes = config_.chunk_bytes;
  // A small model needs no more than itself.
  link.blocks = static_cast<int>(
      std::clamp<int64_t>((bytes + block_bytes - 1) / block_bytes, 1, kSharedBlocks));
  if (config_.on_shared_memory != nullptr) {
    link.on_settled = [callback = config_.on_shared_memory, shard](const absl::Status& status) {
      callback(shard, status);
    };
  }
  return std::make_unique<SharedMemoryLink>(std::move(link));
}

void BulkConnections::PrepareSharedMemory() {
  for (const auto& link : links_) link->Prepare();
}

std::shared_ptr<SharedMemoryCall> BulkConnections::SharedMemory(int stream) {
  if (links_.empty()) return nullptr;
  return links_[stream / config_.channels_per_server]->Current();
}

void BulkConnections::Abandon(int stream, const std::shared_ptr<SharedMemoryCall>& call) {
  links_[stream / config_.channels_per_server]->Abandon(call);
}

const std::string& BulkConnections::server(int stream) const {
  return config_.servers[stream / config_.channels_per_server];
}

absl::StatusOr<int> BulkConnections::StreamOf(uint32_t bucket, Encoding encoding,
                                              size_t num_bytes) const {
  if (bucket >= config_.buckets.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no bucket ", bucket, "; the plan has ", config_.buckets.size()));
  }
  const Bucket& plan = config_.buckets[bucket];
  if (num_bytes != static_cast<size_t>(EncodedBytes(encoding, plan.range.size()))) {
    return absl::InvalidArgumentError(absl::StrCat("bucket ", bucket, " has ", plan.range.size(),
                                                   " elements, given are ", num_bytes, " bytes of ",
                                                   EncodingName(encoding)));
  }
  const int first = plan.shard * config_.channels_per_server;
  if (shard_bytes_[plan.shard] < config_.bytes_for_many_channels) return first;
  return first + static_cast<int>(bucket % config_.channels_per_server);
}

}  // namespace lodestar
