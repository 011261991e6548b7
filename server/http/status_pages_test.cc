// SPDX-License-Identifier: Apache-2.0

#include "server/http/status_pages.h"

#include <gtest/gtest.h>

#include <string>

#include "common/runtime/json.h"
#include "common/testing/simulated_clock.h"
#include "gmock/gmock.h"
#include "server/http/prometheus_text.h"

namespace lodestar::http {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

v1::ClusterStatus Training() {
  v1::ClusterStatus status;
  status.set_state("training");
  status.set_round(7);
  status.set_samples(84);
  status.set_train_loss(2.5);
  v1::WorkerStatus* const worker = status.add_workers();
  worker->set_name("box-1");
  worker->set_state("member");
  worker->set_rounds_completed(7);
  v1::WorkerStatus* const gone = status.add_workers();
  gone->set_name("box-2");
  gone->set_state("expired");
  v1::ShardStatus* const shard = status.add_shards();
  shard->set_state("serving");
  shard->set_contributions_late(3);
  return status;
}

class StatusPagesTest : public ::testing::Test {
 protected:
  HttpAnswer Get(const std::string& path, const HttpQuery& query = {}) {
    return routes_.pages.at(path)(query);
  }

  v1::ClusterStatus status_ = Training();
  status::HistoryRecorder history_;
  const HttpRoutes routes_ = StatusPages([this] { return status_; }, &history_);
};

TEST_F(StatusPagesTest, StatusIsThereAsTextAndAsJson) {
  EXPECT_THAT(Get("/statusz").body, HasSubstr("box-1"));
  const HttpAnswer answer = Get("/statusz", {{"format", "json"}});
  EXPECT_EQ(answer.type, "application/json");
  const absl::StatusOr<Json> json = ParseJson(answer.body);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(*GetString(*json, "round"), "7");
  EXPECT_EQ(*GetString(*json, "state"), "training");
  EXPECT_EQ(Get("/statusz", {{"format", "xml"}}).status, 400);
}

TEST_F(StatusPagesTest, ReadyIsWhereWorkersCanTrain) {
  EXPECT_EQ(Get("/readyz").status, 200);
  EXPECT_EQ(Get("/healthz").status, 200);
  status_.mutable_shards(0)->set_state("loading");
  EXPECT_EQ(Get("/readyz").status, 503);
  EXPECT_EQ(Get("/readyz").body, "shard 0 is loading\n");
  EXPECT_EQ(Get("/healthz").status, 200);
  status_ = Training();
  status_.set_state("failed");
  EXPECT_EQ(Get("/readyz").body, "the job is failed\n");
  status_.clear_shards();
  status_.set_state("waiting_for_servers");
  EXPECT_EQ(Get("/readyz").status, 503);
}

TEST_F(StatusPagesTest, ProbesOfStrangersLearnOneBitOnceASecond) {
  SimulatedClock clock;
  int num_reads = 0;
  const HttpRoutes routes = StatusPages(
      [&] {
        ++num_reads;
        return status_;
      },
      &history_, {}, "", &clock);
  const auto& ready = routes.open_pages.at("/readyz");
  EXPECT_EQ(ready().status, 200);
  EXPECT_EQ(routes.open_pages.at("/healthz")().status, 200);
  status_.mutable_shards(0)->set_state("loading");
  EXPECT_EQ(ready().status, 200);
  EXPECT_EQ(num_reads, 1);
  clock.AdvanceTime(absl::Seconds(1));
  EXPECT_EQ(ready().status, 503);
  EXPECT_THAT(ready().body, Not(HasSubstr("loading")));
  EXPECT_EQ(routes.open_pages.at("/healthz")().status, 200);
  EXPECT_EQ(num_reads, 2);
  EXPECT_EQ(routes.open_pages.size(), 2u);
}

TEST_F(StatusPagesTest, AReaderGetsTheStatusAlwaysAndTheHistoryWhenItHasChanged) {
  const HttpEventSource source = routes_.begin_events();
  const auto names = [&source] {
    std::vector<std::string> names;
    for (const HttpEvent& event : source()) names.push_back(event.name);
    return names;
  };
  EXPECT_THAT(names(), ElementsAre("status", "history"));
  for (int i = 0; i < 10; ++i) EXPECT_THAT(names(), ElementsAre("status"));
  history_.Note(coordinator::Event{"joined"}, absl::UnixEpoch());
  EXPECT_THAT(names(), ElementsAre("status", "history"));
  history_.Note(coordinator::Event{"left"}, absl::UnixEpoch());
  EXPECT_THAT(names(), ElementsAre("status"));
  for (const HttpEvent& event : routes_.begin_events()()) {
    EXPECT_THAT(event.data, Not(HasSubstr("\n")));
  }
}

TEST_F(StatusPagesTest, TheDashboardIsOnePageThatNeedsNoOther) {
  const HttpAnswer page = Get("/");
  EXPECT_EQ(page.type, "text/html; charset=utf-8");
  EXPECT_LT(page.body.size(), 200'000u);
  EXPECT_THAT(page.body, HasSubstr("<!DOCTYPE html>"));
  EXPECT_THAT(page.body, HasSubstr("</html>"));
  EXPECT_THAT(page.body, Not(HasSubstr(" src=")));
}

TEST(PrometheusTextTest, HasWhatIsKnownUnderItsConventions) {
  const std::string text = PrometheusText(Training());
  EXPECT_THAT(text, HasSubstr("# TYPE lodestar_samples_handed_out_total counter\n"
                              "lodestar_samples_handed_out_total 84\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE lodestar_round gauge\nlodestar_round 7\n"));
  EXPECT_THAT(text, HasSubstr("lodestar_train_loss_nats 2.5\n"));
  EXPECT_THAT(text, Not(HasSubstr("lodestar_heldout_loss_nats")));
  EXPECT_THAT(text, HasSubstr("lodestar_job_state{state=\"training\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("lodestar_workers{state=\"expired\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("lodestar_worker_rounds_completed_total{worker=\"box-1\"} 7\n"));
  EXPECT_THAT(text, Not(HasSubstr("worker=\"box-2\"")));
  EXPECT_THAT(text,
              HasSubstr("lodestar_shard_contributions_total{shard=\"0\",outcome=\"late\"} 3\n"));
}

}  // namespace
}  // namespace lodestar::http
