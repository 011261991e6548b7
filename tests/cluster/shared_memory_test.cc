// SPDX-License-Identifier: Apache-2.0

// Tests payloads through memory that worker and server share. Training must give the same bits as
// without shared memory. A peer that lies, changes what it has sent, or goes away must do no harm.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/crc32c/crc32c.h"
#include "common/storage/shared_region.h"
#include "common/testing/status_matchers.h"
#include "proto/bulk_options.h"
#include "proto/parameter_service.grpc.pb.h"
#include "proto/status_mapping.h"
#include "tests/cluster/shard_server.h"
#include "worker/client/bulk_grpc_transport.h"

namespace lodestar {
namespace {

using ::testing::HasSubstr;

// The transport of a worker, after it is known whether memory is shared.
struct Peer {
  std::unique_ptr<client::ParameterTransport> transport;
  absl::Status shared;
};

class SharedMemoryTest : public ::testing::Test {
 protected:
  static constexpr size_t kSmallChunk = 4096;

  SharedMemoryTest() {
    // The layout has many more chunks than blocks, and a shorter last chunk.
    absl::StatusOr<params::Layout> layout = params::Layout::FromTensors({
        {"a", {300, 500}, 0, 0, false, {params::InitializerKind::kOnes, 0}},
        {"b", {7}, 0, 0, false, {params::InitializerKind::kZeros, 0}},
        {"c", {111, 113}, 0, 1, false, {params::InitializerKind::kOnes, 0}},
    });
    config_.layout = *std::move(layout);
    config_.job.model = {"test", params::ClientModelSpec{}};
    config_.job.mode = job::Mode::kSync;
    config_.job.optimizer.kind = job::OptimizerKind::kAdamW;
    config_.job.batch_size = 1;
    config_.job.min_workers = 1;
    config_.job.bucket_bytes = 64 << 10;
  }

  void Start(bool server_shares = true) {
    config_.shared_memory = server_shares;
    server_ = std::make_unique<ShardServer>(config_);
    stub_ = v1::ParameterService::NewStub(server_->Channel());
  }

  Peer Connect(WorkerId worker, bool share, size_t chunk_bytes = kSmallChunk) {
    client::BulkGrpcTransportConfig config = server_->TransportConfig(worker);
    config.shared_memory = share;
    config.chunk_bytes = chunk_bytes;
    config.shared_block_bytes = chunk_bytes;
    Peer peer;
    auto settled = std::make_shared<absl::Notification>();
    auto status = std::make_shared<absl::Status>();
    config.on_shared_memory = [settled, status](int shard, const absl::Status& result) {
      EXPECT_EQ(shard, 0);
      if (settled->HasBeenNotified()) return;
      *status = result;
      settled->Notify();
    };
    peer.transport = client::MakeBulkGrpcTransport(std::move(config));
    if (share) {
      settled->WaitForNotification();
      peer.shared = *status;
    }
    return peer;
  }

  absl::Span<float> PartOf(std::vector<float>& vector, const params::Bucket& bucket) {
    return absl::MakeSpan(vector).subspan(bucket.range.begin, bucket.range.size());
  }

  std::vector<float> Gradient(int worker, int round) {
    std::vector<float> gradient(server_->layout().num_elements());
    for (size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = 0.001f * static_cast<float>((i * 7919 + worker * 31 + round * 17) % 1999) - 1;
    }
    return gradient;
  }

  std::unique_ptr<client::PushSession> StartPush(client::ParameterTransport& transport, Round round,
                                                 std::vector<float>& gradient) {
    auto session = transport.StartPush({round, messages::ContributionKind::kGradient, 1.0f});
    for (const params::Bucket& bucket : server_->buckets()) {
      session->AddBucket(bucket.index, Version(round.value()),
                         client::BytesOf(PartOf(gradient, bucket)));
    }
    return session;
  }

  absl::StatusOr<client::PushResult> Push(client::ParameterTransport& transport, Round round,
                                          std::vector<float> gradient) {
    return StartPush(transport, round, gradient)->Finish();
  }

  // Pushes both contributions at the same time: one is acknowledged only when those before it have
  // come.
  void PushBoth(const Peer& one, const Peer& two, Round round) {
    std::vector<float> second = Gradient(2, static_cast<int>(round.value()));
    const auto session = StartPush(*two.transport, round, second);
    EXPECT_OK(Push(*one.transport, round, Gradient(1, static_cast<int>(round.value()))));
    EXPECT_OK(session->Finish());
  }

  client::PullSpec Everything(Round min_round, std::vector<float>& weights) {
    weights.assign(server_->layout().num_elements(), -1.0f);
    client::PullSpec spec{min_round, {}};
    for (const params::Bucket& bucket : server_->buckets()) {
      spec.targets.push_back({bucket.index, PartOf(weights, bucket)});
    }
    return spec;
  }

  absl::StatusOr<std::vector<float>> Pull(client::ParameterTransport& transport, Round min_round) {
    std::vector<float> weights;
    RETURN_IF_ERROR(transport.StartPull(Everything(min_round, weights), nullptr)->Wait());
    return weights;
  }

  // Returns the weights after three rounds of two workers.
  std::vector<float> Train(bool share, bool server_shares, size_t chunk_bytes) {
    Start(server_shares);
    const Peer one = Connect(WorkerId(1), share, chunk_bytes);
    const Peer two = Connect(WorkerId(2), share, chunk_bytes);
    EXPECT_EQ(server_->rpc().num_shared_regions(), share && server_shares ? 2 : 0);
    std::vector<float> weights;
    for (int round = 0; round < 3; ++round) {
      server_->OpenRound(Round(round), 2, 0.01);
      PushBoth(one, two, Round(round));
      const auto mine = Pull(*one.transport, Round(round + 1));
      const auto yours = Pull(*two.transport, Round(round + 1));
      EXPECT_OK(mine);
      EXPECT_OK(yours);
      if (!mine.ok() || !yours.ok()) return {};
      EXPECT_EQ(*mine, *yours);
      weights = *mine;
    }
    EXPECT_EQ(one.transport->bytes_pulled(), 3 * weights.size() * sizeof(float));
    return weights;
  }

  // Plain stubs, as a client in another language has them.

  // A region of this test that the server has accepted.
  struct OpenRegion {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::SharedMemoryRequest, v1::SharedMemoryReply>> call;
    uint64_t name = 0;
  };

  static v1::SharedMemoryRequest Describe(const storage::SharedRegion& region) {
    v1::SharedMemoryRequest request;
    request.set_worker_id(1);
    request.set_incarnation(1);
    request.set_process_id(region.handle().process_id);
    request.set_file_descriptor(region.handle().descriptor);
    request.set_nonce(region.handle().nonce);
    request.set_bytes(region.handle().bytes);
    request.set_block_bytes(kSmallChunk);
    return request;
  }

  absl::Status Share(const v1::SharedMemoryRequest& request, OpenRegion& open) {
    open.call = stub_->ShareMemory(&open.context);
    open.call->Write(request);
    v1::SharedMemoryReply reply;
    if (!open.call->Read(&reply)) return wire::FromGrpcStatus(open.call->Finish());
    open.name = reply.region();
    return absl::OkStatus();
  }

  absl::Status Refusal(const v1::SharedMemoryRequest& request) {
    OpenRegion open;
    return Share(request, open);
  }

  // Returns a chunk with the first elements of bucket 0, at `offset` in the region.
  v1::PushChunk SharedChunk(uint64_t region, uint64_t offset, uint32_t crc32c) {
    v1::PushChunk chunk;
    chunk.set_worker_id(1);
    chunk.set_incarnation(1);
    chunk.set_encoding(v1::ENCODING_FP32);
    chunk.set_kind(v1::CONTRIBUTION_KIND_GRADIENT);
    chunk.set_crc32c(crc32c);
    chunk.set_shared_region(region);
    chunk.set_shared_offset(offset);
    chunk.set_shared_bytes(kSmallChunk);
    return chunk;
  }

  absl::Status PushOne(const v1::PushChunk& chunk) {
    grpc::ClientContext context;
    v1::PushReply reply;
    const auto writer = stub_->Push(&context, &reply);
    writer->Write(chunk);
    writer->WritesDone();
    return wire::FromGrpcStatus(writer->Finish());
  }

  ShardServer::Config config_;
  std::unique_ptr<ShardServer> server_;
  std::unique_ptr<v1::ParameterService::Stub> stub_;
};

TEST_F(SharedMemoryTest, SameBitsWithAndWithoutIt) {
  const std::vector<float> through_tcp = Train(false, true, kSmallChunk);
  EXPECT_FALSE(through_tcp.empty());
  EXPECT_EQ(Train(true, true, kSmallChunk), through_tcp);
  EXPECT_EQ(Train(true, true, wire::kChunkBytes), through_tcp) << "one block has room for a bucket";
  EXPECT_EQ(Train(true, false, kSmallChunk), through_tcp) << "the server does not share";
}

TEST_F(SharedMemoryTest, ServerThatDoesNotShareSaysSo) {
  Start(false);
  EXPECT_THAT(Connect(WorkerId(1), true).shared,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("does not share")));
}

TEST_F(SharedMemoryTest, MemoryAndStreamsAreOnlyForWhoeverLivesTheLife) {
  config_.life_key = "a key";
  Start();
  server_->OpenRound(Round(0), 1, 0.01);
  ASSERT_OK_AND_ASSIGN(const storage::SharedRegion region, storage::SharedRegion::Create(1 << 20));
  EXPECT_THAT(Refusal(Describe(region)), StatusIs(absl::StatusCode::kUnauthenticated));
  EXPECT_EQ(server_->rpc().num_shared_regions(), 0);
  for (const bool share : {false, true}) {
    client::BulkGrpcTransportConfig forged = server_->TransportConfig(WorkerId(1));
    forged.shared_memory = share;
    forged.life_secret = server_->TransportConfig(WorkerId(2)).life_secret;
    const auto another = client::MakeBulkGrpcTransport(forged);
    const auto is_anothers = StatusIs(absl::StatusCode::kAborted, HasSubstr("of worker 1"));
    EXPECT_THAT(Pull(*another, Round(0)), is_anothers);
    EXPECT_THAT(Push(*another, Round(0), Gradient(1, 0)), is_anothers);
  }
  const Peer own = Connect(WorkerId(1), /*share=*/true);
  EXPECT_OK(own.shared);
  EXPECT_OK(Pull(*own.transport, Round(0)));
  EXPECT_OK(Push(*own.transport, Round(0), Gradient(1, 0)));
}

TEST_F(SharedMemoryTest, ForgedRegionsAreRefused) {
  Start();
  ASSERT_OK_AND_ASSIGN(const storage::SharedRegion region, storage::SharedRegion::Create(1 << 20));
  v1::SharedMemoryRequest request = Describe(region);
  request.mutable_nonce()->front() ^= 1;
  EXPECT_THAT(Refusal(request), StatusIs(absl::StatusCode::kFailedPrecondition));
  request = Describe(region);
  request.set_nonce("short");
  EXPECT_THAT(Refusal(request), StatusIs(absl::StatusCode::kInvalidArgument));
  request = Describe(region);
  request.set_file_descriptor(999'999);
  EXPECT_THAT(Refusal(request), StatusIs(absl::StatusCode::kFailedPrecondition));
  request = Describe(region);
  request.set_bytes(request.bytes() * 2);
  EXPECT_THAT(Refusal(request), StatusIs(absl::StatusCode::kFailedPrecondition));
  for (const uint64_t block :
       {uint64_t{0}, uint64_t{1020}, uint64_t{4098}, uint64_t{wire::kMaxChunkBytes + 4}}) {
    request = Describe(region);
    request.set_block_bytes(block);
    EXPECT_THAT(Refusal(request), StatusIs(absl::StatusCode::kInvalidArgument)) << block;
  }
  request = Describe(region);
  request.add_writable((1 << 20) - kSmallChunk + 1);
  EXPECT_THAT(Refusal(request), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(server_->rpc().num_shared_regions(), 0);
}

TEST_F(SharedMemoryTest, ChunksThatLieAboutTheirPlaceAreRefused) {
  Start();
  server_->OpenRound(Round(0), 1, 0.01);
  ASSERT_OK_AND_ASSIGN(const storage::SharedRegion region, storage::SharedRegion::Create(1 << 20));
  OpenRegion open;
  ASSERT_OK(Share(Describe(region), open));
  const uint32_t crc32c = crc32c::Crc32c(region.Part(0, kSmallChunk)->data(), kSmallChunk);
  EXPECT_THAT(PushOne(SharedChunk(open.name ^ 2, 0, crc32c)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("does not have open")));
  v1::PushChunk stolen = SharedChunk(open.name, 0, crc32c);
  stolen.set_worker_id(2);
  EXPECT_THAT(PushOne(stolen), StatusIs(absl::StatusCode::kUnavailable));
  for (const uint64_t offset : {uint64_t{1 << 20}, (uint64_t{1} << 20) - 1, ~uint64_t{0}}) {
    EXPECT_THAT(
        PushOne(SharedChunk(open.name, offset, crc32c)),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("does not fit into the region")))
        << offset;
  }
  EXPECT_THAT(PushOne(SharedChunk(open.name, 0, crc32c + 1)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("crc32c")));
  // This chunk is good, but it is only half a bucket.
  EXPECT_THAT(PushOne(SharedChunk(open.name, 0, crc32c)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("whole buckets")));
}

TEST_F(SharedMemoryTest, ReadBlocksAreGivenBackAndRegionsEndWithTheirCall) {
  Start();
  server_->OpenRound(Round(0), 1, 0.01);
  ASSERT_OK_AND_ASSIGN(const storage::SharedRegion region, storage::SharedRegion::Create(1 << 20));
  {
    OpenRegion open;
    ASSERT_OK(Share(Describe(region), open));
    EXPECT_EQ(server_->rpc().num_shared_regions(), 1);
    const uint32_t crc32c = crc32c::Crc32c(region.Part(0, kSmallChunk)->data(), kSmallChunk);
    PushOne(SharedChunk(open.name, 8192, crc32c)).IgnoreError();
    v1::SharedMemoryReply reply;
    ASSERT_TRUE(open.call->Read(&reply));
    EXPECT_THAT(reply.read(), ::testing::ElementsAre(8192));
    open.call->WritesDone();
    EXPECT_TRUE(open.call->Finish().ok());
  }
  EXPECT_EQ(server_->rpc().num_shared_regions(), 0);
}

TEST_F(SharedMemoryTest, AWorkerSharesABoundedNumberOfRegionsOfBoundedSize) {
  Start();
  ASSERT_OK_AND_ASSIGN(const storage::SharedRegion region, storage::SharedRegion::Create(1 << 20));
  std::vector<std::unique_ptr<OpenRegion>> open;
  for (int i = 0; i < 8; ++i)
    ASSERT_OK(Share(Describe(region), *open.emplace_back(new OpenRegion)));
  OpenRegion beyond;
  EXPECT_THAT(Share(Describe(region), beyond), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                        HasSubstr("8 regions of memory already")));
  v1::SharedMemoryRequest large = Describe(region);
  large.set_worker_id(2);
  large.set_bytes(uint64_t{1} << 31);
  OpenRegion too_large;
  EXPECT_THAT(Share(large, too_large),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("2147483648 bytes")));
  for (const auto& region_of_ours : open) {
    region_of_ours->call->WritesDone();
    region_of_ours->call->Finish();
  }
}

TEST_F(SharedMemoryTest, PullWaitsForBlocksAndOutlivesTheRegion) {
  Start();
  ASSERT_OK_AND_ASSIGN(const storage::SharedRegion region, storage::SharedRegion::Create(1 << 20));
  OpenRegion open;
  v1::SharedMemoryRequest first = Describe(region);
  first.add_writable(0);
  ASSERT_OK(Share(first, open));
  grpc::ClientContext context;
  v1::PullRequest request;
  request.set_worker_id(0);
  request.set_encoding(v1::ENCODING_FP32);
  request.add_buckets(0);
  request.set_shared_region(open.name);
  // Worker 0 has no region, so its pull fails.
  v1::PullChunk chunk;
  EXPECT_FALSE(stub_->Pull(&context, request)->Read(&chunk));

  server_->OpenRound(Round(0), 1, 0.01);
  request.set_worker_id(1);
  request.set_incarnation(1);
  grpc::ClientContext second_context;
  const auto pull = stub_->Pull(&second_context, request);
  ASSERT_TRUE(pull->Read(&chunk));
  EXPECT_EQ(chunk.shared_region(), open.name);
  EXPECT_TRUE(chunk.data().empty());
  EXPECT_EQ(crc32c::Crc32c(region.Part(chunk.shared_offset(), chunk.shared_bytes())->data(),
                           chunk.shared_bytes()),
            static_cast<uint32_t>(chunk.crc32c()));
  // There is no second block, so the stream waits until the region is gone, too.
  open.call->WritesDone();
  EXPECT_TRUE(open.call->Finish().ok());
  int64_t elements = chunk.shared_bytes() / sizeof(float);
  while (pull->Read(&chunk)) {
    EXPECT_EQ(chunk.shared_region(), 0);
    elements += chunk.data().size() / sizeof(float);
  }
  EXPECT_TRUE(pull->Finish().ok());
  EXPECT_EQ(elements, server_->buckets()[0].range.size());
}

TEST_F(SharedMemoryTest, ABrokenPullLeavesNothingBehind) {
  Start();
  server_->OpenRound(Round(0), 1, 0.01);
  const Peer peer = Connect(WorkerId(1), true);
  ASSERT_OK(peer.shared);
  std::vector<float> never;
  // This pull waits for a version that does not come.
  auto session = peer.transport->StartPull(Everything(Round(1000), never), nullptr);
  session->Cancel();
  EXPECT_THAT(session->Wait(), StatusIs(absl::StatusCode::kCancelled));
  session.reset();
  for (int round = 0; round < 3; ++round) {
    if (round > 0) server_->OpenRound(Round(round), 1, 0.01);
    ASSERT_OK(Push(*peer.transport, Round(round), Gradient(1, round)));
    ASSERT_OK(Pull(*peer.transport, Round(round + 1)));
  }
  EXPECT_OK(peer.transport->StartTrial()->Wait()) << "which is in nobody's name";
}

TEST_F(SharedMemoryTest, WorkersMayGoAtAnyTime) {
  Start();
  server_->OpenRound(Round(0), 2, 0.01);
  for (int i = 0; i < 20; ++i) {
    const Peer peer = Connect(WorkerId(2), true);
    ASSERT_OK(peer.shared);
    // The number of pushed buckets varies, so that the stream ends at different places.
    std::vector<float> gradient = Gradient(2, 0);
    const auto session =
        peer.transport->StartPush({Round(0), messages::ContributionKind::kGradient, 1.0f});
    for (const params::Bucket& bucket : server_->buckets()) {
      if (static_cast<int>(bucket.index) > i % 5) break;
      session->AddBucket(bucket.index, Version(0), client::BytesOf(PartOf(gradient, bucket)));
    }
    std::vector<float> weights;
    const auto pull = peer.transport->StartPull(Everything(Round(0), weights), nullptr);
  }
  const Peer one = Connect(WorkerId(1), true);
  const Peer two = Connect(WorkerId(2), true);
  PushBoth(one, two, Round(0));
  EXPECT_OK(Pull(*one.transport, Round(1)));
}

}  // namespace
}  // namespace lodestar
