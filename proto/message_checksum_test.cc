// SPDX-License-Identifier: Apache-2.0

#include "proto/message_checksum.h"

#include <string>

#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/cluster_service.pb.h"

namespace lodestar::wire {
namespace {

v1::ShardReport SquareSums() {
  v1::ShardReport report;
  report.set_shard(3);
  report.set_server_incarnation(uint64_t{1} << 60);
  report.mutable_square_sums()->set_round(7);
  for (const double sum : {0.5, 1e-9, 3.0}) report.mutable_square_sums()->add_sums(sum);
  return report;
}

TEST(MessageChecksumTest, HoldsForWhatWasSentAndIsNotRequired) {
  v1::ShardReport report = SquareSums();
  EXPECT_OK(CheckChecksum(report));
  SetChecksum(report);
  EXPECT_NE(report.crc32c(), 0);
  EXPECT_OK(CheckChecksum(report));
  SetChecksum(report);
  EXPECT_OK(CheckChecksum(report)) << "the checksum is not part of itself";
}

TEST(MessageChecksumTest, EachFlippedBitOfTheSumsIsFound) {
  v1::ShardReport report = SquareSums();
  SetChecksum(report);
  const std::string sent = report.SerializeAsString();
  int num_parsed = 0;
  for (size_t bit = 0; bit < sent.size() * 8; ++bit) {
    std::string received = sent;
    received[bit / 8] = static_cast<char>(received[bit / 8] ^ (1 << bit % 8));
    v1::ShardReport damaged;
    if (!damaged.ParseFromString(received)) continue;
    ++num_parsed;
    if (damaged.crc32c() == 0) continue;  // the tag of the checksum became another field's
    EXPECT_THAT(CheckChecksum(damaged), StatusIs(absl::StatusCode::kDataLoss)) << bit;
  }
  EXPECT_GT(num_parsed, 3 * 64);
}

}  // namespace
}  // namespace lodestar::wire
