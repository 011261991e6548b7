// What a shard's trace shows of a round.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/file_io.h"
#include "common/json.h"
#include "common/testing/status_matchers.h"
#include "common/trace_recorder.h"
#include "server/shard/test_cluster.h"

namespace lodestar {
namespace {

using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(ShardTraceTest, ShowsEveryStageOfEveryBucketOfARound) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/shard-", getpid(), ".json");
  TraceRecorder trace({.path = path, .process = "server", .skip_rounds = 0, .num_rounds = 1},
                      &Clock::Real());
  JobSpec job;
  job.optimizer.kind = OptimizerKind::kSgd;
  TestCluster cluster({.job = job, .trace = &trace});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(2);
  for (int64_t round = 0; round < 3; ++round) {
    cluster.OpenRound(round, {1, 1});
    for (int worker : {1, 2}) {
      ASSERT_OK(cluster.PushAll(TestCluster::Key(worker, round, round), cluster.Vector(1)));
    }
  }
  const absl::StatusOr<std::string> text = ReadWholeFile(path, 1 << 24);
  unlink(path.c_str());
  ASSERT_OK(text);
  const absl::StatusOr<Json> document = ParseJson(*text);
  ASSERT_OK(document);
  // Round 0 has been skipped by beginning to record when the first version was complete, and
  // recording ends with the next one.
  std::map<std::string, int> spans_of_round_1;
  for (const Json& event : (*document)["traceEvents"]) {
    if (event["ph"] != "X" || event["args"]["round"] != 1) continue;
    ++spans_of_round_1[event["name"].get<std::string>()];
  }
  const int buckets = static_cast<int>(cluster.buckets().size());
  EXPECT_THAT(spans_of_round_1,
              UnorderedElementsAre(Pair("receive", 2 * buckets), Pair("check", 2 * buckets),
                                   Pair("accumulate", 2 * buckets), Pair("apply", buckets - 1)))
      << "the last update ends the recording while it runs";
}

}  // namespace
}  // namespace lodestar
