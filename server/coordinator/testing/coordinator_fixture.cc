// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/testing/coordinator_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/params/encoding.h"
#include "common/runtime/overloaded.h"
#include "server/coordinator/coordinator_memory_json.h"

namespace lodestar::coordinator {

Coordinator::Config TestConfig(int min_workers) {
  Coordinator::Config config;
  config.job.min_workers = min_workers;
  config.job.model = *params::ModelPreset("mlp");
  config.job.global_batch_size = 6;
  config.job.schedule.total_rounds = 4;
  config.num_shards = 2;
  return config;
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

messages::DatasetInfo TestDataset() {
  return {.fingerprint = "f00d",
          .num_train_samples = 12,
          .num_heldout_samples = 7,
          .tokens_per_sample = 1};
}

CoordinatorHarness::CoordinatorHarness(Coordinator::Config config) : config_(std::move(config)) {
  auto created = Coordinator::Create(config_, now_);
  if (!created.ok()) ADD_FAILURE() << created.status();
  coordinator_ = *std::move(created);
}

void CoordinatorHarness::Record() {
  const auto command = Overloaded{
      [this](const shards::AssignCommand& assign) {
        sent_.commands.push_back(absl::StrCat("assign ", assign.server_incarnation));
        sent_.assignments.push_back(assign);
      },
      [this](const shards::OpenRoundCommand& open) {
        sent_.commands.push_back(absl::StrCat("open ", open.plan.round.value()));
        sent_.plans.push_back(open.plan);
      },
      [this](const shards::CloseRoundCommand& close) {
        sent_.commands.push_back(
            absl::StrCat("close ", close.round.value(), " by ", close.reported.size()));
      },
      [this](const shards::MembersCommand& members) {
        sent_.commands.push_back(absl::StrCat("members ", members.members.size()));
      },
      [this](const shards::DropCommand& drop) {
        sent_.commands.push_back(absl::StrCat("drop ", drop.worker.value()));
      },
      [this](const shards::SaveCommand& save) {
        sent_.commands.push_back(save.round.has_value() ? absl::StrCat("save ", save.round->value())
                                                        : "save as is");
        sent_.save_directories.push_back(save.directory);
      },
      [this](const shards::PublishedCommand& published) {
        sent_.commands.push_back(absl::StrCat("published ", published.round.value()));
      },
      [this](const shards::NormTotalCommand& norm) {
        sent_.commands.push_back(
            absl::StrCat("norm ", norm.round.value(), " ", norm.total_square_sum));
      },
      [this](const shards::AskConnectionsCommand& ask) {
        sent_.commands.push_back(absl::StrCat("ask connections ", ask.life.worker.value()));
      },
      [this](const shards::StopCommand& stop) {
        sent_.commands.push_back(stop.failure.empty() ? "stop"
                                                      : absl::StrCat("stop: ", stop.failure));
        sent_.stopped_instance = stop.instance_id;
      },
  };
  const auto task = Overloaded{
      [this](const checkpoints::CheckpointRecord& record) { store_.published.push_back(record); },
      [this](const DiscardTask& discard) { store_.discarded.push_back(discard.directory); },
      [this](const SetAsideTask& aside) { store_.set_aside.push_back(aside.first_bad); },
      [this](const MarkTask& mark) { store_.marked.push_back(mark); },
      [this](const ChooseRestoreTask& choose) {
        ++store_.restores;
        store_.accepts_loss = choose.accepts_loss;
      },
  };
  const auto announcement = Overloaded{
      [this](const RestoredPoint& point) { observer_.restored.push_back(point); },
      [this](const DecidedJob& decided) { observer_.jobs.push_back(decided.job); },
      [this](const rounds::RoundSummary& summary) { observer_.rounds.push_back(summary); },
      [this](const Event& event) { observer_.events.push_back(event.text); },
      [this](const Alarm& alarm) { observer_.alarms.push_back(alarm.text); },
  };
  const auto effect = Overloaded{
      [&](const shards::ShardCommand& one) { std::visit(command, one); },
      [&](const shards::RepeatedCommand& repeated) {
        std::visit(command, repeated.command);
        std::string& line = sent_.commands.back();
        line = absl::StrCat("again to ", repeated.shard, ": ", line);
      },
      [&](const CheckpointTask& one) { std::visit(task, one); },
      [&](const Announcement& one) { std::visit(announcement, one); },
  };
  for (const Effect& one : coordinator_->TakeEffects()) std::visit(effect, one);
}

RecordedCommands& CoordinatorHarness::sent() {
  Record();
  return sent_;
}

RecordedTasks& CoordinatorHarness::store() {
  Record();
  return store_;
}

RecordedAnnouncements& CoordinatorHarness::observer() {
  Record();
  return observer_;
}

void CoordinatorHarness::Start(const RestoreChoice& choice) {
  AttachAll();
  coordinator_->OnRestoreChosen(choice, now_);
  if (coordinator_->phase() == CoordinatorPhase::kLoading) LoadAll();
}

void CoordinatorHarness::AttachAll() {
  for (int shard = 0; shard < config_.num_shards; ++shard) {
    const absl::Status attached = coordinator_->OnShardAttached(
        shard, config_.num_shards, 70 + shard, /*memory_of=*/0, absl::StrCat("host:", shard), now_);
    EXPECT_TRUE(attached.ok()) << attached;
  }
}

void CoordinatorHarness::LoadAll() {
  for (int shard = 0; shard < config_.num_shards; ++shard) {
    coordinator_->OnShardEvent(
        shard, shards::ShardLoaded{coordinator_->server_incarnation(), absl::OkStatus()}, now_);
  }
}

void CoordinatorHarness::DetachAll() {
  for (int shard = 0; shard < config_.num_shards; ++shard) {
    coordinator_->OnShardDisconnected(shard, 70 + shard, now_);
  }
}

void CoordinatorHarness::AttachAgain() {
  for (int shard = 0; shard < config_.num_shards; ++shard) {
    const absl::Status attached = coordinator_->OnShardAttached(
        shard, config_.num_shards, 70 + shard, coordinator_->server_incarnation(),
        absl::StrCat("host:", shard), now_);
    EXPECT_TRUE(attached.ok()) << attached;
  }
}

void CoordinatorHarness::Restart() {
  Record();
  const std::string kept = CoordinatorMemoryToJson(coordinator_->Memory(), now_);
  now_ -= absl::Hours(1);
  auto memory = CoordinatorMemoryFromRecords({kept}, now_);
  ASSERT_TRUE(memory.ok()) << memory.status();
  ASSERT_TRUE(memory->has_value()) << "no memory";
  EXPECT_EQ(CoordinatorMemoryToJson(*memory, now_), kept);
  auto resumed = Coordinator::Resume(config_, **std::move(memory), now_);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  coordinator_ = *std::move(resumed);
}

void CoordinatorHarness::FinishSave(const std::string& alarm) {
  const std::string directory = sent().save_directories.back();
  const size_t before = store().published.size();
  for (int shard = 0; shard < config_.num_shards; ++shard) {
    coordinator_->OnShardEvent(shard,
                               shards::ShardSaved{coordinator_->server_incarnation(), directory,
                                                  absl::StrCat("part ", shard)},
                               now_);
  }
  ASSERT_EQ(store().published.size(), before + 1);
  const checkpoints::CheckpointRecord record = store().published.back();
  coordinator_->OnCheckpointPublished(
      directory, checkpoints::PublishedCheckpoint{record.final_directory, record.round, 123, alarm},
      now_);
}

absl::StatusOr<messages::Registration> CoordinatorHarness::Register(TestWorker& worker) {
  messages::RegisterCall call;
  call.name = worker.name;
  call.instance_id = worker.instance_id;
  call.device = "cpu";
  call.identity = worker.certificate;
  call.process.acknowledged = worker.acknowledged;
  call.process.age = worker.process_age;
  for (const params::Encoding encoding : params::kAllEncodings)
    call.encodings.push_back(encoding.kind());
  auto answer = coordinator_->Register(call, now_);
  if (answer.ok()) worker.life = answer->life;
  return answer;
}

absl::Status CoordinatorHarness::Join(const TestWorker& worker,
                                      const messages::DatasetInfo& dataset) {
  return coordinator_->Join(worker.life, coordinator_->map()->layout.hash(), dataset, now_)
      .status();
}

TestWorker CoordinatorHarness::Add(const std::string& name, const messages::DatasetInfo& dataset,
                                   const std::string& certificate) {
  TestWorker worker{name, std::hash<std::string>()(name), {}, certificate};
  const auto registered = Register(worker);
  EXPECT_TRUE(registered.ok()) << registered.status();
  const absl::Status joined = Join(worker, dataset);
  EXPECT_TRUE(joined.ok()) << joined;
  return worker;
}

GrantAnswer CoordinatorHarness::Ask(const TestWorker& worker,
                                    const std::optional<messages::RoundReport>& report) {
  auto answer = coordinator_->RequestGrant(worker.life, report, now_);
  if (!answer.ok()) {
    ADD_FAILURE() << worker.name << ": " << answer.status();
    return {};
  }
  if (!answer->grant.has_value()) {
    answer->pending_reason = coordinator_->WhyNoGrant(worker.life, now_);
    EXPECT_NE(answer->pending_reason, "") << worker.name;
  }
  return *std::move(answer);
}

void CoordinatorHarness::Heartbeat(const TestWorker& worker) {
  const auto answer = coordinator_->Heartbeat({worker.life, 0, 0, "compute"}, now_);
  EXPECT_TRUE(answer.ok()) << answer.status();
}

void CoordinatorHarness::Pass(absl::Duration duration, const std::vector<TestWorker>& beating) {
  now_ += duration;
  for (const TestWorker& worker : beating) Heartbeat(worker);
  for (int shard = 0; shard < config_.num_shards; ++shard) {
    if (shard != silent_shard) coordinator_->OnShardHeard(shard, 70 + shard, now_);
  }
  coordinator_->Tick(now_);
}

messages::RoundReport CoordinatorHarness::ReportOf(const messages::Grant& grant) {
  messages::RoundReport report;
  report.round = grant.round;
  report.num_samples = grant.num_samples;
  report.num_predictions = grant.num_samples;
  report.loss_sum = 2.0 * static_cast<double>(grant.num_samples);
  report.compute = absl::Milliseconds(30);
  report.wait = absl::Milliseconds(10);
  report.metrics = {{"samples", static_cast<double>(grant.num_samples)}};
  report.heldout_predictions = grant.num_heldout_samples;
  report.heldout_correct = grant.num_heldout_samples / 2;
  report.heldout_loss_sum = 3.0 * static_cast<double>(grant.num_heldout_samples);
  return report;
}

std::vector<messages::Grant> CoordinatorHarness::RunToEnd(const std::vector<TestWorker>& workers) {
  std::vector<messages::Grant> grants;
  std::vector<std::optional<messages::RoundReport>> reports(workers.size());
  for (int lap = 0; lap < 1000; ++lap) {
    size_t done = 0;
    now_ += absl::Milliseconds(100);
    for (size_t i = 0; i < workers.size(); ++i) {
      const GrantAnswer answer = Ask(workers[i], reports[i]);
      reports[i].reset();
      if (!answer.grant.has_value()) continue;
      if (answer.grant->kind == messages::Grant::Kind::kDone) {
        ++done;
        continue;
      }
      grants.push_back(*answer.grant);
      reports[i] = ReportOf(*answer.grant);
    }
    if (done == workers.size()) {
      std::sort(grants.begin(), grants.end(),
                [](const messages::Grant& a, const messages::Grant& b) {
                  return std::tie(a.round, a.first_sample, a.first_heldout_sample) <
                         std::tie(b.round, b.first_sample, b.first_heldout_sample);
                });
      return grants;
    }
    if (coordinator_->phase() == CoordinatorPhase::kSaving) FinishSave();
  }
  ADD_FAILURE() << "the job does not end: " << coordinator_->Snapshot(now_).waiting_for;
  return grants;
}

}  // namespace lodestar::coordinator
