// SPDX-License-Identifier: Apache-2.0

// Tests a member that takes a server's space for pushes and does not fill it, over loopback.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/crc32c/crc32c.h"
#include "common/testing/status_matchers.h"
#include "proto/parameter_service.grpc.pb.h"
#include "proto/status_mapping.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/wire_client.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// Each of these tensors is a bucket. The server has space for two buckets at a time, so that one
// member may take all space.
constexpr int kNumBuckets = 6;
constexpr int64_t kBucketElements = 131072;
// Time after which the slow pushes are dropped, less than the minute that a message may take.
constexpr absl::Duration kRoundTimeout = absl::Seconds(8);

// Begins to push every bucket of a round at the same time, and then sends an element now and then.
class Trickle {
 public:
  Trickle(const std::string& address, const WireClient& client, int64_t round)
      : stub_(v1::ParameterService::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))),
        ends_(kNumBuckets),
        contexts_(kNumBuckets) {
    for (int bucket = 0; bucket < kNumBuckets; ++bucket) {
      contexts_[bucket].AddMetadata("lodestar-life", client.registration().life_secret());
      contexts_[bucket].AddMetadata("lodestar-call", absl::StrCat(CallOf(bucket)));
      v1::PushChunk chunk;
      chunk.set_worker_id(client.registration().worker_id());
      chunk.set_incarnation(client.registration().incarnation());
      chunk.set_round(round);
      chunk.set_encoding(v1::ENCODING_FP32);
      chunk.set_kind(v1::CONTRIBUTION_KIND_GRADIENT);
      chunk.set_bucket(static_cast<uint32_t>(bucket));
      threads_.emplace_back([this, bucket, chunk] { Send(chunk, bucket); });
    }
  }
  ~Trickle() {
    for (grpc::ClientContext& context : contexts_) context.TryCancel();
    Await();
  }
  // Blocks until `count` pushes have space.
  void AwaitSpace(int count) {
    v1::DescribeCallsRequest request;
    for (int bucket = 0; bucket < kNumBuckets; ++bucket) request.add_calls(CallOf(bucket));
    while (true) {
      grpc::ClientContext context;
      v1::DescribeCallsReply reply;
      ASSERT_OK(wire::FromGrpcStatus(stub_->DescribeCalls(&context, request, &reply)));
      if (std::count_if(reply.calls().begin(), reply.calls().end(),
                        [](const v1::CallState& call) { return call.bytes() > 0; }) >= count) {
        return;
      }
    }
  }
  // Blocks until the server has ended every push.
  std::vector<absl::Status> Await() {
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
    return ends_;
  }

 private:
  static uint64_t CallOf(int bucket) { return 1000 + static_cast<uint64_t>(bucket); }
  void Send(v1::PushChunk chunk, int bucket) {
    v1::PushReply reply;
    const auto writer = stub_->Push(&contexts_[bucket], &reply);
    const absl::Notification never;
    for (int64_t offset = 0; offset < kBucketElements; ++offset) {
      const float zero = 0.0f;
      chunk.set_offset(offset);
      chunk.set_data(&zero, sizeof(zero));
      chunk.set_crc32c(crc32c::Crc32c(chunk.data().data(), chunk.data().size()));
      if (!writer->Write(chunk)) break;
      never.WaitForNotificationWithTimeout(absl::Milliseconds(200));
    }
    ends_[bucket] = wire::FromGrpcStatus(writer->Finish());
  }

  std::unique_ptr<v1::ParameterService::Stub> stub_;
  std::vector<absl::Status> ends_;
  std::vector<grpc::ClientContext> contexts_;
  std::vector<std::thread> threads_;
};

// Sends heartbeats until destroyed. They do not say what the worker does.
class Heartbeats {
 public:
  explicit Heartbeats(WireClient& client)
      : thread_([this, &client] {
          while (!stop_.WaitForNotificationWithTimeout(absl::Milliseconds(300))) {
            client.Heartbeat().IgnoreError();
          }
        }) {}
  ~Heartbeats() {
    stop_.Notify();
    thread_.join();
  }

 private:
  absl::Notification stop_;
  std::thread thread_;
};

TEST(PushSpaceTest, WhoTakesSpaceAndTricklesIsDroppedAndNotThoseWhoWaitForIt) {
  server::ServerConfig config = SmallJobConfig();
  config.job.min_workers = 2;
  config.job.keep_workers = 1;
  config.cluster.lease = absl::Seconds(2);
  config.cluster.round_timeout = kRoundTimeout;
  config.limits.staging_bytes = 1 << 20;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  const v1::Layout layout = FlatLayout(std::vector<int64_t>(kNumBuckets, kBucketElements));
  const std::vector<float> ones(kNumBuckets * kBucketElements, 1.0f);
  WireClient honest(cluster->address(), "honest", 1);
  ASSERT_OK(honest.Register(layout));
  ASSERT_OK(honest.SupplyAndJoin(std::vector<float>(ones.size())));
  ASSERT_EQ(honest.registration().buckets_size(), kNumBuckets);
  const Heartbeats honest_heartbeats(honest);
  WireClient evil(cluster->address(), "evil", 2);
  ASSERT_OK(evil.Register(layout));
  ASSERT_OK(evil.Join());
  const Heartbeats evil_heartbeats(evil);
  ASSERT_OK(evil.AskForGrant(std::nullopt, absl::Milliseconds(1)));
  ASSERT_OK_AND_ASSIGN(const v1::Grant work, honest.NextGrant(std::nullopt));
  ASSERT_OK_AND_ASSIGN(const v1::Grant evil_work, evil.NextGrant(std::nullopt));
  ASSERT_EQ(evil_work.round(), work.round());
  Trickle trickle(cluster->address(), evil, work.round());
  trickle.AwaitSpace(1);

  // The honest worker pushes bucket by bucket on one stream. Once a bucket is counted for which the
  // other worker has no space, it is the other worker's turn there, and it takes the last space.
  ASSERT_OK_AND_ASSIGN(const v1::PushReply reply,
                       honest.Push(v1::CONTRIBUTION_KIND_GRADIENT, work.round(), 0, ones));
  EXPECT_EQ(reply.buckets_counted(), kNumBuckets);
  EXPECT_THAT(trickle.Await(), Each(StatusIs(absl::StatusCode::kAborted)))
      << "no memory is left with it";
  ASSERT_OK_AND_ASSIGN(const v1::Grant next, honest.NextGrant(ReportOf(work)));
  EXPECT_EQ(next.round(), work.round() + 1);
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, honest.Pull(next.round()));
  EXPECT_THAT(weights, Each(-1.0f)) << "as without the other";

  EXPECT_THAT(
      evil.Heartbeat(),
      StatusIs(absl::StatusCode::kAborted,
               AllOf(HasSubstr("held up other workers: "), HasSubstr("shard 0 has received "),
                     HasSubstr("of 524288 bytes of bucket "), HasSubstr("--round_timeout=8s"))));
}

// The client has one channel, like clients in other languages: its heartbeats come over the
// connection of the push that has stopped.
TEST(PushSpaceTest, DropsPushThatIsAbandoned) {
  server::ServerConfig config = SmallJobConfig();
  config.job.min_workers = 2;
  config.job.keep_workers = 1;
  config.cluster.lease = absl::Seconds(2);
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  const v1::Layout layout = FlatLayout({kBucketElements});
  const std::vector<float> ones(kBucketElements, 1.0f);
  WireClient honest(cluster->address(), "honest", 1);
  ASSERT_OK(honest.Register(layout));
  ASSERT_OK(honest.SupplyAndJoin(std::vector<float>(ones.size())));
  const Heartbeats honest_heartbeats(honest);
  WireClient hung(cluster->address(), "hung", 2);
  ASSERT_OK(hung.Register(layout));
  ASSERT_OK(hung.Join());
  const Heartbeats hung_heartbeats(hung);
  ASSERT_OK(hung.AskForGrant(std::nullopt, absl::Milliseconds(1)));
  ASSERT_OK_AND_ASSIGN(const v1::Grant work, honest.NextGrant(std::nullopt));
  ASSERT_OK_AND_ASSIGN(const v1::Grant hung_work, hung.NextGrant(std::nullopt));
  ASSERT_EQ(hung_work.round(), work.round());

  const auto stub = v1::ParameterService::NewStub(
      grpc::CreateChannel(cluster->address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.AddMetadata("lodestar-life", hung.registration().life_secret());
  v1::PushReply reply;
  const auto writer = stub->Push(&context, &reply);
  v1::PushChunk chunk;
  chunk.set_worker_id(hung.registration().worker_id());
  chunk.set_incarnation(hung.registration().incarnation());
  chunk.set_round(work.round());
  chunk.set_encoding(v1::ENCODING_FP32);
  chunk.set_kind(v1::CONTRIBUTION_KIND_GRADIENT);
  chunk.set_data(ones.data(), 64 * sizeof(float));
  chunk.set_crc32c(crc32c::Crc32c(chunk.data().data(), chunk.data().size()));
  ASSERT_TRUE(writer->Write(chunk));

  ASSERT_OK(honest.Push(v1::CONTRIBUTION_KIND_GRADIENT, work.round(), 0, ones).status());
  ASSERT_OK_AND_ASSIGN(const v1::Grant next, honest.NextGrant(ReportOf(work)));
  EXPECT_EQ(next.round(), work.round() + 1);
  EXPECT_THAT(hung.Heartbeat(),
              StatusIs(absl::StatusCode::kAborted,
                       AllOf(HasSubstr("256 of 524288 bytes"), HasSubstr("--lease=2s"))));
  context.TryCancel();
  writer->Finish();
}

}  // namespace
}  // namespace lodestar
