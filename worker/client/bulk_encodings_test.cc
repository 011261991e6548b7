// SPDX-License-Identifier: Apache-2.0

// Tests of the gRPC transport with encoded buckets. The server is a gRPC service that the test
// implements.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/crc32c/crc32c.h"
#include "common/params/encoding.h"
#include "common/testing/status_matchers.h"
#include "proto/bulk_options.h"
#include "proto/convert.h"
#include "proto/parameter_service.grpc.pb.h"
#include "worker/client/bulk_grpc_transport.h"
#include "worker/client/bulk_transport.h"

namespace lodestar::client {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kElements = 1001;
// Each bucket has two chunks. This is the number of elements in the first one.
constexpr int64_t kFirstElements = 3 * params::kInt8Block;

// Keeps the pushed chunks and the last pull request. Answers pulls with chunks that the test sets.
class ChunkService final : public v1::ParameterService::Service {
 public:
  grpc::Status Push(grpc::ServerContext*, grpc::ServerReader<v1::PushChunk>* reader,
                    v1::PushReply* reply) override {
    v1::PushChunk chunk;
    while (reader->Read(&chunk)) pushed.push_back(chunk);
    reply->set_buckets_late(late);
    if (late > 0) reply->add_late_buckets(0);
    reply->set_buckets_counted(1 - late);
    return grpc::Status::OK;
  }
  grpc::Status Pull(grpc::ServerContext*, const v1::PullRequest* request,
                    grpc::ServerWriter<v1::PullChunk>* writer) override {
    {
      absl::MutexLock lock(&mutex);
      last_pull = *request;
    }
    for (const v1::PullChunk& chunk : answer) writer->Write(chunk);
    return grpc::Status::OK;
  }

  std::vector<v1::PushChunk> pushed;
  int late = 0;
  std::vector<v1::PullChunk> answer;
  absl::Mutex mutex;
  v1::PullRequest last_pull;
};

class BulkEncodingsTest : public ::testing::TestWithParam<params::Encoding> {
 protected:
  BulkEncodingsTest() : room_(3 * encoded_bytes_), weights_(kElements, -1.0f) {
    grpc::ServerBuilder builder;
    wire::ApplyServerOptions(builder);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    BulkGrpcTransportConfig config;
    config.servers = {absl::StrCat("127.0.0.1:", port)};
    config.buckets = {{0, 0, 0, {0, kElements}}};
    config.worker = WorkerId(1);
    config.incarnation = Incarnation(1);
    config.chunk_bytes = params::EncodedBytes(GetParam(), kFirstElements);
    transport_ = MakeBulkGrpcTransport(config);
    // Makes the answer to a pull: two changes of the bucket, each in two chunks.
    for (int64_t change = 0; change < 2; ++change) {
      for (const int64_t begin : {int64_t{0}, kFirstElements}) {
        const int64_t size = begin == 0 ? kFirstElements : kElements - kFirstElements;
        v1::PullChunk chunk;
        chunk.set_version(9);
        chunk.set_base_version(7);
        chunk.set_offset(change * kElements + begin);
        chunk.set_encoding(wire::ToProto(GetParam().kind()));
        chunk.set_data(std::string(params::EncodedBytes(GetParam(), size),
                                   static_cast<char>('a' + service_.answer.size())));
        chunk.set_crc32c(crc32c::Crc32c(chunk.data().data(), chunk.data().size()));
        service_.answer.push_back(chunk);
      }
    }
  }

  absl::StatusOr<PushResult> Push(absl::Span<const std::byte> data) {
    const auto session = transport_->StartPush({.round = Round(5), .encoding = GetParam()});
    session->AddBucket(0, Version(4), data);
    return session->Finish();
  }

  absl::StatusOr<PulledBucket> Pull(std::optional<Version> held) {
    PulledBucket result;
    PullSpec spec{Round(8), {}, GetParam()};
    spec.targets.push_back({0, absl::MakeSpan(weights_), held, absl::MakeSpan(room_)});
    const auto session = transport_->StartPull(
        std::move(spec), [&result](const PulledBucket& pulled) { result = pulled; });
    if (absl::Status status = session->Wait(); !status.ok()) return status;
    return result;
  }
  std::vector<int64_t> HeldVersions() {
    absl::MutexLock lock(&service_.mutex);
    return {service_.last_pull.held_versions().begin(), service_.last_pull.held_versions().end()};
  }

  const int64_t encoded_bytes_ = params::EncodedBytes(GetParam(), kElements);
  ChunkService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ParameterTransport> transport_;
  std::vector<std::byte> room_;
  std::vector<float> weights_;
};

INSTANTIATE_TEST_SUITE_P(BlockEncodings, BulkEncodingsTest,
                         ::testing::Values(params::Encoding::kInt8, params::Encoding::kInt4),
                         [](const auto& info) {
                           return std::string(params::EncodingName(info.param));
                         });

TEST_P(BulkEncodingsTest, PushedBucketIsCutWhereBlocksEnd) {
  const std::vector<std::byte> data(encoded_bytes_, std::byte{3});
  ASSERT_OK_AND_ASSIGN(const PushResult result, Push(data));
  EXPECT_EQ(result.buckets_counted, 1);
  ASSERT_EQ(service_.pushed.size(), 2);
  std::string received;
  for (const v1::PushChunk& chunk : service_.pushed) {
    EXPECT_EQ(chunk.encoding(), wire::ToProto(GetParam().kind()));
    EXPECT_EQ(params::EncodedBytes(GetParam(), chunk.offset()), received.size());
    EXPECT_EQ(chunk.offset() % params::BlockElements(GetParam()), 0);
    EXPECT_EQ(static_cast<uint32_t>(chunk.crc32c()),
              crc32c::Crc32c(chunk.data().data(), chunk.data().size()));
    received += chunk.data();
  }
  EXPECT_EQ(received, std::string(encoded_bytes_, '\3'));
  EXPECT_EQ(transport_->bytes_pushed(), encoded_bytes_);
}

TEST_P(BulkEncodingsTest, LateBucketsAreNamed) {
  service_.late = 1;
  const std::vector<std::byte> data(encoded_bytes_);
  ASSERT_OK_AND_ASSIGN(const PushResult result, Push(data));
  EXPECT_EQ(result.buckets_counted, 0);
  EXPECT_THAT(result.late, ElementsAre(0));
}

TEST_P(BulkEncodingsTest, BucketOfAnotherEncodingsLengthIsRefused) {
  const std::vector<std::byte> data(kElements * sizeof(float));
  EXPECT_THAT(Push(data), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_P(BulkEncodingsTest, ChangesLieOneAfterTheOther) {
  ASSERT_OK_AND_ASSIGN(const PulledBucket pulled, Pull(Version(7)));
  EXPECT_EQ(pulled.version, Version(9));
  EXPECT_EQ(pulled.num_changes, 2);
  EXPECT_EQ(room_[0], std::byte{'a'});
  EXPECT_EQ(room_[encoded_bytes_ - 1], std::byte{'b'});
  EXPECT_EQ(room_[encoded_bytes_], std::byte{'c'});
  EXPECT_EQ(room_[2 * encoded_bytes_ - 1], std::byte{'d'});
  EXPECT_EQ(room_[2 * encoded_bytes_], std::byte{0});
  EXPECT_EQ(weights_[0], -1.0f);
  EXPECT_THAT(HeldVersions(), ElementsAre(7));
  EXPECT_EQ(transport_->bytes_pulled(), 2 * encoded_bytes_);
}

TEST_P(BulkEncodingsTest, WholeBucketLandsInItsPlace) {
  const std::vector<float> shadow(kElements, 2.5f);
  v1::PullChunk chunk;
  chunk.set_version(9);
  chunk.set_encoding(v1::ENCODING_FP32);
  chunk.set_data(shadow.data(), shadow.size() * sizeof(float));
  chunk.set_crc32c(crc32c::Crc32c(chunk.data().data(), chunk.data().size()));
  service_.answer = {chunk};
  ASSERT_OK_AND_ASSIGN(const PulledBucket pulled, Pull(std::nullopt));
  EXPECT_EQ(pulled.num_changes, 0);
  EXPECT_EQ(weights_, shadow);
  EXPECT_THAT(HeldVersions(), ElementsAre(-1));
  // The server may send a whole bucket instead of changes.
  ASSERT_OK_AND_ASSIGN(const PulledBucket again, Pull(Version(2)));
  EXPECT_EQ(again.num_changes, 0);
}

TEST_P(BulkEncodingsTest, ChangesThatDoNotFitAreRefused) {
  const auto refused = StatusIs(absl::StatusCode::kDataLoss);
  EXPECT_THAT(Pull(std::nullopt), refused);
  EXPECT_THAT(Pull(Version(6)), refused);
  const std::vector<v1::PullChunk> good = service_.answer;
  const auto with = [&](size_t chunk, auto change) {
    service_.answer = good;
    change(service_.answer[chunk]);
    return Pull(Version(7));
  };
  EXPECT_THAT(with(0, [](auto& chunk) { chunk.set_encoding(v1::ENCODING_BF16); }), refused);
  EXPECT_THAT(with(1, [](auto& chunk) { chunk.set_encoding(v1::ENCODING_FP32); }), refused);
  EXPECT_THAT(with(1, [](auto& chunk) { chunk.set_version(10); }), refused);
  EXPECT_THAT(with(2, [](auto& chunk) { chunk.set_offset(0); }), refused);
  EXPECT_THAT(with(0, [](auto& chunk) { chunk.mutable_data()->pop_back(); }), refused);
  EXPECT_THAT(with(1, [](auto& chunk) { chunk.mutable_data()->push_back('x'); }), refused);
  EXPECT_THAT(with(0, [](auto& chunk) { chunk.set_version(int64_t{1} << 62); }), refused);
  service_.answer = good;
  room_.resize(encoded_bytes_);
  EXPECT_THAT(Pull(Version(7)), refused);
}

}  // namespace
}  // namespace lodestar::client
