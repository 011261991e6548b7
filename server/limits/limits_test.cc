// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "server/limits/audit_quota.h"
#include "server/limits/memory_bound.h"
#include "server/limits/origin_places.h"
#include "server/limits/refusal_counts.h"
#include "server/limits/server_limits.h"

namespace lodestar::limits {
namespace {

using ::testing::HasSubstr;

TEST(ServerLimitsTest, EachFlagHasItsRange) {
  EXPECT_OK(ValidateServerLimits({}));
  const auto refused = [](auto change) {
    ServerLimits limits;
    change(limits);
    return std::string(ValidateServerLimits(limits).message());
  };
  EXPECT_THAT(refused([](ServerLimits& l) { l.max_connections = 7; }),
              HasSubstr("--max_connections=7"));
  EXPECT_THAT(refused([](ServerLimits& l) { l.max_connections_per_address = 4097; }),
              HasSubstr("--max_connections_per_address=4097"));
  EXPECT_THAT(refused([](ServerLimits& l) { l.connections_per_minute = 0; }),
              HasSubstr("--connections_per_minute=0"));
  EXPECT_THAT(refused([](ServerLimits& l) { l.registrations_per_minute = 0; }),
              HasSubstr("--registrations_per_minute=0"));
  EXPECT_THAT(refused([](ServerLimits& l) { l.streams_per_worker = 7; }),
              HasSubstr("--streams_per_worker=7"));
  EXPECT_THAT(refused([](ServerLimits& l) { l.staging_bytes = 1000; }),
              HasSubstr("--staging_limit=1000"));
  EXPECT_THAT(refused([](ServerLimits& l) { l.message_bytes = 1000; }),
              HasSubstr("--message_memory=1000"));
  EXPECT_THAT(refused([](ServerLimits& l) { l.message_timeout = absl::Milliseconds(10); }),
              HasSubstr("--message_timeout=10ms"));
}

TEST(ServerLimitsTest, SomePlacesAreKeptForThisMachine) {
  EXPECT_EQ(ServerLimits{.max_connections = 8}.connections_kept_for_this_machine(), 1);
  EXPECT_EQ(ServerLimits{}.connections_kept_for_this_machine(), 16);
  EXPECT_EQ(ServerLimits{}.connections_per_address(), 1024);
  EXPECT_EQ(ServerLimits{.max_connections_per_address = 5}.connections_per_address(), 5);
}

TEST(RefusalCountsTest, EachLimitHasANameOfItsOwn) {
  std::set<absl::string_view> names;
  for (size_t i = 0; i < kNumLimitsReached; ++i) {
    names.insert(LimitReachedName(static_cast<LimitReached>(i)));
  }
  EXPECT_EQ(names.size(), kNumLimitsReached);
  EXPECT_EQ(names.count(""), 0);
}

TEST(RefusalCountsTest, CountsByLimit) {
  RefusalCounts counts;
  counts.Count(LimitReached::kStreams);
  counts.Count(LimitReached::kSlowPeers, 3);
  EXPECT_EQ(counts.of(LimitReached::kStreams), 1);
  EXPECT_EQ(counts.of(LimitReached::kSlowPeers), 3);
  EXPECT_EQ(counts.of(LimitReached::kNames), 0);
}

TEST(OriginPlacesTest, NobodyTakesAll) {
  OriginPlaces places({.in_all = 3, .of_origin = 2});
  std::vector<OriginPlaces::Place> taken;
  for (int i = 0; i < 5; ++i) taken.push_back(places.Take("loud"));
  EXPECT_NE(taken[1], nullptr);
  EXPECT_EQ(taken[2], nullptr);
  OriginPlaces::Place other = places.Take("other");
  EXPECT_NE(other, nullptr);
  EXPECT_EQ(places.Take("third"), nullptr) << "there are three in all";
  taken.clear();
  EXPECT_NE(places.Take("third"), nullptr);
}

TEST(OriginPlacesTest, APlaceMayOutliveThem) {
  auto places = std::make_unique<OriginPlaces>(OriginPlaces::Config{.in_all = 1, .of_origin = 1});
  const OriginPlaces::Place taken = places->Take("a");
  places.reset();
  EXPECT_NE(taken, nullptr);
}

TEST(MemoryBoundTest, IsTheSumOfWhatTheLimitsAllow) {
  ServerLimits limits;
  const MemoryBound plain = BoundMemory(limits, 1000, /*has_tls=*/false);
  EXPECT_EQ(plain.shard, 1000);
  EXPECT_EQ(plain.messages, limits.message_bytes);
  EXPECT_GT(BoundMemory(limits, 1000, /*has_tls=*/true).total(), plain.total());
  limits.max_connections *= 2;
  EXPECT_EQ(BoundMemory(limits, 1000, /*has_tls=*/false).connections, 2 * plain.connections);
  EXPECT_THAT(plain.Describe(), HasSubstr("messages 1.07 GB, connections"));
}

TEST(AuditQuotaTest, AFewLinesOfEachIdentityAndMinute) {
  AuditQuota quota;
  const absl::Time now = absl::UnixEpoch();
  for (int i = 0; i < AuditQuota::kLinesPerMinute; ++i) EXPECT_EQ(quota.Take("ann", now), 0);
  EXPECT_EQ(quota.Take("ann", now), std::nullopt);
  EXPECT_EQ(quota.Take("ann", now + absl::Seconds(59)), std::nullopt);
  EXPECT_EQ(quota.Take("bob", now), 0);
  EXPECT_EQ(quota.Take("ann", now + absl::Minutes(1)), 2) << "that were left out";
  EXPECT_EQ(quota.Take("ann", now + absl::Minutes(1)), 0);
}

TEST(AuditQuotaTest, ManyIdentitiesNeedNoMoreMemory) {
  AuditQuota quota;
  const absl::Time now = absl::UnixEpoch();
  int lines = 0;
  for (size_t i = 0; i < 2 * AuditQuota::kMaxIdentities; ++i) {
    if (quota.Take(absl::StrCat("i", i), now).has_value()) ++lines;
  }
  EXPECT_EQ(lines, AuditQuota::kMaxIdentities + AuditQuota::kLinesPerMinute);
  EXPECT_EQ(quota.Take("late", now + absl::Minutes(1)), 0);
}

}  // namespace
}  // namespace lodestar::limits
