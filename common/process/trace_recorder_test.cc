// SPDX-License-Identifier: Apache-2.0

#include "common/process/trace_recorder.h"

#include <unistd.h>

#include <map>
#include <string>

#include "common/output/output_file.h"
#include "common/runtime/file_io.h"
#include "common/runtime/json.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::process {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class TraceRecorderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = absl::StrCat(::testing::TempDir(), "/trace-", getpid(), "-",
                         ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".json");
    unlink(path_.c_str());
  }
  void TearDown() override { unlink(path_.c_str()); }

  TraceRecorder::Options Options(int64_t skip_rounds, int64_t num_rounds) const {
    return {.path = path_,
            .process = "worker \"a\"",
            .skip_rounds = skip_rounds,
            .num_rounds = num_rounds};
  }
  bool IsWritten() const { return access(path_.c_str(), F_OK) == 0; }
  // Returns the spans of the file, each as "name row round".
  std::vector<std::string> Spans() {
    const absl::StatusOr<std::string> text = ReadWholeFile(path_, 1 << 20);
    EXPECT_OK(text);
    document_ = *ParseJson(text.value_or("{}"));
    std::map<int64_t, std::string> rows;
    std::vector<std::string> spans;
    for (const Json& event : document_["traceEvents"]) {
      if (event["name"] == "thread_name") rows[event["tid"]] = event["args"]["name"];
      if (event["ph"] != "X") continue;
      spans.push_back(absl::StrCat(event["name"].get<std::string>(), " in ", rows[event["tid"]],
                                   " round ", event["args"]["round"].get<int64_t>()));
    }
    return spans;
  }

  std::string path_;
  Json document_;
  SimulatedClock clock_;
};

TEST_F(TraceRecorderTest, RecordsTheRoundsAskedForAndWritesAfterTheLast) {
  TraceRecorder trace(Options(/*skip_rounds=*/1, /*num_rounds=*/2), &clock_);
  for (int64_t round = 10; round < 14; ++round) {
    trace.BeginRound(round);
    EXPECT_EQ(trace.is_recording(), round == 11 || round == 12);
    EXPECT_EQ(IsWritten(), round == 13);
    TraceSpan span(&trace, "training", "step");
  }
  EXPECT_THAT(Spans(), ElementsAre("step in training round 11", "step in training round 12"));
  EXPECT_EQ(document_["traceEvents"][0]["args"]["name"], "worker \"a\"");
}

TEST_F(TraceRecorderTest, LeavingEarlyWritesWhatThereIs) {
  {
    TraceRecorder trace(Options(0, 5), &clock_);
    trace.BeginRound(7);
    TraceSpan span(&trace, "training", "step");
  }
  EXPECT_TRUE(IsWritten());
  unlink(path_.c_str());
  { TraceRecorder idle(Options(2, 5), &clock_); }
  EXPECT_FALSE(IsWritten());
}

TEST_F(TraceRecorderTest, SpansOfOneLaneThatOverlapGetRowsOfTheirOwn) {
  TraceRecorder trace(Options(0, 1), &clock_);
  trace.BeginRound(0);
  const absl::Time start = clock_.Now();
  const auto add = [&](absl::string_view name, int begin, int end) {
    trace.Add("pool", name, start + absl::Seconds(begin), start + absl::Seconds(end));
  };
  add("outer", 0, 10);
  add("inner", 2, 4);
  add("crossing", 3, 12);
  add("after", 10, 11);
  trace.Finish();
  EXPECT_THAT(Spans(), UnorderedElementsAre("outer in pool round 0", "inner in pool round 0",
                                            "crossing in pool 2 round 0", "after in pool round 0"));
}

TEST_F(TraceRecorderTest, TimesAreMicroseconds) {
  TraceRecorder trace(Options(0, 1), &clock_);
  trace.BeginRound(0);
  const absl::Time begin = absl::FromUnixNanos(1'700'000'000'000'001'500);
  trace.Add("a", "b", begin, begin + absl::Nanoseconds(2'000'007), {.bucket = 3, .bytes = 9});
  trace.Finish();
  const absl::StatusOr<std::string> text = ReadWholeFile(path_, 1 << 20);
  ASSERT_OK(text);
  EXPECT_THAT(*text, HasSubstr("\"ts\":1700000000000001.500,\"dur\":2000.007,"));
  EXPECT_THAT(*text, HasSubstr("{\"round\":0,\"bucket\":3,\"bytes\":9}"));
}

TEST_F(TraceRecorderTest, WithoutARecorderSpansDoNothing) {
  TraceSpan span(nullptr, "training", "step");
  EXPECT_FALSE(IsWritten());
}

TEST_F(TraceRecorderTest, ReplacesAnOlderTraceAndNoOtherFile) {
  EXPECT_OK(CheckTraceOutput(""));
  EXPECT_OK(CheckTraceOutput(path_));
  EXPECT_FALSE(IsWritten());
  for (int i = 0; i < 2; ++i) {
    TraceRecorder trace(Options(0, 1), &clock_);
    trace.BeginRound(i);
    { const TraceSpan span(&trace, "training", "step"); }
    trace.Finish();
    EXPECT_OK(CheckTraceOutput(path_));
    EXPECT_THAT(Spans(), ElementsAre(absl::StrCat("step in training round ", i)));
  }
  ASSERT_OK(output::WriteFileAtomically(path_, ""));
  EXPECT_OK(CheckTraceOutput(path_));
  ASSERT_OK(output::WriteFileAtomically(path_, "{\"displayTimeUnit\":\"ns\"}"));
  EXPECT_THAT(CheckTraceOutput(path_), StatusIs(absl::StatusCode::kInvalidArgument,
                                                HasSubstr(absl::StrCat("--trace=", path_))));
}

TEST_F(TraceRecorderTest, KeepsTheTraceThatAnotherProcessWroteMeanwhile) {
  const std::string second = absl::StrCat(path_, ".2");
  unlink(second.c_str());
  TraceRecorder server(Options(0, 1), &clock_);
  TraceRecorder worker(Options(0, 1), &clock_);
  for (TraceRecorder* trace : {&server, &worker}) {
    trace->BeginRound(trace == &server ? 7 : 8);
    { const TraceSpan span(trace, "training", "step"); }
    trace->Finish();
  }
  EXPECT_THAT(Spans(), ElementsAre("step in training round 7"));
  path_ = second;
  EXPECT_THAT(Spans(), ElementsAre("step in training round 8"));
}

}  // namespace
}  // namespace lodestar::process
