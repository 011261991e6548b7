// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/plan_command.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/runtime/json.h"
#include "common/runtime/text_table.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"

namespace lodestar::psctl {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

PlanOptions SlowLink() {
  PlanOptions options;
  options.model = "gpt2-124m";
  options.workers = 4;
  options.up = 100;
  options.down = 100;
  options.rtt_ms = 50;
  options.step_ms = 300;
  options.loss_budget_percent = 3;
  return options;
}

std::string TextOf(const PlanOptions& options) {
  return MakePlan(options, kUnlimitedColumns)->text;
}

Json JsonOf(PlanOptions options) {
  options.output = "json";
  return *ParseJson(TextOf(options));
}

TEST(PlanCommandTest, ShowsEveryWayAndTheFlagsOfTheBest) {
  const absl::StatusOr<PlanAnswer> plan = MakePlan(SlowLink(), kUnlimitedColumns);
  ASSERT_OK(plan.status());
  EXPECT_TRUE(plan->is_met);
  for (const char* const way :
       {"sync, fp32", "sync, int4", "async, int8", "DiLoCo, int8", "DiLoCo, int4, fragments",
        "local SGD, top-k up, int4 down", "overlapped rounds", "async DiLoCo"}) {
    EXPECT_THAT(plan->text, HasSubstr(way));
  }
  EXPECT_THAT(plan->text,
              AllOf(StartsWith("gpt2-124m, 124.4 million parameters; 4 workers with 100 Mbit/s"),
                    HasSubstr("1 server with 100 up and 100 down for all of them"),
                    HasSubstr("COMPUTES"), HasSubstr("<-"), HasSubstr("Best: "),
                    HasSubstr("\n  ps_server --model=gpt2-124m --min_workers=4 --long_paths "
                              "--mode=local_sgd --local_steps="),
                    EndsWith("\n")));
}

TEST(PlanCommandTest, AllowsAsMuchLossAsServersThatChooseThemselves) {
  EXPECT_EQ(PlanOptions().loss_budget_percent, plan::ExchangeBounds().loss_percent);
}

TEST(PlanCommandTest, LinesFitTheTerminal) {
  const std::string text = MakePlan(SlowLink(), 80)->text;
  EXPECT_THAT(text, HasSubstr("ROUND"));
  EXPECT_THAT(text, Not(HasSubstr("OVERLAP")));
}

TEST(PlanCommandTest, SaysWhatIsMissingAndWhatWouldDo) {
  PlanOptions options = SlowLink();
  options.up = options.down = 1;
  const absl::StatusOr<PlanAnswer> plan = MakePlan(options, kUnlimitedColumns);
  ASSERT_OK(plan.status());
  EXPECT_FALSE(plan->is_met);
  EXPECT_THAT(plan->text, AllOf(HasSubstr("NOT MET: no setting lets workers compute 95.0 %"),
                                HasSubstr("what helps: use links "), HasSubstr("  ps_server ")));
}

TEST(PlanCommandTest, JsonHasTheSameNumbers) {
  const Json plan = JsonOf(SlowLink());
  EXPECT_EQ(*GetInt64(plan, "parameters"), 124'439'808);
  EXPECT_TRUE(*GetBool(plan, "is_met"));
  const Json& chosen = (**GetArray(plan, "options"))[*GetInt64(plan, "chosen")];
  EXPECT_GE(*GetDouble(chosen, "utilisation"), 0.949);
  EXPECT_NEAR(*GetDouble(chosen, "round_seconds") - *GetDouble(chosen, "exposed_seconds"),
              *GetDouble(chosen, "utilisation") * *GetDouble(chosen, "round_seconds"), 1e-6);
  EXPECT_LE(*GetDouble(chosen, "loss_percent"), 3.0);
  EXPECT_GT(*GetInt64(chosen, "bytes_up"), 0);
  EXPECT_TRUE(*GetBool(chosen, "within_bounds"));
  EXPECT_THAT(FormatJson(plan), Not(HasSubstr("\"given\"")));
  // Each parameter takes four bytes. The tolerance covers headers and acknowledgements.
  const Json& first = (**GetArray(plan, "options"))[0];
  EXPECT_EQ(*GetString(first, "name"), "sync, fp32");
  EXPECT_NEAR(static_cast<double>(*GetInt64(first, "bytes_up")), 4.0 * 124'439'808, 0.06 * 5e8);
}

TEST(PlanCommandTest, ForecastsAJobThatIsGiven) {
  PlanOptions options = SlowLink();
  options.job_flags = {"--mode=local_sgd",  "--local_steps=40",          "--fragments=4",
                       "--overlap_steps=5", "--push_encoding=int4",      "--pull_encoding=int4",
                       "--optimizer=sgd",   "--outer_optimizer=average", "--weight_decay=0.1"};
  const Json plan = JsonOf(options);
  const Json& given = **GetObject(plan, "given");
  EXPECT_EQ(*GetInt64(given, "local_steps"), 40);
  EXPECT_THAT(FormatJson(given), HasSubstr("--fragments=4"));
  EXPECT_THAT(TextOf(options),
              AllOf(HasSubstr("given"),
                    HasSubstr("Flags without effect on this forecast: --weight_decay")));
  options.job_flags = {"--mode=local_sgd", "--local_steps=40", "--push_encoding=topk",
                       "--topk=64",        "--topk_bits=2",    "--overlap_rounds"};
  EXPECT_THAT(TextOf(options), HasSubstr("--overlap_rounds=true"));
}

TEST(PlanCommandTest, ServersLinksAreTheWorkersUnlessGiven) {
  PlanOptions options = SlowLink();
  const Json as_workers = JsonOf(options);
  options.server_up = options.server_down = 100;
  EXPECT_EQ(FormatJson(as_workers), FormatJson(JsonOf(options)));
  options.server_up = options.server_down = 10'000;
  const auto seconds = [](const Json& plan) {
    return *GetDouble((**GetArray(plan, "options"))[0], "round_seconds");
  };
  // In `as_workers`, a server's link has the rate of a worker's link, and four workers share it. So
  // each worker has a quarter of that rate.
  EXPECT_NEAR(seconds(JsonOf(options)) / seconds(as_workers), 0.25, 0.02);
}

TEST(PlanCommandTest, TheLossFollowsLengthScheduleAndOuterStep) {
  PlanOptions options = SlowLink();
  options.model = "gpt-nano";
  options.job_flags = {"--mode=local_sgd", "--local_steps=8"};
  const auto percent = [&options](std::vector<std::string> flags) {
    PlanOptions with = options;
    for (std::string& flag : flags) with.job_flags.push_back(std::move(flag));
    return *GetDouble(**GetObject(JsonOf(with), "given"), "loss_percent");
  };
  const double of_many = percent({});
  options.total_steps = 500;
  const double of_few = percent({});
  EXPECT_GT(of_few, of_many);
  EXPECT_GT(of_few, percent({"--init_from=m.safetensors"}));
  options.total_steps = 8000;
  const std::string momentum = "--outer_momentum=0.9";
  EXPECT_GT(percent({momentum}), percent({}));
  EXPECT_GT(percent({"--lr_schedule=cosine"}), percent({}));
  options.total_steps = -1;
  EXPECT_THAT(MakePlan(options, kUnlimitedColumns).status().message(), HasSubstr("--steps=-1"));
}

TEST(PlanCommandTest, TakesModelFilesAndSizes) {
  const std::string path = testing::TempDir() + "/small.textproto";
  std::ofstream(path) << "name: \"small\" mlp { widths: 10 widths: 20 widths: 3 }\n";
  PlanOptions options = SlowLink();
  options.model = path;
  EXPECT_EQ(*GetInt64(JsonOf(options), "parameters"), 10 * 20 + 20 + 20 * 3 + 3);
  options.model.clear();
  options.parameters = 7e9;
  const std::string text = TextOf(options);
  EXPECT_THAT(text, AllOf(HasSubstr("7000 million"), HasSubstr("--model=client")));
  // Without a model's name, the worker is a client's own program. Such a program does not exchange
  // during steps, so no option has fragments.
  EXPECT_THAT(text, Not(HasSubstr("fragments ")));
}

TEST(PlanCommandTest, SeveralServersShareTheTraffic) {
  PlanOptions options = SlowLink();
  options.servers = 4;
  EXPECT_THAT(TextOf(options), AllOf(HasSubstr("4 servers"), HasSubstr("--shard=0/4")));
}

TEST(PlanCommandTest, RefusesWhatCannotBe) {
  using Change = std::function<void(PlanOptions&)>;
  const std::vector<std::pair<Change, std::string>> cases = {
      {[](PlanOptions& o) { o.model = "gpt-9"; }, "--model=gpt-9 is neither a file nor a preset"},
      {[](PlanOptions& o) { o.model = "client"; }, "--parameters=N"},
      {[](PlanOptions& o) { o.model.clear(); },
       "give --model=PRESET, --model=FILE, or --parameters=N"},
      {[](PlanOptions& o) { o.parameters = 1e6; }, "give --model="},
      {[](PlanOptions& o) { o.model.clear(), o.parameters = 3; }, "--parameters=3"},
      {[](PlanOptions& o) { o.workers = 0; }, "--workers=0"},
      {[](PlanOptions& o) { o.servers = 300; }, "--servers=300"},
      {[](PlanOptions& o) { o.up = 0; }, "--up or --down is missing"},
      {[](PlanOptions& o) { o.up = -5; }, "--up=-5"},
      {[](PlanOptions& o) { o.down = 0.0 / 0.0; }, "--down="},
      {[](PlanOptions& o) { o.server_up = -1; }, "--server_up=-1"},
      {[](PlanOptions& o) { o.rtt_ms = -1; }, "--rtt is missing"},
      {[](PlanOptions& o) { o.step_ms = 0; }, "--step_ms is missing"},
      {[](PlanOptions& o) { o.packet_loss_percent = 99; }, "--packet_loss=99"},
      {[](PlanOptions& o) { o.packet_bytes = 10; }, "--packet_bytes=10"},
      {[](PlanOptions& o) { o.utilisation = 1; }, "--utilisation=1"},
      {[](PlanOptions& o) { o.loss_budget_percent = -1; }, "--loss_budget=-1"},
      {[](PlanOptions& o) { o.max_local_steps = 0; }, "--max_local_steps=0"},
      {[](PlanOptions& o) { o.worker_threads = 0; }, "--worker_threads=0"},
      {[](PlanOptions& o) { o.output = "xml"; }, "--output=xml is unknown"},
      {[](PlanOptions& o) { o.job_flags = {"local_steps"}; }, "is not a flag"},
      {[](PlanOptions& o) { o.job_flags = {"--mode=fast"}; }, "--mode=fast"},
      {[](PlanOptions& o) { o.job_flags = {"--local_steps=many"}; }, "--local_steps=many"},
      {[](PlanOptions& o) { o.job_flags = {"--fragments=2"}; }, "--fragments=2"},
      {[](PlanOptions& o) { o.job_flags = {"--outer_preset=diloco"}; }, "--outer_preset"},
  };
  for (const auto& [change, message] : cases) {
    PlanOptions options = SlowLink();
    change(options);
    EXPECT_THAT(MakePlan(options, kUnlimitedColumns).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << message;
  }
}

}  // namespace
}  // namespace lodestar::psctl
