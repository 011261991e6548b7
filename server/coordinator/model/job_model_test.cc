// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/model/job_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/job/exchange_settings.h"
#include "common/params/model_spec.h"
#include "common/testing/status_matchers.h"

namespace lodestar::model {
namespace {

using ::testing::_;
using ::testing::HasSubstr;
using ::testing::Not;
using RefusalKind = ModelRefusal::Kind;
using ProposalKind = Proposal::Kind;

constexpr absl::Duration kPatience = absl::Seconds(6);
const job::ProposedSettings kMomentum = {.optimizer = job::OptimizerKind::kMomentum,
                                         .momentum = 0.5};
const job::ProposedSettings kSgd = {.optimizer = job::OptimizerKind::kSgd, .learning_rate = 2.0};
const std::vector<std::string> kAddresses = {"a:1", "b:2"};

JobModel::Config ConfigOf(const std::string& preset) {
  JobModel::Config config;
  config.job.model = *params::ModelPreset(preset);
  config.job.batch_size = 8;
  config.job.schedule.total_rounds = 100;
  config.room.num_shards = 2;
  config.caller_patience = kPatience;
  return config;
}

JobModel ModelOf(JobModel::Config config) { return *JobModel::Create(std::move(config)); }

params::Layout LayoutOf(const std::string& name, const std::string& second = "") {
  std::vector<params::TensorSpec> tensors(second.empty() ? 1 : 2);
  tensors[0].name = name;
  tensors[0].shape = {8, 8};
  if (!second.empty()) {
    tensors[1].name = second;
    tensors[1].shape = {8, 8};
  }
  return *params::Layout::FromTensors(std::move(tensors));
}

messages::RegisterCall CallOf(const std::string& name, const job::ProposedSettings& proposed,
                              const std::string& tensor = "w") {
  messages::RegisterCall call;
  call.name = name;
  call.instance_id = std::hash<std::string>()(name);
  call.layout = LayoutOf(tensor);
  call.proposed = proposed;
  return call;
}

messages::WorkerLife LifeOf(uint64_t number) {
  return {WorkerId(number), Incarnation(100 + number)};
}

// Fixture with a job that client `a` has proposed, with kMomentum. The client has not supplied the
// weights yet.
class ClientModelTest : public ::testing::Test {
 protected:
  explicit ClientModelTest(JobModel::Config config = ConfigOf("client"))
      : model_(ModelOf(std::move(config))) {
    const messages::RegisterCall call = CallOf("a", kMomentum);
    model_.BeginFrom(shards::ClientSource{}, std::nullopt);
    model_.Take(call, model_.Judge(call, now_), now_);
    EXPECT_OK(model_.PlanMap(0, kAddresses));
  }
  ProposalKind JudgeKind(const messages::RegisterCall& call) {
    return model_.Judge(call, now_).kind;
  }
  void LoseSupplier() {
    EXPECT_TRUE(model_.ClaimSupply(LifeOf(1), now_));
    EXPECT_TRUE(model_.OnEnded(LifeOf(1)));
  }

  absl::Time now_ = absl::FromUnixSeconds(1'000);
  JobModel model_;
};

TEST(JobModelTest, LayoutOfPresetIsKnownAtOnceAndThatOfClientIsNot) {
  EXPECT_EQ(ModelOf(ConfigOf("mlp")).layout()->hash(),
            params::BuildLayout(*params::ModelPreset("mlp"))->hash());
  EXPECT_FALSE(ModelOf(ConfigOf("client")).layout().has_value());
}

TEST(JobModelTest, CreateRefusesMoreFragmentsThanBuckets) {
  JobModel::Config config = ConfigOf("mlp");
  config.job.fragments = 100;
  EXPECT_THAT(JobModel::Create(config).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--fragments")));
}

TEST(JobModelTest, FirstClientBringsLayoutAndSettings) {
  JobModel model = ModelOf(ConfigOf("client"));
  messages::RegisterCall call = CallOf("a", kMomentum);
  call.layout.reset();
  EXPECT_EQ(model.Judge(call, absl::UnixEpoch()).refusal.kind, RefusalKind::kLacksLayout);
  call.layout = LayoutOf("w");
  const Proposal proposal = model.Judge(call, absl::UnixEpoch());
  ASSERT_EQ(proposal.kind, ProposalKind::kAnother);
  EXPECT_FALSE(model.layout().has_value()) << "Judge() changes nothing";
  model.Take(call, proposal, absl::UnixEpoch());
  EXPECT_EQ(model.layout()->hash(), call.layout->hash());
  EXPECT_EQ(model.job().optimizer.momentum, 0.5);
}

TEST(JobModelTest, RefusesSettingsThatNoJobHas) {
  JobModel::Config config = ConfigOf("client");
  job::ProposedSettings bad = kMomentum;
  bad.momentum = 1.5;
  const Proposal proposal = ModelOf(config).Judge(CallOf("a", bad), absl::UnixEpoch());
  ASSERT_EQ(proposal.kind, ProposalKind::kRefused);
  EXPECT_EQ(proposal.refusal.kind, RefusalKind::kSettings);
  EXPECT_THAT(proposal.refusal.cause,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--momentum")));
}

TEST(JobModelTest, RefusesSettingsThatContradictTheOperators) {
  JobModel::Config config = ConfigOf("client");
  const messages::RegisterCall call = CallOf("a", {.optimizer = job::OptimizerKind::kReduce});
  EXPECT_EQ(ModelOf(config).Judge(call, absl::UnixEpoch()).kind, ProposalKind::kAnother);
  config.divergence.action = faults::DivergenceAction::kRollback;
  EXPECT_EQ(ModelOf(config).Judge(call, absl::UnixEpoch()).refusal.kind, RefusalKind::kSettings);
}

TEST(JobModelTest, RefusesLayoutThatServersCannotTakeWithTheOptimizerThatResults) {
  JobModel::Config config = ConfigOf("client");
  config.job.bucket_bytes = 32 * 4;
  // Each server has 32 elements. Its memory is just enough for weights, sums and staging, but not
  // for the state of AdamW.
  config.room = {.num_shards = 2,
                 .memory = {.total_bytes = 720, .available_bytes = 720, .limited_by = "the test"},
                 .staging_bytes = 1};
  const JobModel model = ModelOf(config);
  const messages::RegisterCall adam = CallOf("a", {.optimizer = job::OptimizerKind::kAdamW});
  EXPECT_EQ(model.Judge(adam, absl::UnixEpoch()).refusal.kind, RefusalKind::kMemory);
  EXPECT_EQ(model.Judge(CallOf("a", kSgd), absl::UnixEpoch()).kind, ProposalKind::kAnother);
}

TEST_F(ClientModelTest, OtherClientsWaitForTheOneWhoseModelTheJobHas) {
  const Proposal proposal = model_.Judge(CallOf("b", kSgd), now_);
  EXPECT_EQ(proposal.kind, ProposalKind::kRefused);
  EXPECT_EQ(proposal.refusal, (ModelRefusal{.kind = RefusalKind::kAwaitsOther, .subject = "a"}));
  EXPECT_EQ(JudgeKind(CallOf("b", kMomentum, "v")), ProposalKind::kRefused);
  EXPECT_EQ(JudgeKind(CallOf("b", kMomentum)), ProposalKind::kNone) << "proposes the same";
  EXPECT_EQ(JudgeKind(CallOf("b", {.momentum = 1.5})), ProposalKind::kNone) << "is not possible";
  EXPECT_EQ(JudgeKind(CallOf("a", kSgd)), ProposalKind::kNone) << "has proposed already";
}

TEST_F(ClientModelTest, AnotherModelCountsOnceThePatienceIsOver) {
  now_ += kPatience - absl::Milliseconds(1);
  EXPECT_EQ(JudgeKind(CallOf("b", kSgd)), ProposalKind::kRefused);
  now_ += absl::Milliseconds(1);
  EXPECT_EQ(JudgeKind(CallOf("b", kMomentum)), ProposalKind::kNone);
  const messages::RegisterCall call = CallOf("b", kSgd, "v");
  const Proposal proposal = model_.Judge(call, now_);
  EXPECT_EQ(proposal.kind, ProposalKind::kAnother);
  model_.Take(call, proposal, now_);
  EXPECT_EQ(model_.layout()->tensors()[0].name, "v");
  EXPECT_EQ(model_.job().schedule.peak, 2.0);
  EXPECT_EQ(model_.job().optimizer.momentum, ConfigOf("client").job.optimizer.momentum)
      << "nothing of the first proposal is left";
  EXPECT_EQ(model_.Judge(CallOf("a", kMomentum), now_).refusal.subject, "b");
}

TEST_F(ClientModelTest, NoOtherModelCountsOnceTheClientHasCome) {
  EXPECT_TRUE(model_.lacks_supplier());
  EXPECT_TRUE(model_.ClaimSupply(LifeOf(1), now_));
  EXPECT_FALSE(model_.lacks_supplier());
  now_ += kPatience;
  EXPECT_EQ(JudgeKind(CallOf("b", kSgd)), ProposalKind::kNone);
}

TEST_F(ClientModelTest, ClientThatIsNotTheSupplierDoesNotEndTheWaitForTheProposer) {
  model_.BeginFrom(shards::SafetensorsSource{"weights"}, std::nullopt);
  EXPECT_FALSE(model_.ClaimSupply(LifeOf(2), now_)) << "no weights are awaited";
  EXPECT_EQ(JudgeKind(CallOf("b", kSgd)), ProposalKind::kRefused);
}

TEST_F(ClientModelTest, NextModelCountsIfTheSupplierIsLost) {
  LoseSupplier();
  EXPECT_TRUE(model_.lacks_supplier());
  EXPECT_EQ(JudgeKind(CallOf("b", kMomentum)), ProposalKind::kSame);
  const Proposal other = model_.Judge(CallOf("b", kMomentum, "v"), now_);
  EXPECT_EQ(other.kind, ProposalKind::kAnother);
  EXPECT_TRUE(other.has_other_layout);
  EXPECT_EQ(model_.Judge(CallOf("b", {.momentum = 1.5}), now_).refusal.kind,
            RefusalKind::kSettings);
  messages::RegisterCall tiny = CallOf("b", kMomentum);
  params::TensorSpec scalar;
  scalar.name = "v";
  scalar.shape = {1};
  tiny.layout = *params::Layout::FromTensors({scalar});
  EXPECT_EQ(model_.Judge(tiny, now_).refusal.kind, RefusalKind::kShards)
      << "its own layout is looked at";
  messages::RegisterCall without_layout = CallOf("b", kSgd);
  without_layout.layout.reset();
  const Proposal settings = model_.Judge(without_layout, now_);
  EXPECT_EQ(settings.kind, ProposalKind::kAnother);
  EXPECT_FALSE(settings.has_other_layout);
  model_.Take(without_layout, settings, now_);
  EXPECT_EQ(model_.layout()->tensors()[0].name, "w");
  EXPECT_EQ(model_.Judge(CallOf("c", kMomentum), now_).refusal.subject, "b");
}

TEST_F(ClientModelTest, OnlyTheSupplierBringsTheWeights) {
  EXPECT_TRUE(model_.ClaimSupply(LifeOf(1), now_));
  EXPECT_FALSE(model_.ClaimSupply(LifeOf(2), now_));
  EXPECT_FALSE(model_.OnEnded(LifeOf(2)));
  model_.OnJoined(LifeOf(2));
  EXPECT_TRUE(model_.supply().is_awaited());
  model_.OnJoined(LifeOf(1));
  EXPECT_FALSE(model_.supply().is_awaited());
  EXPECT_FALSE(model_.OnEnded(LifeOf(1))) << "the weights are there";
}

TEST_F(ClientModelTest, OfferedLayoutIsTheJobsOrGoesByIt) {
  messages::RegisterCall call = CallOf("b", {});
  EXPECT_EQ(model_.CheckOffered(call), std::nullopt);
  call.layout = LayoutOf("v");
  EXPECT_EQ(model_.CheckOffered(call)->kind, RefusalKind::kOtherLayout);
  call.adopts_order = true;
  EXPECT_EQ(model_.CheckOffered(call)->kind, RefusalKind::kOtherTensors);

  JobModel two = ModelOf(ConfigOf("client"));
  messages::RegisterCall first = CallOf("a", {});
  first.layout = LayoutOf("v", "w");
  two.Take(first, two.Judge(first, now_), now_);
  call.layout = LayoutOf("w", "v");
  EXPECT_EQ(two.CheckOffered(call), std::nullopt) << "the order may differ";
  call.adopts_order = false;
  EXPECT_EQ(two.CheckOffered(call)->kind, RefusalKind::kOtherLayout);
}

TEST_F(ClientModelTest, LayoutHashIsCompared) {
  EXPECT_EQ(model_.CheckLayoutHash(LayoutOf("w").hash()), std::nullopt);
  EXPECT_EQ(model_.CheckLayoutHash("beef"),
            (ModelRefusal{.kind = RefusalKind::kLayoutHash, .subject = "beef"}));
}

TEST(JobModelTest, RefusalNamesTheEncodingThatTheClientDoesNotKnow) {
  JobModel::Config config = ConfigOf("mlp");
  config.job.push_encoding = params::Encoding::kInt8;
  config.job.pull_encoding = params::Encoding::kInt4;
  const JobModel model = ModelOf(config);
  std::vector<params::Encoding::Kind> known = {params::Encoding::Kind::kFp32};
  EXPECT_EQ(
      model.CheckEncodings(known),
      (ModelRefusal{.kind = RefusalKind::kEncoding, .subject = "push_encoding", .known = known}));
  known.push_back(params::Encoding::Kind::kInt8);
  EXPECT_EQ(model.CheckEncodings(known)->subject, "pull_encoding");
  known.push_back(params::Encoding::Kind::kInt4);
  EXPECT_EQ(model.CheckEncodings(known), std::nullopt);
}

TEST_F(ClientModelTest, MapSaysWhichServerHasWhat) {
  const messages::ClusterMap& map = *model_.map();
  ASSERT_EQ(map.servers.size(), 2);
  EXPECT_EQ(map.servers[0].address, "a:1");
  EXPECT_EQ(map.servers[1].address, "b:2");
  EXPECT_EQ(map.servers[0].range.begin, 0);
  EXPECT_EQ(map.servers[0].range.end, map.servers[1].range.begin);
  EXPECT_EQ(map.servers[1].range.end, 64);
  EXPECT_EQ(map.layout.hash(), LayoutOf("w").hash());
  EXPECT_EQ(map.buckets.size(), 2);
}

TEST_F(ClientModelTest, MapsOfProcessesThatHaveReadTheSameMemoryHaveDifferentVersions) {
  const JobModel::Memory memory = model_.memory();
  const auto version_after = [&](uint64_t version, absl::Time at) {
    JobModel model = ModelOf(ConfigOf("client"));
    JobModel::Memory read = memory;
    read.map_version = version;
    EXPECT_OK(model.Resume(std::move(read), kAddresses, now_));
    EXPECT_OK(model.MoveServers({"a:1", "c:3"}, at));
    EXPECT_EQ(model.map()->servers[1].address, "c:3");
    return model.map()->version;
  };
  const uint64_t first = version_after(7, now_);
  EXPECT_GT(first, 7);
  EXPECT_NE(version_after(7, now_ + absl::Milliseconds(1)), first);
  EXPECT_GT(version_after(first, now_ - absl::Hours(1)), first) << "the clock was put back";
}

TEST_F(ClientModelTest, MemoryOfSettledJobAwaitsNoOtherSettings) {
  JobModel next = ModelOf(ConfigOf("client"));
  ASSERT_OK(next.Resume(model_.memory(), kAddresses, now_));
  EXPECT_EQ(next.Judge(CallOf("b", kSgd), now_).kind, ProposalKind::kNone);
}

TEST_F(ClientModelTest, MemoryHasAllOfAClientsModel) {
  LoseSupplier();
  const JobModel::Memory memory = model_.memory();
  JobModel next = ModelOf(ConfigOf("client"));
  ASSERT_OK(next.Resume(memory, kAddresses, now_));
  EXPECT_EQ(job::JobSettings(next.job()), job::JobSettings(model_.job()));
  EXPECT_EQ(next.layout()->hash(), LayoutOf("w").hash());
  EXPECT_EQ(next.map()->version, model_.map()->version);
  EXPECT_TRUE(next.supply().is_awaited());
  EXPECT_EQ(next.Judge(CallOf("b", kSgd), now_).kind, ProposalKind::kAnother)
      << "settings are still awaited";
  JobModel::Memory without_layout = memory;
  without_layout.layout.reset();
  EXPECT_THAT(ModelOf(ConfigOf("client")).Resume(without_layout, kAddresses, now_),
              StatusIs(absl::StatusCode::kDataLoss, _));
}

TEST(JobModelTest, MemoryOfPresetGoesOnInTheLayoutItWasTrainedIn) {
  const absl::Time now = absl::UnixEpoch();
  const JobModel::Config config = ConfigOf("gpt-nano");
  JobModel model = ModelOf(config);
  ASSERT_OK(model.PlanMap(0, kAddresses));
  JobModel::Memory memory = model.memory();
  EXPECT_FALSE(memory.layout.has_value());
  EXPECT_FALSE(IsOfEarlierLayout(memory, config.job));
  ASSERT_OK(ModelOf(config).Resume(memory, kAddresses, now));

  const params::Layout earlier = *params::BuildEarlierLayout(config.job.model);
  ASSERT_NE(earlier.hash(), model.layout()->hash());
  memory.layout_hash = earlier.hash();
  EXPECT_TRUE(IsOfEarlierLayout(memory, config.job));
  JobModel next = ModelOf(config);
  ASSERT_OK(next.Resume(memory, kAddresses, now));
  EXPECT_EQ(next.layout()->hash(), earlier.hash());
  EXPECT_EQ(next.map()->layout.hash(), earlier.hash());
  // After a restore from a checkpoint, the job has the layout of this release again.
  ASSERT_OK(next.Restore({.layout = earlier, .is_from_checkpoint = true}));
  EXPECT_EQ(next.layout()->hash(), model.layout()->hash());
  EXPECT_THAT(next.Restore({.layout = LayoutOf("w"), .is_from_checkpoint = true}),
              StatusIs(absl::StatusCode::kFailedPrecondition, _));

  memory.layout_hash = "beef";
  EXPECT_THAT(ModelOf(config).Resume(memory, kAddresses, now),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("beef")));
}

TEST(JobModelTest, CheckpointHasSettingsAndLayoutOfItsClient) {
  JobModel model = ModelOf(ConfigOf("client"));
  job::JobSpec saved = ConfigOf("client").job;
  saved.batch_size = 3;
  ASSERT_OK(model.Restore({.job = saved, .layout = LayoutOf("v"), .is_from_checkpoint = true}));
  model.BeginFrom(shards::CheckpointSource{"round-7"}, ResumeSnapshot{"round-7", Round(7), {}});
  EXPECT_EQ(model.job().batch_size, 3);
  EXPECT_EQ(model.layout()->hash(), LayoutOf("v").hash());
  EXPECT_EQ(model.resumed()->path, "round-7");
  EXPECT_FALSE(model.supply().is_awaited());
  EXPECT_EQ(model.Judge(CallOf("a", kSgd), absl::UnixEpoch()).kind, ProposalKind::kNone);
}

TEST(JobModelTest, WeightsFileLeavesSettingsToTheNextClient) {
  JobModel model = ModelOf(ConfigOf("client"));
  ASSERT_OK(model.Restore({.layout = LayoutOf("w")}));
  EXPECT_EQ(model.Judge(CallOf("a", kSgd), absl::UnixEpoch()).kind, ProposalKind::kAnother);
}

// Fixture with a job that measures in a trial and then chooses its exchange settings. Its members
// are 1 and 2.
class TrialTest : public ::testing::Test {
 protected:
  static JobModel::Config TrialConfig() {
    JobModel::Config config = ConfigOf("mlp");
    config.job.min_workers = 2;
    config.job.schedule.total_rounds = 20'000;
    config.open_settings = job::OpenSettings::All();
    return config;
  }
  TrialTest() { EXPECT_OK(model_.Restore({})); }
  void Measure(WorkerId worker) {
    messages::RoundReport report;
    report.num_samples = 8;
    report.compute = absl::Milliseconds(100);
    for (int round = 0; round < ExchangeTuning::kTrialRounds; ++round) {
      model_.OnReport(worker, report, /*local_steps=*/10);
    }
    model_.OnHeartbeat(worker, {.up_bytes_per_second = 1e6,
                                .down_bytes_per_second = 1e6,
                                .round_trip = absl::Milliseconds(50)});
  }

  const std::vector<WorkerId> members_ = {WorkerId(1), WorkerId(2)};
  JobModel model_ = ModelOf(TrialConfig());
};

TEST_F(TrialTest, JobWithoutSettingsBeginsWithATrial) {
  EXPECT_TRUE(model_.tuning().is_measuring());
  EXPECT_EQ(job::JobSettings(model_.job()), job::JobSettings(job::TrialOf(TrialConfig().job)));
  JobModel given = ModelOf(ConfigOf("mlp"));
  ASSERT_OK(given.Restore({}));
  EXPECT_FALSE(given.tuning().is_measuring()) << "the operator has given all settings";
}

TEST_F(TrialTest, TrialIsOverOnceAllThatCanHaveWorkHaveMeasured) {
  EXPECT_FALSE(model_.IsTrialOver(members_, 2));
  Measure(WorkerId(1));
  EXPECT_FALSE(model_.IsTrialOver(members_, 2));
  EXPECT_TRUE(model_.IsTrialOver(members_, 1)) << "a round gives no more members work";
  EXPECT_FALSE(model_.IsTrialOver({WorkerId(1)}, 2)) << "the job waits for two";
  Measure(WorkerId(2));
  EXPECT_TRUE(model_.IsTrialOver(members_, 2));
  model_.OnEnded({WorkerId(2), Incarnation(1)});
  EXPECT_FALSE(model_.IsTrialOver(members_, 2));
}

TEST_F(TrialTest, ChoiceIsTheJobsUntilItGoesBackToACheckpoint) {
  Measure(WorkerId(1));
  Measure(WorkerId(2));
  ASSERT_OK(model_.ChooseExchange());
  EXPECT_EQ(model_.tuning().origin(), ExchangeOrigin::kChoice);
  EXPECT_FALSE(model_.tuning().is_measuring());
  EXPECT_FALSE(model_.IsTrialOver(members_, 2));
  const std::vector<job::JobSetting> chosen = job::JobSettings(model_.job());
  EXPECT_NE(chosen, job::JobSettings(job::TrialOf(TrialConfig().job)));
  ASSERT_OK(model_.Restore({}));
  EXPECT_EQ(job::JobSettings(model_.job()), chosen) << "it starts over with what it has chosen";
  EXPECT_FALSE(model_.tuning().is_measuring());

  ASSERT_OK(model_.PlanMap(0, kAddresses));
  JobModel next = ModelOf(TrialConfig());
  ASSERT_OK(next.Resume(model_.memory(), kAddresses, absl::UnixEpoch()));
  EXPECT_EQ(job::JobSettings(next.job()), chosen);
  EXPECT_EQ(next.tuning().origin(), ExchangeOrigin::kJournal);

  JobModel restored = ModelOf(TrialConfig());
  ASSERT_OK(restored.Restore({.job = model_.job(), .is_from_checkpoint = true}));
  EXPECT_FALSE(restored.tuning().is_measuring());
  EXPECT_EQ(restored.tuning().origin(), ExchangeOrigin::kCheckpoint);
}

TEST_F(TrialTest, TrialThatIsCutShortBeginsAnew) {
  Measure(WorkerId(1));
  ASSERT_OK(model_.Restore({}));
  EXPECT_TRUE(model_.tuning().is_measuring());
  EXPECT_FALSE(model_.tuning().HasMeasured(WorkerId(1)));
}

}  // namespace
}  // namespace lodestar::model
