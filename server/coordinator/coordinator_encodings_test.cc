// SPDX-License-Identifier: Apache-2.0

// Tests which clients may register, depending on the encodings that they know.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/testing/coordinator_fixture.h"

namespace lodestar::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CoordinatorEncodingsTest, ClientThatDoesNotKnowTheJobsIsRefused) {
  Coordinator::Config config = TestConfig();
  config.job.push_encoding = params::Encoding::kInt8;
  config.job.pull_encoding = params::Encoding::kInt4;
  CoordinatorHarness cluster(config);
  cluster.Start();
  messages::RegisterCall call;
  call.name = "old";
  const absl::Status plain = cluster.coordinator().Register(call, cluster.now()).status();
  EXPECT_EQ(plain.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(plain.message()),
              AllOf(HasSubstr("--push_encoding=int8"), HasSubstr("can only use fp32")));
  call.encodings = {params::Encoding::Kind::kFp32, params::Encoding::Kind::kInt8};
  const absl::Status half = cluster.coordinator().Register(call, cluster.now()).status();
  EXPECT_THAT(std::string(half.message()),
              AllOf(HasSubstr("--pull_encoding=int4"), HasSubstr("can only use fp32, int8")));
  call.encodings.push_back(params::Encoding::Kind::kInt4);
  EXPECT_TRUE(cluster.coordinator().Register(call, cluster.now()).ok());
}

// Top-k with 2 bits and with 4 bits are different kinds of encoding. A client must know the kind.
// The number of elements that are sent does not matter, because the answer to the registration says
// it.
TEST(CoordinatorEncodingsTest, TopKIsKnownByItsBits) {
  Coordinator::Config config = TestConfig();
  config.job.push_encoding = params::Encoding::TopK(32, 4);
  CoordinatorHarness cluster(config);
  cluster.Start();
  messages::RegisterCall call;
  call.name = "old";
  call.encodings = {params::Encoding::Kind::kFp32, params::Encoding::Kind::kTopK2};
  const absl::Status refused = cluster.coordinator().Register(call, cluster.now()).status();
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("--push_encoding=topk(32,4)"),
                                                    HasSubstr("can only use fp32, topk2")));
  call.encodings = {params::Encoding::Kind::kFp32, params::Encoding::Kind::kTopK4};
  EXPECT_TRUE(cluster.coordinator().Register(call, cluster.now()).ok());
}

}  // namespace
}  // namespace lodestar::coordinator
