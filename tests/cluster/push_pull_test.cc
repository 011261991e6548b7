// SPDX-License-Identifier: Apache-2.0

// Tests pushes and pulls over loopback: ParameterService and ParameterShard on one side, the
// worker's transport or plain generated stubs on the other.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/crc32c/crc32c.h"
#include "common/params/encoding.h"
#include "common/params/initial_weights.h"
#include "common/testing/status_matchers.h"
#include "kernels/codec/codec.h"
#include "proto/bulk_options.h"
#include "proto/chunk_codec.h"
#include "proto/convert.h"
#include "proto/parameter_service.grpc.pb.h"
#include "proto/status_mapping.h"
#include "tests/cluster/shard_server.h"

namespace lodestar {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A power of two, so that the numbers below are exact in fp32.
constexpr double kLearningRate = 0.5;

class PushPullTest : public ::testing::Test {
 protected:
  PushPullTest() {
    absl::StatusOr<params::Layout> layout = params::Layout::FromTensors({
        {"a", {300, 50}, 0, 0, false, {params::InitializerKind::kOnes, 0}},
        {"b", {7}, 0, 0, false, {params::InitializerKind::kZeros, 0}},
        {"c", {111, 113}, 0, 1, false, {params::InitializerKind::kOnes, 0}},
    });
    config_.layout = *std::move(layout);
    config_.job.model = {"test", params::ClientModelSpec{}};
    config_.job.mode = job::Mode::kSync;
    config_.job.optimizer.kind = job::OptimizerKind::kSgd;
    config_.job.batch_size = 1;
    config_.job.min_workers = 1;
    config_.job.bucket_bytes = 16 << 10;
  }

  void Start() {
    server_ = std::make_unique<ShardServer>(config_);
    stub_ = v1::ParameterService::NewStub(server_->Channel());
    num_elements_ = server_->layout().num_elements();
    initial_.resize(num_elements_);
    params::FillInitialRange(server_->layout(), config_.job.seed, {0, num_elements_},
                             absl::MakeSpan(initial_));
  }

  std::vector<float> Constant(float value) { return std::vector<float>(num_elements_, value); }

  absl::Span<float> PartOf(std::vector<float>& vector, const params::Bucket& bucket) {
    return absl::MakeSpan(vector).subspan(bucket.range.begin, bucket.range.size());
  }

  std::unique_ptr<client::PushSession> StartPush(client::ParameterTransport& transport, Round round,
                                                 std::vector<float>& gradient,
                                                 int64_t num_samples = 0) {
    auto session = transport.StartPush({.round = round, .num_samples = num_samples});
    for (const params::Bucket& bucket : server_->buckets()) {
      session->AddBucket(bucket.index, Version(round.value()),
                         client::BytesOf(PartOf(gradient, bucket)));
    }
    return session;
  }

  absl::StatusOr<client::PushResult> Push(WorkerId worker, Round round,
                                          std::vector<float> gradient) {
    const auto transport = server_->Transport(worker);
    return StartPush(*transport, round, gradient)->Finish();
  }

  absl::StatusOr<std::vector<float>> Pull(Round min_round) {
    const auto transport = server_->Transport(WorkerId(1));
    std::vector<float> weights(num_elements_);
    client::PullSpec spec{min_round, {}};
    for (const params::Bucket& bucket : server_->buckets()) {
      spec.targets.push_back({bucket.index, PartOf(weights, bucket)});
    }
    RETURN_IF_ERROR(transport->StartPull(std::move(spec), nullptr)->Wait());
    return weights;
  }

  // Returns the weights after one update with this gradient everywhere.
  std::vector<float> After(float gradient) {
    std::vector<float> weights = initial_;
    for (float& weight : weights) weight -= static_cast<float>(kLearningRate) * gradient;
    return weights;
  }

  // Returns a chunk of bucket 0 with the elements [begin, end), all 2.
  v1::PushChunk SomeChunk(int64_t begin, int64_t end) {
    const std::vector<float> values(end - begin, 2.0f);
    v1::PushChunk chunk;
    chunk.set_worker_id(1);
    chunk.set_incarnation(1);
    chunk.set_round(0);
    chunk.set_bucket(0);
    chunk.set_offset(begin);
    chunk.set_encoding(v1::ENCODING_FP32);
    chunk.set_kind(v1::CONTRIBUTION_KIND_GRADIENT);
    chunk.set_data(values.data(), values.size() * sizeof(float));
    chunk.set_crc32c(crc32c::Crc32c(chunk.data().data(), chunk.data().size()));
    return chunk;
  }
  v1::PushChunk WholeBucket() { return SomeChunk(0, server_->buckets()[0].range.size()); }

  absl::Status PushChunks(const std::vector<v1::PushChunk>& chunks,
                          v1::PushReply* reply = nullptr) {
    grpc::ClientContext context;
    v1::PushReply unused;
    const auto writer = stub_->Push(&context, reply != nullptr ? reply : &unused);
    for (const v1::PushChunk& chunk : chunks) {
      if (!writer->Write(chunk)) break;
    }
    writer->WritesDone();
    return wire::FromGrpcStatus(writer->Finish());
  }

  ShardServer::Config config_;
  std::unique_ptr<ShardServer> server_;
  std::unique_ptr<v1::ParameterService::Stub> stub_;
  int64_t num_elements_ = 0;
  std::vector<float> initial_;
};

TEST_F(PushPullTest, RoundOfTwoWorkersAveragesAndPublishes) {
  Start();
  server_->OpenRound(Round(0), 2, kLearningRate);
  std::vector<float> first = Constant(2.0f);
  std::vector<float> second = Constant(6.0f);
  const auto transport1 = server_->Transport(WorkerId(1));
  const auto transport2 = server_->Transport(WorkerId(2));
  const auto push2 = StartPush(*transport2, Round(0), second);
  const auto push1 = StartPush(*transport1, Round(0), first);
  ASSERT_OK_AND_ASSIGN(const client::PushResult result1, push1->Finish());
  ASSERT_OK_AND_ASSIGN(const client::PushResult result2, push2->Finish());
  EXPECT_EQ(result1.buckets_counted, server_->buckets().size());
  EXPECT_EQ(result2.buckets_counted, server_->buckets().size());
  EXPECT_THAT(Pull(Round(1)), IsOkAndHolds(After(4.0f)));
  const rpc::BulkTraffic traffic = server_->rpc().traffic();
  EXPECT_EQ(traffic.bytes_received, 2 * num_elements_ * sizeof(float));
  EXPECT_EQ(traffic.bytes_sent, num_elements_ * sizeof(float));
}

TEST_F(PushPullTest, AContributionWeighsTheSamplesThatItIsOf) {
  Start();
  server_->OpenRound(Round(0), 2, kLearningRate, /*num_samples=*/4);
  std::vector<float> first = Constant(2.0f);
  std::vector<float> second = Constant(6.0f);
  const auto transport1 = server_->Transport(WorkerId(1));
  const auto transport2 = server_->Transport(WorkerId(2));
  const auto push1 = StartPush(*transport1, Round(0), first, /*num_samples=*/3);
  const auto push2 = StartPush(*transport2, Round(0), second, /*num_samples=*/1);
  ASSERT_OK(push1->Finish());
  ASSERT_OK(push2->Finish());
  EXPECT_THAT(Pull(Round(1)), IsOkAndHolds(After(3.0f)));
}

TEST_F(PushPullTest, ASkippedStepTravelsWithoutNumbersAndHasNoWeight) {
  Start();
  server_->OpenRound(Round(0), 2, kLearningRate);
  const auto transport1 = server_->Transport(WorkerId(1));
  const auto transport2 = server_->Transport(WorkerId(2));
  const auto skip = [this](client::ParameterTransport& transport) {
    auto session =
        transport.StartPush({.round = Round(0), .num_samples = messages::kSkippedSamples});
    for (const params::Bucket& bucket : server_->buckets()) {
      session->AddBucket(bucket.index, Version(0), {});
    }
    return session->Finish();
  };
  ASSERT_OK_AND_ASSIGN(const client::PushResult skipped, skip(*transport1));
  EXPECT_EQ(skipped.buckets_counted, server_->buckets().size());
  ASSERT_OK_AND_ASSIGN(const client::PushResult again, skip(*transport1));
  EXPECT_EQ(again.buckets_duplicate, server_->buckets().size());
  std::vector<float> gradient = Constant(6.0f);
  ASSERT_OK(StartPush(*transport2, Round(0), gradient)->Finish());
  EXPECT_THAT(Pull(Round(1)), IsOkAndHolds(After(6.0f)));
  EXPECT_EQ(server_->rpc().traffic().bytes_received, num_elements_ * sizeof(float));
}

TEST_F(PushPullTest, ManyRoundsInARow) {
  Start();
  const auto transport = server_->Transport(WorkerId(1));
  std::vector<float> gradient = Constant(1.0f);
  for (int round = 0; round < 20; ++round) {
    server_->OpenRound(Round(round), 1, kLearningRate);
    ASSERT_OK(StartPush(*transport, Round(round), gradient)->Finish());
  }
  EXPECT_THAT(Pull(Round(20)), IsOkAndHolds(After(20.0f)));
}

TEST_F(PushPullTest, PullWaitsForItsVersion) {
  Start();
  server_->OpenRound(Round(0), 1, kLearningRate);
  absl::StatusOr<std::vector<float>> pulled;
  std::thread puller([&] { pulled = Pull(Round(1)); });
  EXPECT_OK(Push(WorkerId(1), Round(0), Constant(2.0f)));
  puller.join();
  EXPECT_THAT(pulled, IsOkAndHolds(After(2.0f)));
}

TEST_F(PushPullTest, CancelledPullLeavesTheServerServing) {
  Start();
  server_->OpenRound(Round(0), 1, kLearningRate);
  const auto transport = server_->Transport(WorkerId(1));
  std::vector<float> weights(num_elements_);
  const params::Bucket& bucket = server_->buckets()[0];
  const auto session = transport->StartPull({Round(99), {{0, PartOf(weights, bucket)}}}, nullptr);
  session->Cancel();
  EXPECT_THAT(session->Wait(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(Pull(Round(0)), IsOkAndHolds(initial_));
}

TEST_F(PushPullTest, RepeatedPushCountsOnce) {
  Start();
  server_->OpenRound(Round(0), 1, kLearningRate);
  ASSERT_OK(Push(WorkerId(1), Round(0), Constant(2.0f)));
  ASSERT_OK_AND_ASSIGN(const client::PushResult again, Push(WorkerId(1), Round(0), Constant(2.0f)));
  EXPECT_EQ(again.buckets_counted, 0);
  EXPECT_EQ(again.buckets_duplicate, server_->buckets().size());
  v1::PushReply reply;
  ASSERT_OK(PushChunks({WholeBucket()}, &reply));
  EXPECT_TRUE(reply.duplicate());
  EXPECT_THAT(Pull(Round(1)), IsOkAndHolds(After(2.0f)));
}

TEST_F(PushPullTest, PlainStubsPushAndPull) {
  Start();
  server_->OpenRound(Round(0), 1, kLearningRate);
  const int64_t size = server_->buckets()[0].range.size();
  v1::PushReply reply;
  ASSERT_OK(PushChunks({SomeChunk(0, 10), SomeChunk(10, 11), SomeChunk(11, size)}, &reply));
  EXPECT_EQ(reply.buckets_counted(), 1);
  EXPECT_FALSE(reply.duplicate());

  grpc::ClientContext context;
  v1::PullRequest request;
  request.set_worker_id(1);
  request.set_incarnation(1);
  request.set_encoding(v1::ENCODING_FP32);
  request.set_min_round(1);
  request.add_buckets(0);
  const auto reader = stub_->Pull(&context, request);
  v1::PullChunk chunk;
  std::string data;
  while (reader->Read(&chunk)) {
    EXPECT_EQ(chunk.bucket(), 0);
    EXPECT_EQ(chunk.version(), 1);
    EXPECT_EQ(chunk.offset() * sizeof(float), data.size());
    EXPECT_EQ(static_cast<uint32_t>(chunk.crc32c()),
              crc32c::Crc32c(chunk.data().data(), chunk.data().size()));
    data += chunk.data();
  }
  EXPECT_OK(wire::FromGrpcStatus(reader->Finish()));
  const std::vector<float> wanted = After(2.0f);
  EXPECT_EQ(data, std::string(reinterpret_cast<const char*>(wanted.data()), size * sizeof(float)));
}

TEST_F(PushPullTest, BucketsComeInTheOrderAskedFor) {
  Start();
  grpc::ClientContext context;
  v1::PullRequest request;
  request.set_worker_id(1);
  request.set_incarnation(1);
  request.set_encoding(v1::ENCODING_FP32);
  for (const uint32_t bucket : {3, 0, 2}) request.add_buckets(bucket);
  const auto reader = stub_->Pull(&context, request);
  std::vector<uint32_t> order;
  v1::PullChunk chunk;
  while (reader->Read(&chunk)) order.push_back(chunk.bucket());
  EXPECT_OK(wire::FromGrpcStatus(reader->Finish()));
  EXPECT_THAT(order, ElementsAre(3, 0, 2));
}

TEST_F(PushPullTest, ChunksAreNoLargerThanTheClientWants) {
  Start();
  v1::PullRequest request;
  request.set_worker_id(1);
  request.set_incarnation(1);
  request.set_encoding(v1::ENCODING_FP32);
  request.add_buckets(0);
  const uint32_t checksum_without = wire::ChecksumOf(request);
  request.set_max_chunk_bytes(1500);
  EXPECT_NE(wire::ChecksumOf(request), checksum_without);
  request.set_crc32c(wire::ChecksumOf(request));
  grpc::ClientContext context;
  const auto reader = stub_->Pull(&context, request);
  v1::PullChunk chunk;
  int64_t bytes = 0;
  while (reader->Read(&chunk)) {
    EXPECT_LE(chunk.data().size(), 1500);
    EXPECT_EQ(chunk.offset() * sizeof(float), bytes);
    bytes += static_cast<int64_t>(chunk.data().size());
  }
  EXPECT_OK(wire::FromGrpcStatus(reader->Finish()));
  EXPECT_EQ(bytes, server_->buckets()[0].range.size() * sizeof(float));
}

TEST_F(PushPullTest, BrokenStreamLeavesNothing) {
  Start();
  server_->OpenRound(Round(0), 1, kLearningRate);
  const int64_t size = server_->buckets()[0].range.size();
  {
    grpc::ClientContext context;
    v1::PushReply reply;
    const auto writer = stub_->Push(&context, &reply);
    writer->Write(SomeChunk(0, size / 2));
    context.TryCancel();
    EXPECT_THAT(wire::FromGrpcStatus(writer->Finish()), StatusIs(absl::StatusCode::kCancelled));
  }
  EXPECT_THAT(PushChunks({SomeChunk(0, size / 2)}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the stream ended after")));
  EXPECT_EQ(server_->shard().stats().contributions_counted, 0);
  EXPECT_THAT(Push(WorkerId(1), Round(0), Constant(2.0f)), IsOk());
  EXPECT_THAT(Pull(Round(1)), IsOkAndHolds(After(2.0f)));
}

TEST_F(PushPullTest, WhoSendsNoFurtherHoldsNoPlaceForLong) {
  Start();
  server_->OpenRound(Round(0), 1, kLearningRate);
  grpc::ClientContext context;
  v1::PushReply reply;
  const auto writer = stub_->Push(&context, &reply);
  writer->Write(SomeChunk(0, server_->buckets()[0].range.size() / 2));
  grpc::ClientContext silent_context;
  const auto silent = stub_->Push(&silent_context, &reply);  // does not even say which worker it is
  // This worker is a member, and may pause between two buckets.
  grpc::ClientContext patient_context;
  const auto patient = stub_->Push(&patient_context, &reply);
  patient->Write(WholeBucket());
  while (server_->shard().stats().contributions_counted == 0) std::this_thread::yield();
  absl::Time now = absl::UnixEpoch();
  while (server_->refusals().of(limits::LimitReached::kSlowPeers) < 2) {
    server_->rpc().EndStalled(now += absl::Minutes(1));
  }
  EXPECT_THAT(wire::FromGrpcStatus(writer->Finish()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("--message_timeout")));
  EXPECT_THAT(wire::FromGrpcStatus(silent->Finish()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("--message_timeout")));
  patient->WritesDone();
  EXPECT_THAT(wire::FromGrpcStatus(patient->Finish()), IsOk());
}

TEST_F(PushPullTest, WhoOpensManyPushesLeavesPlacesToOtherAddresses) {
  config_.streams.strangers = 8;
  Start();
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientWriter<v1::PushChunk>>> silent;
  v1::PushReply reply;
  for (int i = 0; i < 3; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    silent.push_back(stub_->Push(contexts.back().get(), &reply));
  }
  while (server_->refusals().of(limits::LimitReached::kStreams) == 0) std::this_thread::yield();
  EXPECT_EQ(server_->refusals().of(limits::LimitReached::kStreams), 1)
      << "a quarter of 8 is for one";
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& writer : silent) writer->Finish();
}

TEST_F(PushPullTest, APullOfMoreBucketsThanThereAreIsRefused) {
  Start();
  v1::PullRequest request;
  request.set_worker_id(1);
  request.set_incarnation(1);
  request.set_encoding(v1::ENCODING_FP32);
  request.mutable_buckets()->Resize(static_cast<int>(server_->buckets().size()) + 1, 0);
  grpc::ClientContext context;
  const auto reader = stub_->Pull(&context, request);
  v1::PullChunk chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_THAT(wire::FromGrpcStatus(reader->Finish()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ask for each bucket once")));
  EXPECT_EQ(server_->refusals().of(limits::LimitReached::kPullRequests), 1);
  request.mutable_buckets()->Resize(100'000, 0);
  grpc::ClientContext large_context;
  EXPECT_THAT(wire::FromGrpcStatus(stub_->Pull(&large_context, request)->Finish()),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("it needs at most")));
  EXPECT_EQ(server_->refusals().of(limits::LimitReached::kPullRequests), 2);
}

TEST_F(PushPullTest, WholeBucketsOfABrokenStreamCount) {
  Start();
  server_->OpenRound(Round(0), 1, kLearningRate);
  v1::PushChunk half = SomeChunk(0, 5);
  half.set_bucket(1);
  EXPECT_THAT(PushChunks({WholeBucket(), half}), StatusIs(absl::StatusCode::kInvalidArgument));
  ASSERT_OK_AND_ASSIGN(const client::PushResult result,
                       Push(WorkerId(1), Round(0), Constant(2.0f)));
  // The contract does not say whether the first bucket was counted before the stream failed. It
  // must count exactly once.
  EXPECT_EQ(result.buckets_counted + result.buckets_duplicate, server_->buckets().size());
  EXPECT_THAT(Pull(Round(1)), IsOkAndHolds(After(2.0f)));
}

TEST_F(PushPullTest, ChunksThatDoNotFitAreInvalid) {
  Start();
  server_->OpenRound(Round(0), 1, kLearningRate);
  const int64_t size = server_->buckets()[0].range.size();
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument);
  // does not begin at 0
  EXPECT_THAT(PushChunks({SomeChunk(1, size)}), refused);
  EXPECT_THAT(PushChunks({SomeChunk(0, 5), SomeChunk(6, size)}), refused);      // has a hole
  EXPECT_THAT(PushChunks({SomeChunk(0, 5), SomeChunk(4, size)}), refused);      // overlaps
  EXPECT_THAT(PushChunks({SomeChunk(0, size + 1)}), refused);                   // too long
  EXPECT_THAT(PushChunks({SomeChunk(0, 5), SomeChunk(5, size + 1)}), refused);  // too long
  v1::PushChunk misplaced = SomeChunk(5, size);
  misplaced.set_offset(4);
  EXPECT_THAT(PushChunks({SomeChunk(0, 5), misplaced}), refused);
  misplaced.set_offset(std::numeric_limits<uint64_t>::max());
  EXPECT_THAT(PushChunks({SomeChunk(0, 5), misplaced}), refused);
  const auto changed = [this](auto change) {
    v1::PushChunk chunk = WholeBucket();
    change(chunk);
    return PushChunks({chunk});
  };
  EXPECT_THAT(changed([](auto& chunk) { chunk.clear_encoding(); }), refused);
  EXPECT_THAT(changed([](auto& chunk) { chunk.set_encoding(static_cast<v1::Encoding>(9)); }),
              refused);
  EXPECT_THAT(changed([](auto& chunk) { chunk.clear_kind(); }), refused);
  EXPECT_THAT(changed([](auto& chunk) { chunk.set_kind(v1::CONTRIBUTION_KIND_WEIGHTS); }), refused);
  EXPECT_THAT(changed([](auto& chunk) { chunk.set_bucket(12345); }), refused);
  EXPECT_THAT(changed([](auto& chunk) { chunk.set_round(-1); }), refused);
  EXPECT_THAT(changed([](auto& chunk) { chunk.set_worker_id(0); }), refused);
  EXPECT_THAT(changed([](auto& chunk) { chunk.set_scale(-1.0f); }), refused);
  EXPECT_THAT(changed([](auto& chunk) { chunk.set_num_samples(-2); }), refused);
  EXPECT_THAT(changed([](auto& chunk) { chunk.set_scale(std::nanf("")); }), refused);
  EXPECT_THAT(changed([](auto& chunk) { chunk.clear_data(); }),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(changed([](auto& chunk) { chunk.mutable_data()->pop_back(); }), refused);
  v1::PushChunk other = SomeChunk(5, size);
  other.set_round(1);
  EXPECT_THAT(PushChunks({SomeChunk(0, 5), other}), refused);
  EXPECT_THAT(Pull(Round(0)), IsOkAndHolds(initial_));
}

TEST_F(PushPullTest, EncodedChunksEndWhereBlocksOrBucketsEnd) {
  for (const params::Encoding encoding : {params::Encoding::kInt8, params::Encoding::kInt4}) {
    config_.job.push_encoding = encoding;
    Start();
    server_->OpenRound(Round(0), 1, kLearningRate);
    const auto zeros = [&](const params::Bucket& bucket, int64_t offset, int64_t bytes) {
      v1::PushChunk chunk = SomeChunk(offset, offset);
      chunk.set_bucket(bucket.index);
      chunk.set_encoding(wire::ToProto(encoding.kind()));
      chunk.set_data(std::string(bytes, '\0'));
      chunk.set_crc32c(crc32c::Crc32c(chunk.data().data(), chunk.data().size()));
      return chunk;
    };
    const int64_t block = params::BlockElements(encoding);
    const int64_t block_bytes = params::EncodedBytes(encoding, block);
    int num_odd = 0;
    for (const params::Bucket& bucket : server_->buckets()) {
      const int64_t size = bucket.range.size();
      num_odd += static_cast<int>(size % 2);
      const int64_t rest = params::EncodedBytes(encoding, size - block);
      for (const int64_t bytes : {block_bytes - 1, block_bytes + 1, block_bytes + rest + 1}) {
        EXPECT_THAT(PushChunks({zeros(bucket, 0, bytes)}),
                    StatusIs(absl::StatusCode::kInvalidArgument,
                             HasSubstr(absl::StrCat(params::EncodingName(encoding),
                                                    " elements in blocks of ", block,
                                                    ", and at most ", size))));
      }
      v1::PushReply reply;
      EXPECT_OK(PushChunks({zeros(bucket, 0, block_bytes), zeros(bucket, block, rest)}, &reply));
      EXPECT_EQ(reply.buckets_counted(), 1);
    }
    EXPECT_GT(num_odd, 0);
    EXPECT_THAT(Pull(Round(1)), IsOkAndHolds(initial_));
  }
}

// The header names the kind of encoding. A block that keeps another number of elements has another
// size.
TEST_F(PushPullTest, ChunksOfTopKWithOtherParametersAreRefused) {
  config_.job.push_encoding = params::Encoding::TopK(8, 2);
  Start();
  server_->OpenRound(Round(0), 1, kLearningRate);
  const params::Bucket& bucket = server_->buckets()[0];
  const auto status_of = [&](params::Encoding encoding) {
    const std::vector<float> ones(bucket.range.size(), 1.0f);
    v1::PushChunk chunk = SomeChunk(0, 0);
    std::string data(params::EncodedBytes(encoding, bucket.range.size()), '\0');
    codec::CodecOf(encoding).Encode(ones.data(), bucket.range.size(), {},
                                    reinterpret_cast<std::byte*>(data.data()));
    chunk.set_bucket(bucket.index);
    chunk.set_encoding(wire::ToProto(encoding.kind()));
    chunk.set_data(data);
    chunk.set_crc32c(crc32c::Crc32c(data.data(), data.size()));
    return PushChunks({chunk});
  };
  for (const params::Encoding other :
       {params::Encoding::TopK(7, 2), params::Encoding::TopK(9, 2)}) {
    EXPECT_THAT(status_of(other), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("it must have whole topk(8,2) elements")));
  }
  EXPECT_THAT(status_of(params::Encoding::TopK(8, 4)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("this job takes topk(8,2)")));
  EXPECT_OK(status_of(params::Encoding::TopK(8, 2)));
}

TEST_F(PushPullTest, NobodyAsksForAnyNumberOfCalls) {
  Start();
  const auto ask_for = [this](int calls) {
    grpc::ClientContext context;
    v1::DescribeCallsRequest request;
    for (int i = 0; i < calls; ++i) request.add_calls(i);
    v1::DescribeCallsReply reply;
    return wire::FromGrpcStatus(stub_->DescribeCalls(&context, request, &reply));
  };
  EXPECT_OK(ask_for(1024));
  EXPECT_THAT(ask_for(1025),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("1025 calls are asked for; allowed are at most 1024")));
  EXPECT_THAT(ask_for(100'000),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the request has 8000")));
}

// A client that asks for far too much waits for the refusal, unless it cancels the call.
TEST_F(PushPullTest, SomeRefusalsTakeTheirTime) {
  config_.refusal_pause = absl::Hours(1);
  Start();
  v1::DescribeCallsRequest too_many;
  for (int i = 0; i < 2000; ++i) too_many.add_calls(i);
  v1::PullRequest too_large;
  too_large.set_worker_id(1);
  for (int i = 0; i < 5000; ++i) too_large.add_buckets(1000000);
  grpc::ClientContext describing;
  grpc::ClientContext pulling;
  absl::Status described;
  std::thread describer([&] {
    v1::DescribeCallsReply reply;
    described = wire::FromGrpcStatus(stub_->DescribeCalls(&describing, too_many, &reply));
  });
  const auto reader = stub_->Pull(&pulling, too_large);
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    v1::DescribeCallsReply reply;
    EXPECT_OK(wire::FromGrpcStatus(stub_->DescribeCalls(&context, {}, &reply)));
  }
  while (server_->refusals().of(limits::LimitReached::kPullRequests) == 0)
    std::this_thread::yield();
  describing.TryCancel();
  pulling.TryCancel();
  describer.join();
  EXPECT_THAT(described, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(wire::FromGrpcStatus(reader->Finish()), StatusIs(absl::StatusCode::kCancelled));
  // Nothing of the calls may remain, including the reference of a stream to the shard.
  while (server_->num_shard_owners() > 1) std::this_thread::yield();
}

TEST_F(PushPullTest, AClientThatAsksIsToldWhatBecomesOfItsCalls) {
  Start();
  server_->OpenRound(Round(0), 1, kLearningRate);
  const auto state_of = [this](uint64_t call) {
    grpc::ClientContext context;
    v1::DescribeCallsRequest request;
    request.add_calls(call);
    v1::DescribeCallsReply reply;
    EXPECT_OK(wire::FromGrpcStatus(stub_->DescribeCalls(&context, request, &reply)));
    return reply.calls_size() == 1 ? reply.calls(0) : v1::CallState();
  };
  grpc::ClientContext pull;
  pull.AddMetadata(wire::kCallNumberKey, "7");
  v1::PullRequest future;
  future.set_worker_id(1);
  future.set_incarnation(1);
  future.set_min_round(1000);
  future.add_buckets(0);
  future.set_encoding(v1::ENCODING_FP32);
  const auto reader = stub_->Pull(&pull, future);
  while (state_of(7).phase() == v1::CallState::PHASE_UNSPECIFIED) {
  }
  EXPECT_EQ(state_of(7).phase(), v1::CallState::PHASE_HELD);
  EXPECT_EQ(state_of(8).phase(), v1::CallState::PHASE_UNSPECIFIED);
  pull.TryCancel();
  EXPECT_THAT(wire::FromGrpcStatus(reader->Finish()), StatusIs(absl::StatusCode::kCancelled));
  while (state_of(7).phase() != v1::CallState::PHASE_UNSPECIFIED) {
  }

  grpc::ClientContext push;
  push.AddMetadata(wire::kCallNumberKey, "9");
  v1::PushReply reply;
  const auto writer = stub_->Push(&push, &reply);
  EXPECT_TRUE(writer->Write(SomeChunk(0, 5)));
  while (state_of(9).bytes() < 5 * sizeof(float)) {
  }
  while (state_of(9).phase() != v1::CallState::PHASE_RECEIVING) {
  }
  push.TryCancel();
  EXPECT_THAT(wire::FromGrpcStatus(writer->Finish()), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(PushPullTest, DataThatDoesNotHoldIsRefusedByItsCode) {
  Start();
  server_->OpenRound(Round(0), 1, kLearningRate);
  v1::PushChunk damaged = WholeBucket();
  (*damaged.mutable_data())[5] ^= 1;
  EXPECT_THAT(PushChunks({damaged}), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("crc32c")));
  // A pull for a round that never comes.
  v1::PullRequest distant;
  distant.set_worker_id(1);
  distant.set_incarnation(1);
  distant.add_buckets(0);
  distant.set_encoding(v1::ENCODING_FP32);
  distant.set_crc32c(wire::ChecksumOf(distant));
  distant.set_min_round(int64_t{1} << 40);
  grpc::ClientContext context;
  v1::PullChunk chunk;
  const auto reader = stub_->Pull(&context, distant);
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_THAT(wire::FromGrpcStatus(reader->Finish()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("damaged")));
  // If its header were believed, this chunk would be held until its incarnation is announced.
  v1::PushChunk misread = WholeBucket();
  misread.set_crc32c(misread.crc32c() | uint64_t{1} << 63);
  misread.set_incarnation(misread.incarnation() + 1);
  EXPECT_THAT(PushChunks({misread}), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("header")));
  for (const float value : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> gradient = Constant(2.0f);
    gradient[3] = value;
    EXPECT_THAT(Push(WorkerId(1), Round(0), gradient),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("bucket 0")));
  }
  EXPECT_OK(Push(WorkerId(1), Round(0), Constant(2.0f)));
  EXPECT_THAT(Pull(Round(1)), IsOkAndHolds(After(2.0f)));
}

// A damaged frame can remove a whole chunk. If the client sends checksums, a hole means damage, and
// not an error of the client.
TEST_F(PushPullTest, HolesInAStreamWithChecksumsAreDamage) {
  Start();
  server_->OpenRound(Round(0), 1, kLearningRate);
  const int64_t size = server_->buckets()[0].range.size();
  const auto chunk = [&](int64_t begin, int64_t end) {
    v1::PushChunk chunk = SomeChunk(begin, end);
    wire::PushChunkHeader header;
    header.worker = WorkerId(1);
    header.incarnation = Incarnation(1);
    header.offset = begin;
    header.encoding = chunk.encoding();
    header.kind = chunk.kind();
    header.crc32c = static_cast<uint32_t>(chunk.crc32c());
    chunk.set_crc32c(wire::ChecksumOf(header, chunk.data().size()));
    return chunk;
  };
  const auto is_damage = StatusIs(absl::StatusCode::kDataLoss);
  EXPECT_THAT(PushChunks({chunk(0, 5)}), is_damage);
  EXPECT_THAT(PushChunks({chunk(5, size)}), is_damage);
  EXPECT_THAT(PushChunks({chunk(0, 5), chunk(6, size)}), is_damage);
  EXPECT_THAT(PushChunks({chunk(0, 5), v1::PushChunk()}), is_damage);
  EXPECT_THAT(PushChunks({chunk(0, 5), SomeChunk(5, size)}), is_damage) << "without a checksum";
  v1::PushChunk wrong = chunk(0, size);
  wrong.set_encoding(v1::ENCODING_UNSPECIFIED);
  wrong.set_crc32c(0);
  EXPECT_THAT(PushChunks({wrong}), StatusIs(absl::StatusCode::kInvalidArgument))
      << "of a client that gives none";
  EXPECT_OK(PushChunks({chunk(0, 5), chunk(5, size)}));
}

TEST_F(PushPullTest, AnEmptyPullIsDamage) {
  Start();
  grpc::ClientContext context;
  v1::PullChunk chunk;
  const auto reader = stub_->Pull(&context, v1::PullRequest());
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_THAT(wire::FromGrpcStatus(reader->Finish()), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(PushPullTest, StaleLivesAndFutureRoundsAreRefusedByTheirCodes) {
  Start();
  server_->OpenRound(Round(0), 1, kLearningRate);
  v1::PushChunk ahead = WholeBucket();
  ahead.set_round(5);
  EXPECT_THAT(PushChunks({ahead}), StatusIs(absl::StatusCode::kAborted));
  const sync::RosterMember reborn{WorkerId(1), Incarnation(2), 1};
  server_->shard().SetMembers(ViewId(2), {&reborn, 1});
  EXPECT_THAT(PushChunks({WholeBucket()}), StatusIs(absl::StatusCode::kAborted));
}

TEST_F(PushPullTest, PullOfWhatIsNotThereIsRefused) {
  Start();
  const auto pull = [this](auto change) {
    grpc::ClientContext context;
    v1::PullRequest request;
    request.set_worker_id(1);
    request.set_incarnation(1);
    request.set_encoding(v1::ENCODING_FP32);
    request.add_buckets(0);
    change(request);
    const auto reader = stub_->Pull(&context, request);
    v1::PullChunk chunk;
    while (reader->Read(&chunk)) {
    }
    return wire::FromGrpcStatus(reader->Finish());
  };
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument);
  EXPECT_OK(pull([](auto& request) { request.clear_buckets(); }));
  EXPECT_THAT(pull([](auto& request) { request.clear_encoding(); }), refused);
  EXPECT_THAT(pull([](auto& request) { request.set_min_round(-1); }), refused);
  EXPECT_THAT(pull([](auto& request) { request.add_buckets(1 << 30); }), refused);
  EXPECT_THAT(pull([](auto& request) { request.set_max_chunk_bytes(1023); }), refused);
  EXPECT_THAT(pull([](auto& request) { request.clear_worker_id(); }), refused)
      << "that is the coordinator, which knows a number";
}

TEST_F(PushPullTest, ServerWithoutAShardIsUnavailable) {
  Start();
  server_->Detach("restoring checkpoint 12");
  const auto unavailable =
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("restoring checkpoint 12"));
  EXPECT_THAT(Push(WorkerId(1), Round(0), Constant(2.0f)), unavailable);
  EXPECT_THAT(Pull(Round(0)), unavailable);
}

TEST_F(PushPullTest, ShutDownShardEndsThoseWhoWait) {
  Start();
  server_->OpenRound(Round(0), 2, kLearningRate);
  const auto transport = server_->Transport(WorkerId(1));
  std::vector<float> weights(num_elements_);
  const params::Bucket& bucket = server_->buckets()[0];
  const auto pull = transport->StartPull({Round(9), {{0, PartOf(weights, bucket)}}}, nullptr);
  server_->shard().Shutdown(absl::AbortedError("a new server incarnation"));
  EXPECT_THAT(pull->Wait(), StatusIs(absl::StatusCode::kAborted, HasSubstr("new server")));
  EXPECT_THAT(Push(WorkerId(1), Round(0), Constant(2.0f)), StatusIs(absl::StatusCode::kAborted));
}

// Sums are made in the order of worker ids, so worker 2 must wait. The shard has room for two
// buckets.
TEST_F(PushPullTest, WorkerWhoseTurnItIsNotIsHeldBackAndMemoryIsBounded) {
  config_.staging_bytes = 1;
  Start();
  const int64_t before = server_->shard().stats().resident_bytes;
  server_->OpenRound(Round(0), 2, kLearningRate);
  std::vector<float> late = Constant(6.0f);
  const auto transport2 = server_->Transport(WorkerId(2));
  const auto push2 = StartPush(*transport2, Round(0), late);
  ASSERT_OK(Push(WorkerId(1), Round(0), Constant(2.0f)));
  ASSERT_OK_AND_ASSIGN(const client::PushResult result2, push2->Finish());
  EXPECT_GT(result2.wait.held, absl::ZeroDuration());
  EXPECT_GE(result2.wait.since_held, result2.wait.since_received) << "it was taken after that";
  EXPECT_THAT(Pull(Round(1)), IsOkAndHolds(After(4.0f)));
  // The memory has the accumulators, and a second page per bucket because the first was being read.
  EXPECT_LE(server_->shard().stats().resident_bytes,
            before + 3 * num_elements_ * sizeof(float) + 4 * config_.job.bucket_bytes);
}

}  // namespace
}  // namespace lodestar
