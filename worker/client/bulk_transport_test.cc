// SPDX-License-Identifier: Apache-2.0

// Tests of the gRPC transport against a gRPC service that the test implements. They show that the
// transport sends and accepts plain protobuf messages.

#include "worker/client/bulk_transport.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/crc32c/crc32c.h"
#include "common/testing/status_matchers.h"
#include "proto/bulk_options.h"
#include "proto/parameter_service.grpc.pb.h"
#include "worker/client/bulk_grpc_transport.h"
#include "worker/client/call_watch.h"
#include "worker/client/connection_socket.h"

namespace lodestar::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// A service that stores pushed buckets and answers pulls from them.
class StoreService final : public v1::ParameterService::Service {
 public:
  grpc::Status Push(grpc::ServerContext* context, grpc::ServerReader<v1::PushChunk>* reader,
                    v1::PushReply* reply) override {
    if (hold_push) {
      if (!entered.HasBeenNotified()) entered.Notify();
      while (!context->IsCancelled()) std::this_thread::yield();
      return grpc::Status::CANCELLED;
    }
    v1::PushChunk chunk;
    std::map<uint32_t, std::string> stream;
    while (reader->Read(&chunk)) {
      if (!refuse_with.ok()) return refuse_with;
      std::string& bucket = stream[chunk.bucket()];
      EXPECT_EQ(chunk.offset() * sizeof(float), bucket.size());
      EXPECT_EQ(static_cast<uint32_t>(chunk.crc32c()),
                crc32c::Crc32c(chunk.data().data(), chunk.data().size()));
      bucket += chunk.data();
      absl::MutexLock lock(&mutex);
      chunk_bytes[chunk.bucket()].push_back(chunk.data().size());
      chunk.clear_data();
      last_header = chunk;
    }
    // A stream that broke must not be stored.
    if (context->IsCancelled()) return grpc::Status::CANCELLED;
    absl::MutexLock lock(&mutex);
    ++num_push_streams;
    for (auto& [bucket, data] : stream) buckets[bucket] = data;
    reply->set_buckets_counted(static_cast<uint32_t>(stream.size()) - lose_buckets);
    return grpc::Status::OK;
  }

  grpc::Status Pull(grpc::ServerContext* context, const v1::PullRequest* request,
                    grpc::ServerWriter<v1::PullChunk>* writer) override {
    {
      absl::MutexLock lock(&mutex);
      peers.push_back(context->peer());
      last_pull = *request;
    }
    if (!end_pull_with.ok()) return end_pull_with;
    if (end_pull) {
      context->TryCancel();
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "words that do not get through");
    }
    if (hold_pull) {
      if (!entered.HasBeenNotified()) entered.Notify();
      while (!context->IsCancelled() && num_questions < release_after) std::this_thread::yield();
      if (context->IsCancelled()) return grpc::Status::CANCELLED;
    }
    for (const uint32_t bucket : request->buckets()) {
      absl::MutexLock lock(&mutex);
      // This size makes the server's chunks begin at other offsets than the worker's.
      constexpr size_t kServerChunkBytes = 1000;
      const std::string& data = buckets[bucket];
      for (size_t begin = 0; begin < data.size(); begin += kServerChunkBytes) {
        v1::PullChunk chunk;
        chunk.set_bucket(bucket);
        chunk.set_version(version);
        chunk.set_offset(begin / sizeof(float));
        chunk.set_encoding(v1::ENCODING_FP32);
        chunk.set_data(data.substr(begin, kServerChunkBytes));
        chunk.set_crc32c(crc32c::Crc32c(chunk.data().data(), chunk.data().size()));
        if (change_chunk) change_chunk(chunk);
        writer->Write(chunk);
      }
    }
    return grpc::Status::OK;
  }

  grpc::Status DescribeCalls(grpc::ServerContext*, const v1::DescribeCallsRequest* request,
                             v1::DescribeCallsReply* reply) override {
    for (int i = 0; i < request->calls_size(); ++i) reply->add_calls()->set_phase(phase);
    ++num_questions;
    return grpc::Status::OK;
  }

  // The fields from here to `mutex` are set before calls begin.
  bool hold_push = false;
  bool hold_pull = false;
  bool end_pull = false;
  grpc::Status end_pull_with;
  grpc::Status refuse_with;
  uint32_t lose_buckets = 0;
  // `phase` is the state that DescribeCalls() reports for every call. If hold_pull is set, a pull
  // is answered after `release_after` requests of DescribeCalls().
  v1::CallState::Phase phase = v1::CallState::PHASE_UNSPECIFIED;
  int release_after = 1 << 30;
  int64_t version = 7;
  std::function<void(v1::PullChunk&)> change_chunk;

  absl::Notification entered;
  std::atomic<int> num_questions = 0;
  absl::Mutex mutex;
  // The peer of each pull, in order.
  std::vector<std::string> peers;
  std::map<uint32_t, std::string> buckets;
  std::map<uint32_t, std::vector<size_t>> chunk_bytes;
  v1::PushChunk last_header;
  v1::PullRequest last_pull;
  int num_push_streams = 0;
};

// Tests with two servers. Buckets 0 to 3 are on the first and 4 to 7 on the second, with different
// odd lengths.
class BulkTransportTest : public ::testing::Test {
 protected:
  static constexpr int kNumBuckets = 8;

  void SetUp() override {
    BulkGrpcTransportConfig config;
    for (int shard = 0; shard < 2; ++shard) {
      grpc::ServerBuilder builder;
      wire::ApplyServerOptions(builder);
      int port = 0;
      builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
      builder.RegisterService(&services_[shard]);
      servers_[shard] = builder.BuildAndStart();
      ASSERT_NE(port, 0);
      config.servers.push_back(absl::StrCat("127.0.0.1:", port));
    }
    int64_t begin = 0;
    for (uint32_t i = 0; i < kNumBuckets; ++i) {
      const int64_t size = 1001 + 517 * i;
      config.buckets.push_back({i, i < kNumBuckets / 2 ? 0 : 1, 0, {begin, begin + size}});
      begin += size;
    }
    num_elements_ = begin;
    config.worker = WorkerId(3);
    config.incarnation = Incarnation(uint64_t{1} << 60);
    config.chunk_bytes = 2048;
    config.bytes_for_many_channels = 0;
    config_ = config;
    transport_ = MakeBulkGrpcTransport(config);
    values_.resize(num_elements_);
    for (int64_t i = 0; i < num_elements_; ++i) values_[i] = static_cast<float>(i) + 0.5f;
  }

  absl::Span<float> PartOf(std::vector<float>& vector, uint32_t bucket) {
    const params::ElementRange range = config_.buckets[bucket].range;
    return absl::Span<float>(vector).subspan(range.begin, range.size());
  }

  absl::StatusOr<PushResult> PushAll() {
    const auto session =
        transport_->StartPush({Round(5), messages::ContributionKind::kGradient, 0.5f});
    for (uint32_t i = 0; i < kNumBuckets; ++i) {
      session->AddBucket(i, Version(4), BytesOf(PartOf(values_, i)));
    }
    return session->Finish();
  }

  PullSpec AllBuckets(std::vector<float>& destination) {
    destination.assign(num_elements_, -1.0f);
    PullSpec spec{Round(7), {}};
    for (uint32_t i = 0; i < kNumBuckets; ++i) spec.targets.push_back({i, PartOf(destination, i)});
    return spec;
  }

  StoreService services_[2];
  std::unique_ptr<grpc::Server> servers_[2];
  BulkGrpcTransportConfig config_;
  std::unique_ptr<ParameterTransport> transport_;
  int64_t num_elements_ = 0;
  std::vector<float> values_;
};

TEST_F(BulkTransportTest, PushedBucketsArriveWholeOnTheirServers) {
  ASSERT_OK_AND_ASSIGN(const PushResult result, PushAll());
  EXPECT_EQ(result.buckets_counted, kNumBuckets);
  for (uint32_t i = 0; i < kNumBuckets; ++i) {
    const absl::Span<float> sent = PartOf(values_, i);
    StoreService& service = services_[i < kNumBuckets / 2 ? 0 : 1];
    const std::string& stored = service.buckets[i];
    EXPECT_EQ(stored,
              std::string(reinterpret_cast<const char*>(sent.data()), sent.size() * sizeof(float)))
        << i;
  }
  EXPECT_EQ(services_[0].buckets.size(), 4);
  EXPECT_EQ(services_[0].num_push_streams, 2);
  EXPECT_EQ(transport_->bytes_pushed(), num_elements_ * sizeof(float));
  const v1::PushChunk& header = services_[1].last_header;
  EXPECT_EQ(header.worker_id(), 3);
  EXPECT_EQ(header.incarnation(), uint64_t{1} << 60);
  EXPECT_EQ(header.round(), 5);
  EXPECT_EQ(header.base_version(), 4);
  EXPECT_EQ(header.kind(), v1::CONTRIBUTION_KIND_GRADIENT);
  EXPECT_EQ(header.encoding(), v1::ENCODING_FP32);
  EXPECT_EQ(header.scale(), 0.5f);
}

TEST_F(BulkTransportTest, AServerWithLittleOfTheModelGetsOneChannel) {
  const auto bytes = [this](int from, int to) {
    return (config_.buckets[to].range.end - config_.buckets[from].range.begin) *
           static_cast<int64_t>(sizeof(float));
  };
  const int64_t first = bytes(0, kNumBuckets / 2 - 1);
  ASSERT_LT(first, bytes(kNumBuckets / 2, kNumBuckets - 1));
  config_.bytes_for_many_channels = first + 1;
  transport_ = MakeBulkGrpcTransport(config_);
  ASSERT_OK_AND_ASSIGN(const PushResult result, PushAll());
  EXPECT_EQ(result.buckets_counted, kNumBuckets);
  EXPECT_EQ(services_[0].num_push_streams, 1);
  EXPECT_EQ(services_[1].num_push_streams, 2);
}

TEST_F(BulkTransportTest, AServerHoldsLittleOfABucketThatWaits) {
  config_.chunk_bytes = wire::kChunkBytes;
  transport_ = MakeBulkGrpcTransport(config_);
  ASSERT_OK_AND_ASSIGN(const PushResult result, PushAll());
  EXPECT_EQ(result.buckets_counted, kNumBuckets);
  const size_t last = PartOf(values_, kNumBuckets - 1).size() * sizeof(float);
  ASSERT_GT(last, wire::kFirstChunkBytes);
  EXPECT_THAT(services_[1].chunk_bytes[kNumBuckets - 1],
              ElementsAre(wire::kFirstChunkBytes, last - wire::kFirstChunkBytes));
}

TEST_F(BulkTransportTest, PulledBucketsLandInTheirPlacesOnceEach) {
  ASSERT_OK(PushAll());
  std::vector<float> weights;
  absl::Mutex mutex;
  std::vector<uint32_t> arrived;
  const auto session = transport_->StartPull(AllBuckets(weights), [&](const PulledBucket& pulled) {
    const uint32_t bucket = pulled.bucket;
    EXPECT_EQ(pulled.version, Version(7));
    EXPECT_EQ(pulled.num_changes, 0);
    const absl::Span<float> part = PartOf(weights, bucket);
    EXPECT_EQ(part.front(), PartOf(values_, bucket).front());
    EXPECT_EQ(part.back(), PartOf(values_, bucket).back());
    absl::MutexLock lock(&mutex);
    arrived.push_back(bucket);
  });
  ASSERT_OK(session->Wait());
  EXPECT_THAT(arrived, UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(weights, values_);
  EXPECT_EQ(transport_->bytes_pulled(), num_elements_ * sizeof(float));
  EXPECT_EQ(services_[0].last_pull.min_round(), 7);
  EXPECT_EQ(services_[0].last_pull.worker_id(), 3);
}

TEST_F(BulkTransportTest, LongWeightsLandInTheirPlacesAsWell) {
  constexpr int64_t kFirst = 4321;
  constexpr int64_t kElements = kFirst + kLongPullBytes / sizeof(float);
  BulkGrpcTransportConfig config = config_;
  // With this size, chunks begin at unaligned places of a bucket.
  config.chunk_bytes = 100'000;
  config.buckets = {{0, 0, 0, {0, kFirst}}, {1, 0, 0, {kFirst, kElements}}};
  std::vector<float> values(kElements);
  std::iota(values.begin(), values.end(), 0.5f);
  const auto transport = MakeBulkGrpcTransport(config);
  const auto push = transport->StartPush({Round(5), messages::ContributionKind::kGradient, 1.0f});
  std::vector<float> weights(kElements + 1, -1.0f);
  PullSpec spec{Round(7), {}};
  for (const params::Bucket& bucket : config.buckets) {
    const params::ElementRange range = bucket.range;
    push->AddBucket(bucket.index, Version(4),
                    BytesOf(absl::MakeConstSpan(values).subspan(range.begin, range.size())));
    spec.targets.push_back(
        {bucket.index, absl::MakeSpan(weights).subspan(range.begin, range.size())});
  }
  ASSERT_OK(push->Finish());
  ASSERT_OK(transport->StartPull(std::move(spec), nullptr)->Wait());
  EXPECT_EQ(weights.back(), -1.0f);
  weights.pop_back();
  EXPECT_TRUE(weights == values);
}

TEST_F(BulkTransportTest, PullAsksInTheOrderOfTheSpec) {
  ASSERT_OK(PushAll());
  std::vector<float> weights(num_elements_);
  PullSpec spec{Round(0), {}};
  for (const uint32_t i : {6u, 2u, 4u, 0u}) spec.targets.push_back({i, PartOf(weights, i)});
  ASSERT_OK(transport_->StartPull(std::move(spec), nullptr)->Wait());
  EXPECT_THAT(services_[0].last_pull.buckets(), ElementsAre(2, 0));
  EXPECT_THAT(services_[1].last_pull.buckets(), ElementsAre(6, 4));
}

TEST_F(BulkTransportTest, RefusalComesBackWithItsCodeAndTheServer) {
  services_[1].refuse_with = grpc::Status(grpc::StatusCode::ABORTED, "older incarnation");
  EXPECT_THAT(PushAll(), StatusIs(absl::StatusCode::kAborted,
                                  HasSubstr(config_.servers[1] + ": older incarnation")));
}

TEST_F(BulkTransportTest, MissingAcknowledgementIsAnError) {
  services_[0].lose_buckets = 1;
  EXPECT_THAT(PushAll(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("acknowledged 6")));
}

TEST_F(BulkTransportTest, BucketOfWrongLengthIsRefusedBeforeItIsSent) {
  const auto session =
      transport_->StartPush({Round(0), messages::ContributionKind::kGradient, 1.0f});
  session->AddBucket(0, Version(0), BytesOf(PartOf(values_, 1)));
  EXPECT_THAT(session->Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1001 elements")));
  const auto missing =
      transport_->StartPush({Round(0), messages::ContributionKind::kGradient, 1.0f});
  missing->AddBucket(kNumBuckets, Version(0), BytesOf(PartOf(values_, 1)));
  EXPECT_THAT(missing->Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no bucket 8")));
}

TEST_F(BulkTransportTest, DamagedChunkIsDataLoss) {
  ASSERT_OK(PushAll());
  services_[0].change_chunk = [](v1::PullChunk& chunk) { (*chunk.mutable_data())[3] ^= 1; };
  std::vector<float> weights;
  EXPECT_THAT(transport_->StartPull(AllBuckets(weights), nullptr)->Wait(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("crc32c")));
}

TEST_F(BulkTransportTest, ChunksThatDoNotFitAreRefused) {
  ASSERT_OK(PushAll());
  const std::vector<std::function<void(v1::PullChunk&)>> lies = {
      [](v1::PullChunk& chunk) { chunk.set_offset(chunk.offset() + 1); },
      [](v1::PullChunk& chunk) { chunk.set_bucket(99); },
      [](v1::PullChunk& chunk) { chunk.set_encoding(v1::ENCODING_UNSPECIFIED); },
      [](v1::PullChunk& chunk) { chunk.set_version(chunk.offset() == 0 ? 7 : 8); },
      [](v1::PullChunk& chunk) { chunk.mutable_data()->append(1 << 20, 'x'); },
      [](v1::PullChunk& chunk) { chunk.mutable_data()->pop_back(); },
  };
  for (size_t i = 0; i < lies.size(); ++i) {
    services_[0].change_chunk = lies[i];
    std::vector<float> weights;
    EXPECT_THAT(transport_->StartPull(AllBuckets(weights), nullptr)->Wait(),
                StatusIs(absl::StatusCode::kDataLoss))
        << i;
  }
}

TEST_F(BulkTransportTest, CancelEndsAPushThatTheServerDoesNotRead) {
  services_[0].hold_push = true;
  // The bucket is larger than gRPC's flow control window, so the push blocks until the server
  // reads.
  BulkGrpcTransportConfig config = config_;
  config.chunk_bytes = wire::kChunkBytes;
  config.buckets = {{0, 0, 0, {0, 16 << 20}}};
  std::vector<float> gradient(16 << 20, 1.0f);
  const auto transport = MakeBulkGrpcTransport(config);
  const auto session =
      transport->StartPush({Round(0), messages::ContributionKind::kGradient, 1.0f});
  session->AddBucket(0, Version(0), BytesOf(gradient));
  services_[0].entered.WaitForNotification();
  session->Cancel();
  EXPECT_THAT(session->Finish(), StatusIs(absl::StatusCode::kCancelled));
  // If the memory is still used, sanitizers report it.
  gradient.clear();
  gradient.shrink_to_fit();
}

TEST_F(BulkTransportTest, APushTellsWhatHasNotLeft) {
  services_[1].hold_push = true;
  // Each bucket is larger than gRPC's flow control window. Only the first server reads.
  constexpr int64_t kElements = 8 << 20;
  BulkGrpcTransportConfig config = config_;
  config.chunk_bytes = wire::kChunkBytes;
  config.buckets = {{0, 0, 0, {0, kElements}}, {1, 1, 0, {kElements, 2 * kElements}}};
  const std::vector<float> gradient(kElements, 1.0f);
  const auto bytes = static_cast<int64_t>(gradient.size() * sizeof(float));
  const auto transport = MakeBulkGrpcTransport(config);
  const auto session =
      transport->StartPush({Round(0), messages::ContributionKind::kGradient, 1.0f});
  EXPECT_EQ(session->bytes_unsent(), 0);
  session->AddBucket(0, Version(0), BytesOf(gradient));
  while (session->bytes_unsent() > 0) std::this_thread::yield();
  session->AddBucket(1, Version(0), BytesOf(gradient));
  services_[1].entered.WaitForNotification();
  EXPECT_GT(session->bytes_unsent(), 0);
  EXPECT_LE(session->bytes_unsent(), bytes);
  session->Cancel();
  EXPECT_THAT(session->Finish(), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(BulkTransportTest, CancelEndsAPullThatWaits) {
  services_[0].hold_pull = true;
  std::vector<float> weights(num_elements_);
  PullSpec spec{Round(1000), {{0, PartOf(weights, 0)}}};
  const auto session = transport_->StartPull(std::move(spec), nullptr);
  services_[0].entered.WaitForNotification();
  session->Cancel();
  EXPECT_THAT(session->Wait(), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(BulkTransportTest, APullThatTheServerEndsMayBeTriedAgain) {
  services_[0].end_pull = true;
  std::vector<float> weights(num_elements_);
  const auto session =
      transport_->StartPull({Round(7), {{0, PartOf(weights, 0)}}}, /*on_bucket=*/nullptr);
  EXPECT_THAT(session->Wait(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(config_.servers[0]), HasSubstr("--message_timeout"))));
}

TEST_F(BulkTransportTest, ACallThatTheServerDoesNotKnowEndsAndTheNextTakesAnotherConnection) {
  services_[0].hold_pull = true;
  // This time is long enough for the call to begin, also on a busy machine.
  config_.patience = absl::Milliseconds(500);
  config_.shared_memory = false;
  transport_ = MakeBulkGrpcTransport(config_);
  std::vector<float> weights(num_elements_);
  const PullSpec spec{Round(0), {{0, PartOf(weights, 0)}}};
  EXPECT_THAT(transport_->StartPull(spec, nullptr)->Wait(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(config_.servers[0]), HasSubstr("no data has moved for"))));
  ASSERT_TRUE(transport_->standstill().has_value());
  EXPECT_EQ(transport_->standstill()->shard, 0);
  EXPECT_GE(transport_->standstill()->age, config_.patience);
  services_[0].hold_pull = false;
  services_[0].buckets[0] = std::string(PartOf(weights, 0).size() * sizeof(float), 'x');
  EXPECT_OK(transport_->StartPull(spec, nullptr)->Wait());
  EXPECT_FALSE(transport_->standstill().has_value());
  ASSERT_EQ(services_[0].peers.size(), 2);
  EXPECT_NE(services_[0].peers[0], services_[0].peers[1]);
}

// gRPC makes the status "No status received" if a flipped bit has damaged a header. The damage may
// stay in the connection's table of headers, so later calls must use a new connection.
TEST_F(BulkTransportTest, ACallThatNoServerEndsLikeThatLeavesItsConnectionBehind) {
  services_[0].buckets[0] = std::string(1001 * sizeof(float), 'x');
  const auto pull = [this] {
    std::vector<float> weights(num_elements_);
    return transport_->StartPull({Round(7), {{0, PartOf(weights, 0)}}}, nullptr)->Wait();
  };
  ASSERT_OK(pull());
  services_[0].end_pull_with = {grpc::StatusCode::UNKNOWN, "No status received"};
  EXPECT_THAT(pull(), StatusIs(absl::StatusCode::kUnavailable));
  services_[0].end_pull_with = {grpc::StatusCode::ABORTED, "register again"};
  EXPECT_THAT(pull(), StatusIs(absl::StatusCode::kAborted));
  services_[0].end_pull_with = grpc::Status::OK;
  EXPECT_OK(pull());
  const std::vector<std::string>& peers = services_[0].peers;
  ASSERT_EQ(peers.size(), 4);
  EXPECT_EQ(peers[0], peers[1]);
  EXPECT_NE(peers[1], peers[2]);
  EXPECT_EQ(peers[2], peers[3]) << "what a server says is no damage";
}

TEST_F(BulkTransportTest, ChunksGrowOnceCallsHaveGoneWell) {
  constexpr int64_t kElements = 50'000;
  // This time is much longer than the test takes.
  config_.patience = absl::Hours(1);
  config_.shared_memory = false;
  config_.chunk_bytes = 8 * Pace::kSmallChunkBytes;
  config_.buckets = {{0, 0, 0, {0, kElements}}};
  transport_ = MakeBulkGrpcTransport(config_);
  std::vector<float> weights(kElements);
  services_[0].buckets[0] = std::string(kElements * sizeof(float), 'x');
  std::vector<size_t> largest;
  for (int i = 0; i < 4; ++i) {
    EXPECT_OK(transport_->StartPull({Round(0), {{0, absl::MakeSpan(weights)}}}, nullptr)->Wait());
    largest.push_back(services_[0].last_pull.max_chunk_bytes());
  }
  EXPECT_THAT(largest, ElementsAre(Pace::kSmallChunkBytes, 4 * Pace::kSmallChunkBytes, 0, 0));

  const auto push = [&] {
    services_[0].chunk_bytes.clear();
    const auto session =
        transport_->StartPush({Round(0), messages::ContributionKind::kGradient, 1.0f});
    session->AddBucket(0, Version(0), BytesOf(weights));
    EXPECT_OK(session->Finish().status());
    return services_[0].chunk_bytes[0];
  };
  const size_t rest = kElements * sizeof(float) - wire::kFirstChunkBytes;
  std::vector<size_t> small = {wire::kFirstChunkBytes};
  small.insert(small.end(), rest / Pace::kSmallChunkBytes, Pace::kSmallChunkBytes);
  small.push_back(rest % Pace::kSmallChunkBytes);
  EXPECT_EQ(push(), small) << "the other direction";
  push();
  EXPECT_THAT(push(), ElementsAre(wire::kFirstChunkBytes, 8 * Pace::kSmallChunkBytes,
                                  rest - 8 * Pace::kSmallChunkBytes));
}

TEST(ConnectionSocketTest, WhatIsAbortedIsResetAtOnce) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);

  grpc::ChannelArguments arguments = wire::DataChannelArguments();
  const auto connection = ConnectionSocket::Of(arguments);
  // There is no connection yet, so Abort() must do nothing.
  connection->Abort();
  const auto channel =
      grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", ntohs(address.sin_port)),
                                grpc::InsecureChannelCredentials(), arguments);
  channel->GetState(/*try_to_connect=*/true);
  const int accepted = accept(listener, nullptr, nullptr);
  ASSERT_GE(accepted, 0);
  connection->Abort();
  char bytes[1024];
  ssize_t received = 0;
  do {
    received = recv(accepted, bytes, sizeof(bytes), 0);
  } while (received > 0);
  EXPECT_EQ(received, -1);
  EXPECT_EQ(errno, ECONNRESET);
  close(accepted);
  close(listener);
}

TEST_F(BulkTransportTest, ACallThatTheServerHoldsIsWaitedFor) {
  services_[0].hold_pull = true;
  services_[0].phase = v1::CallState::PHASE_HELD;
  services_[0].release_after = 5;
  config_.patience = absl::Milliseconds(600);
  transport_ = MakeBulkGrpcTransport(config_);
  std::vector<float> weights(num_elements_);
  services_[0].buckets[0] = std::string(PartOf(weights, 0).size() * sizeof(float), 'x');
  EXPECT_OK(transport_->StartPull({Round(0), {{0, PartOf(weights, 0)}}}, nullptr)->Wait());
}

TEST_F(BulkTransportTest, AServerThatDoesNotKnowTheSecretIsNamedAndAsksToRegisterAgain) {
  for (const uint32_t bucket : {2, 3}) {
    services_[0].buckets[bucket] = std::string(PartOf(values_, bucket).size() * sizeof(float), 'x');
  }
  services_[1].end_pull_with = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "another secret");
  EXPECT_THAT(transport_->StartTrial()->Wait(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr(config_.servers[1])));
  services_[1].refuse_with = services_[1].end_pull_with;
  EXPECT_THAT(PushAll(), StatusIs(absl::StatusCode::kAborted, HasSubstr(config_.servers[1])));
}

TEST_F(BulkTransportTest, ATrialMovesBulkOnEveryPathAndNamesTheOneThatDoesNotWork) {
  // No bucket reaches 64 KiB, so the trial pulls the largest bucket of each channel.
  for (const uint32_t bucket : {2, 3, 6, 7}) {
    services_[bucket / 4].buckets[bucket] =
        std::string(PartOf(values_, bucket).size() * sizeof(float), 'x');
  }
  EXPECT_OK(transport_->StartTrial()->Wait());
  EXPECT_EQ(services_[0].peers.size(), 2);
  EXPECT_EQ(services_[1].last_pull.min_round(), 0) << "servers do not know it before it joins";
  EXPECT_EQ(services_[1].last_pull.worker_id(), 3);
  services_[0].hold_pull = true;
  config_.patience = absl::Milliseconds(60);
  transport_ = MakeBulkGrpcTransport(config_);
  EXPECT_THAT(transport_->StartTrial()->Wait(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(config_.servers[0])));
  services_[0].hold_pull = false;
  servers_[1]->Shutdown();
  servers_[1].reset();
  EXPECT_THAT(transport_->StartTrial()->Wait(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(config_.servers[1])));
}

// Fixture with a CallWatch that checks a call once per second, in time that the test sets.
class CallWatchTest : public ::testing::Test {
 protected:
  // Calls Check() once per second until it returns kEnd or `limit` has passed. Gives `answer` to
  // the watch at each kAsk. Returns the time that has passed.
  absl::Duration Run(const OwnCall& own, std::optional<ServedCall> answer,
                     absl::Duration limit = absl::Minutes(1)) {
    const absl::Time begin = now_;
    for (; now_ - begin < limit; now_ += absl::Seconds(1)) {
      const CallWatch::Verdict verdict = watch_.Check(now_, own);
      if (verdict == CallWatch::Verdict::kEnd) break;
      if (verdict == CallWatch::Verdict::kAsk && answer.has_value()) watch_.OnAnswer(now_, *answer);
    }
    return now_ - begin;
  }

  absl::Time now_ = absl::UnixEpoch();
  CallWatch watch_{now_, absl::Seconds(9)};
};

TEST_F(CallWatchTest, EndsACallThatNobodyAnswersFor) {
  EXPECT_EQ(Run({.moved = 1, .is_push = true}, std::nullopt), absl::Seconds(9));
}

TEST_F(CallWatchTest, EndsAPushWhoseLastBytesTheServerStillWaitsFor) {
  EXPECT_EQ(Run({.moved = 5, .is_push = true}, ServedCall{.bytes = 4}), absl::Seconds(12))
      << "the first answer tells that something moved";
}

TEST_F(CallWatchTest, EndsAPullThatHasLostSomethingAlsoIfTheServerHoldsTheRest) {
  EXPECT_EQ(Run({.moved = 4, .received = 4}, ServedCall{.is_held = true, .bytes = 5}),
            absl::Seconds(12));
}

TEST_F(CallWatchTest, WaitsForWhatTheServerHolds) {
  EXPECT_EQ(Run({.moved = 4, .received = 4}, ServedCall{.is_held = true, .bytes = 4}),
            absl::Minutes(1));
  EXPECT_EQ(Run({.moved = 9, .is_push = true}, ServedCall{.is_held = true, .bytes = 4}),
            absl::Minutes(1));
}

TEST_F(CallWatchTest, WaitsForTheBucketsOfAWorkerThatComputes) {
  EXPECT_EQ(Run({.moved = 9, .is_push = true, .is_idle = true}, ServedCall{.bytes = 4}),
            absl::Minutes(1));
}

TEST_F(CallWatchTest, ChunksThatGoOutAreNoProofThatThePathWorks) {
  CallWatch watch(now_, absl::Seconds(9), /*reach=*/0);
  uint64_t moved = 0;
  const auto questions = [&](int seconds) {
    int asked = 0;
    for (int i = 0; i < seconds; ++i, now_ += absl::Seconds(1)) {
      const OwnCall own{.moved = ++moved, .is_push = true};
      if (watch.Check(now_, own) == CallWatch::Verdict::kAsk) ++asked;
    }
    return asked;
  };
  EXPECT_EQ(questions(20), 6);
  watch.OnAnswer(now_, {.bytes = 0});
  EXPECT_FALSE(watch.TakeProof());
  watch.OnAnswer(now_, {.bytes = 1});
  EXPECT_TRUE(watch.TakeProof());
  EXPECT_FALSE(watch.TakeProof()) << "since the last time";
  EXPECT_EQ(questions(20), 0);
}

TEST_F(CallWatchTest, WhatArrivesAndWhatIsHeldProveThatThePathWorks) {
  Run({.moved = 4, .received = 4}, std::nullopt, absl::Seconds(1));
  EXPECT_TRUE(watch_.TakeProof());
  watch_.OnAnswer(now_, {.is_held = true, .bytes = 4});
  EXPECT_TRUE(watch_.TakeProof());
}

TEST_F(CallWatchTest, OnlyMoreThanEarlierCallsHaveMovedProvesThatThePathWorks) {
  CallWatch push(now_, absl::Seconds(9), /*reach=*/1000);
  push.Check(now_, {.moved = 1, .is_push = true});
  push.OnAnswer(now_, {.bytes = 1000});
  EXPECT_FALSE(push.TakeProof());
  EXPECT_FALSE(push.has_proved());
  push.OnAnswer(now_, {.bytes = 1001});
  EXPECT_TRUE(push.TakeProof());
  EXPECT_TRUE(push.has_proved()) << "also when that is known";
  EXPECT_EQ(push.bytes(), 1001);

  CallWatch held(now_, absl::Seconds(9), /*reach=*/1000);
  held.Check(now_, {.moved = 1, .is_push = true});
  held.OnAnswer(now_, {.is_held = true, .bytes = 10});
  EXPECT_TRUE(held.TakeProof());

  CallWatch pull(now_, absl::Seconds(9), /*reach=*/1000);
  pull.Check(now_, {.moved = 1000, .received = 1000});
  pull.OnAnswer(now_, {.bytes = 5000});
  EXPECT_FALSE(pull.TakeProof()) << "what was sent has not arrived";
  EXPECT_EQ(pull.bytes(), 1000);
  pull.Check(now_, {.moved = 1001, .received = 1001});
  EXPECT_TRUE(pull.TakeProof());
}

constexpr size_t kMegabyte = size_t{1} << 20;

TEST(PaceTest, APathThatIsSlowGetsSmallChunksAndThenMoreTime) {
  Pace pace(absl::Seconds(6), 128 * Pace::kSmallChunkBytes);
  EXPECT_TRUE(pace.has_small_chunks()) << "it may be slow";
  for (int i = 0; i < 3; ++i) pace.OnDone(absl::Milliseconds(1));
  EXPECT_EQ(pace.chunk_bytes(), 64 * Pace::kSmallChunkBytes);
  pace.OnDone(absl::Milliseconds(1));
  EXPECT_EQ(pace.chunk_bytes(), 128 * Pace::kSmallChunkBytes);
  EXPECT_FALSE(pace.has_small_chunks());
  pace.OnEnded();
  EXPECT_EQ(pace.chunk_bytes(), Pace::kSmallChunkBytes);
  EXPECT_TRUE(pace.has_small_chunks());
  EXPECT_EQ(pace.patience(), absl::Seconds(6));
  pace.OnEnded();
  pace.OnEnded();
  EXPECT_EQ(pace.patience(), absl::Seconds(24));
  pace.OnDone(absl::Seconds(10));
  EXPECT_EQ(pace.patience(), absl::Seconds(20));
  EXPECT_TRUE(pace.has_small_chunks()) << "twice as large ones take 20 s";
  pace.OnDone(absl::Seconds(1));
  EXPECT_EQ(pace.patience(), absl::Seconds(10)) << "not all calls of a slow path are slow";
  EXPECT_EQ(pace.chunk_bytes(), 2 * Pace::kSmallChunkBytes);
  pace.OnDone(absl::Seconds(3));
  EXPECT_EQ(pace.patience(), absl::Seconds(12)) << "chunks that are twice as large";
  EXPECT_EQ(pace.chunk_bytes(), 4 * Pace::kSmallChunkBytes);
  for (int i = 0; i < 5; ++i) pace.OnDone(absl::Seconds(1));
  EXPECT_EQ(pace.patience(), absl::Seconds(6));
  EXPECT_EQ(pace.chunk_bytes(), 128 * Pace::kSmallChunkBytes);
  pace.OnDone(absl::Seconds(1));
  EXPECT_EQ(pace.chunk_bytes(), 128 * Pace::kSmallChunkBytes);
}

TEST(PaceTest, ChunksThatAreSmallAnywayStaySo) {
  Pace pace(absl::Seconds(6), 2048);
  EXPECT_TRUE(pace.has_small_chunks());
  pace.OnEnded();
  EXPECT_EQ(pace.chunk_bytes(), 2048);
  EXPECT_EQ(pace.patience(), absl::Seconds(12));
}

// Runs calls over a path that suddenly becomes slow, until one of them completes.
TEST(PaceTest, APathThatBecomesAHundredTimesSlowerLosesOneCallAndIsNotSaidToStandStill) {
  constexpr double kBytesPerSecond = 200e3;
  constexpr uint64_t kCallBytes = 2 * kMegabyte;
  const absl::Duration patience = absl::Seconds(4) / 3;
  Pace pace(patience, 2 * kMegabyte);
  for (int call = 0; call < 5; ++call) pace.OnDone(absl::ZeroDuration());
  StillPaths paths;
  absl::Time now = absl::UnixEpoch();
  int ended = 0;
  for (bool is_done = false; !is_done;) {
    CallWatch watch(now, pace.patience(), paths.ReachOf(0));
    const absl::Time begin = now;
    while (true) {
      const auto arrived =
          static_cast<uint64_t>(kBytesPerSecond * absl::ToDoubleSeconds(now - begin));
      const uint64_t whole =
          std::min(arrived / pace.chunk_bytes() * pace.chunk_bytes(), kCallBytes);
      const CallWatch::Verdict verdict = watch.Check(now, {.moved = whole, .received = whole});
      if (watch.TakeProof()) paths.OnProof(0);
      EXPECT_EQ(paths.First(), std::nullopt);
      is_done = whole == kCallBytes;
      if (is_done) break;
      if (verdict == CallWatch::Verdict::kEnd) {
        paths.OnStill(0, watch.good_at(), watch.bytes(), pace.has_small_chunks());
        pace.OnEnded();
        ASSERT_LE(++ended, 1);
        break;
      }
      now += patience / 12;
    }
    if (is_done) pace.OnDone(watch.longest_quiet());
  }
  EXPECT_EQ(ended, 1);
  // The calls after the slow one must all complete.
  for (int call = 0; call < 10; ++call) {
    const absl::Duration quiet =
        absl::Seconds(static_cast<double>(pace.chunk_bytes()) / kBytesPerSecond);
    EXPECT_LT(quiet, pace.patience());
    pace.OnDone(quiet);
  }
}

TEST(StillPathsTest, APathStandsStillUntilItIsSeenToWork) {
  StillPaths paths;
  EXPECT_EQ(paths.First(), std::nullopt);
  const absl::Time begin = absl::UnixEpoch();
  paths.OnStill(2, begin + absl::Seconds(1), 0);
  paths.OnStill(1, begin + absl::Seconds(3), 0);
  // A second failure does not change the time since which the path stands still.
  paths.OnStill(2, begin + absl::Seconds(7), 0);
  EXPECT_EQ(paths.First(), std::pair(2, begin + absl::Seconds(1)));
  paths.OnProof(2);
  EXPECT_EQ(paths.First(), std::pair(1, begin + absl::Seconds(3)));
}

TEST(StillPathsTest, AStandstillIsToldOfOnceItIsSure) {
  StillPaths paths;
  const absl::Time begin = absl::UnixEpoch();
  paths.OnStill(0, begin, 10, /*is_sure=*/false);
  EXPECT_EQ(paths.First(), std::nullopt);
  EXPECT_EQ(paths.ReachOf(0), 10);
  paths.OnStill(0, begin + absl::Seconds(5), 10);
  EXPECT_EQ(paths.First(), std::pair(0, begin)) << "as long as that nothing has moved";
}

TEST(StillPathsTest, HowFarCallsGotIsKeptUntilThePathIsSeenToWork) {
  StillPaths paths;
  EXPECT_EQ(paths.ReachOf(0), std::nullopt);
  paths.OnStill(0, absl::UnixEpoch(), 1000);
  paths.OnStill(0, absl::UnixEpoch(), 900);
  EXPECT_EQ(paths.ReachOf(0), 1000);
  paths.OnProof(0);
  EXPECT_EQ(paths.ReachOf(0), std::nullopt);
}

TEST_F(BulkTransportTest, SessionsDroppedUnderWayEndCleanly) {
  services_[0].hold_push = true;
  auto push = transport_->StartPush({Round(0), messages::ContributionKind::kGradient, 1.0f});
  push->AddBucket(0, Version(0), BytesOf(PartOf(values_, 0)));
  services_[0].entered.WaitForNotification();
  push.reset();
  // Tests a session to which nothing was added.
  transport_->StartPush({Round(0), messages::ContributionKind::kGradient, 1.0f}).reset();
}

TEST_F(BulkTransportTest, EmptySessionsSucceed) {
  EXPECT_OK(
      transport_->StartPush({Round(0), messages::ContributionKind::kGradient, 1.0f})->Finish());
  EXPECT_OK(transport_->StartPull(PullSpec{}, nullptr)->Wait());
}

TEST_F(BulkTransportTest, ServerThatIsGoneIsUnavailable) {
  ASSERT_OK(PushAll());
  servers_[1]->Shutdown();
  servers_[1].reset();
  EXPECT_THAT(PushAll(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr(config_.servers[1])));
  std::vector<float> weights;
  EXPECT_THAT(transport_->StartPull(AllBuckets(weights), nullptr)->Wait(),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(BulkTransportTest, AServerThatComesBackAtAnotherAddressIsFollowed) {
  services_[1].hold_push = true;
  const auto under_way =
      transport_->StartPush({Round(5), messages::ContributionKind::kGradient, 0.5f});
  for (uint32_t i = 0; i < kNumBuckets; ++i) {
    under_way->AddBucket(i, Version(4), BytesOf(PartOf(values_, i)));
  }
  services_[1].entered.WaitForNotification();
  // The old process hangs, and does not end the call.
  transport_->MoveTo({config_.servers[0], config_.servers[0]});
  EXPECT_THAT(under_way->Finish(), StatusIs(absl::StatusCode::kUnavailable));
  ASSERT_OK(PushAll());
  EXPECT_EQ(services_[0].buckets.size(), kNumBuckets);
}

}  // namespace
}  // namespace lodestar::client
