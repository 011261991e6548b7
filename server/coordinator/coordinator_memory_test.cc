// SPDX-License-Identifier: Apache-2.0

// Tests of a coordinator process that ends and of another process that continues from its memory.
#include "server/coordinator/coordinator_memory.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/cluster_memory.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_memory_json.h"
#include "server/coordinator/testing/coordinator_fixture.h"

namespace lodestar::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Coordinator::Config PairConfig() {
  Coordinator::Config config = TestConfig(/*min_workers=*/2);
  config.checkpoint_dir = "ckpt";
  config.checkpoint_schedule.every_rounds = 3;
  config.job.eval_every = 2;
  config.job.schedule.total_rounds = 6;
  config.job.clip_norm = 1.0;
  return config;
}

std::string Kept(const Coordinator& coordinator, absl::Time now) {
  return CoordinatorMemoryToJson(coordinator.Memory(), now);
}

// Two workers that do all rounds of a job. They make one call at a time, and each call is answered
// before the next.
class Script {
 public:
  explicit Script(CoordinatorHarness* cluster) : cluster_(cluster) {
    cluster_->Start();
    for (const char* name : {"a", "b"}) workers_.push_back({cluster_->Add(name), {}, false});
  }

  // Makes the next call. Returns false if both workers are done.
  bool Step() {
    if (const auto& saves = cluster_->sent().save_directories; saves.size() > num_saves_) {
      ++num_saves_;
      cluster_->FinishSave();
      return !::testing::Test::HasFatalFailure();
    }
    if (workers_[0].is_done && workers_[1].is_done) return false;
    Worker& worker = workers_[turn_++ % 2];
    if (worker.report.has_value() && turn_ % 3 == 0) {
      cluster_->coordinator().OnShardEvent(
          static_cast<int>(turn_ % 2),
          shards::ShardSquareSums{
              1000, worker.report->round, {0.1, std::numeric_limits<double>::infinity()}},
          cluster_->now());
      return true;
    }
    const GrantAnswer answer = cluster_->Ask(worker.as, worker.report);
    worker.report.reset();
    if (!answer.grant.has_value()) return true;
    worker.is_done = answer.grant->kind == messages::Grant::Kind::kDone;
    if (worker.is_done) return true;
    if (grants_.empty() || !(grants_.back() == *answer.grant)) grants_.push_back(*answer.grant);
    worker.report = CoordinatorHarness::ReportOf(*answer.grant);
    return true;
  }

  // Lets Step() answer none of the saves that were begun before. The process that waits for their
  // answers ends.
  void GiveUpSave() { num_saves_ = cluster_->sent().save_directories.size(); }

  // Registers all workers again, as workers do after they lost the connection. They keep their
  // lives, and send again the reports that were not answered.
  void ComeBack() {
    for (Worker& worker : workers_) {
      const messages::WorkerLife before = worker.as.life;
      ASSERT_OK(cluster_->Register(worker.as));
      EXPECT_EQ(worker.as.life, before);
    }
  }

  const std::vector<messages::Grant>& grants() const { return grants_; }

 private:
  struct Worker {
    TestWorker as;
    std::optional<messages::RoundReport> report;
    bool is_done = false;
  };
  CoordinatorHarness* cluster_;
  std::vector<Worker> workers_;
  std::vector<messages::Grant> grants_;
  size_t turn_ = 0;
  size_t num_saves_ = 0;
};

std::vector<std::string> Told(const std::vector<rounds::RoundSummary>& rounds) {
  std::vector<std::string> told;
  for (const rounds::RoundSummary& round : rounds) {
    told.push_back(absl::StrCat(round.round.value(), ": ", round.workers, " ", round.samples, " ",
                                round.total_samples, " ", round.epoch, " ",
                                round.train_loss.value_or(-1), " ", round.heldout_loss.value_or(-1),
                                " ", round.learning_rate));
  }
  return told;
}

// The coordinator's process is replaced after each call of the job in turn.
TEST(CoordinatorMemoryTest, AJobGoesOnAsIfNothingHadHappenedWhereverItIsCut) {
  CoordinatorHarness whole(PairConfig());
  Script expected(&whole);
  int num_steps = 0;
  while (expected.Step()) ++num_steps;
  ASSERT_GT(num_steps, 20);
  int num_cuts = 0;
  for (int cut = 0; cut < num_steps; ++cut) {
    SCOPED_TRACE(absl::StrCat("cut after ", cut, " calls"));
    CoordinatorHarness cluster(PairConfig());
    Script script(&cluster);
    for (int i = 0; i < cut; ++i) ASSERT_TRUE(script.Step());
    if (!cluster.coordinator().Memory().has_value()) continue;
    ++num_cuts;
    script.GiveUpSave();
    cluster.Restart();
    cluster.AttachAgain();
    script.ComeBack();
    if (HasFatalFailure()) return;
    int rest = 0;
    while (script.Step() && ++rest < 1000) {
    }
    ASSERT_LT(rest, 1000) << cluster.coordinator().Snapshot(cluster.now()).waiting_for;
    EXPECT_TRUE(script.grants() == expected.grants()) << script.grants().size() << " grants";
    EXPECT_EQ(Told(cluster.observer().rounds), Told(whole.observer().rounds));
    EXPECT_EQ(cluster.store().restores, 1) << "nobody goes back";
    EXPECT_EQ(cluster.coordinator().server_incarnation(), 1000);
  }
  EXPECT_GT(num_cuts, 20);
}

// Makes random calls of workers, servers and operators.
class History {
 public:
  History(Coordinator::Config config, uint64_t seed) : cluster(config), chance_(seed) {
    cluster.Start();
  }

  void Step() {
    // Says that the summary of the last round is stored. In a real job this happens soon after a
    // round.
    if (const auto& rounds = cluster.observer().rounds; !rounds.empty()) {
      cluster.coordinator().OnRecorded(rounds.back());
    }
    const uint64_t version = cluster.coordinator().memory_version();
    const absl::Time then = cluster.now();
    const std::string before = Kept(cluster.coordinator(), then);
    Act();
    // If memory_version() has not changed, the memory must not have changed either.
    if (cluster.coordinator().memory_version() == version) {
      EXPECT_EQ(Kept(cluster.coordinator(), then), before);
    } else {
      Record();
    }
  }

  // Lets all workers register and request work.
  void AskAll() {
    for (Worker& worker : workers_) {
      const auto registered = cluster.Register(worker.as);
      if (!registered.ok()) continue;  // the servers are not ready
    }
    for (Worker& worker : workers_) Ask(worker);
  }

  CoordinatorHarness cluster;
  std::vector<messages::Grant> grants;

 private:
  struct Worker {
    TestWorker as;
    std::optional<messages::RoundReport> report;
  };

  int64_t Below(int64_t limit) { return static_cast<int64_t>(chance_() % limit); }

  // Writes a record as the journal does. Checks that the records give the same memory when they are
  // read.
  void Record() {
    const absl::Time now = cluster.now();
    const MemoryRecords::Record record =
        records_.Next(cluster.coordinator().Memory(), now, /*journal_id=*/7,
                      /*must_be_whole=*/record_chance_() % 50 == 0);
    if (record.is_whole && record_chance_() % 2 == 0) journal_.clear();
    journal_.push_back(record.text);
    // The process that reads the records has another clock.
    const absl::Time later = now + absl::Hours(record_chance_() % 100);
    uint64_t journal_id = 0;
    const auto memory = CoordinatorMemoryFromRecords(journal_, later, &journal_id);
    ASSERT_OK(memory);
    EXPECT_EQ(journal_id, 7);
    ASSERT_EQ(CoordinatorMemoryToJson(*memory, later), Kept(cluster.coordinator(), now))
        << record.text;
  }

  void Ask(Worker& worker) {
    const auto answer =
        cluster.coordinator().RequestGrant(worker.as.life, worker.report, cluster.now());
    if (!answer.ok()) return;
    worker.report.reset();
    if (!answer->grant.has_value() || answer->grant->kind == messages::Grant::Kind::kDone) return;
    grants.push_back(*answer->grant);
    if (Below(4) != 0) worker.report = CoordinatorHarness::ReportOf(*answer->grant);
  }

  void Act() {
    Coordinator& coordinator = cluster.coordinator();
    const absl::Time now = cluster.now();
    if (workers_.empty() || (workers_.size() < 4 && Below(8) == 0)) {
      Worker worker;
      worker.as = {absl::StrCat("w", Below(6)), chance_(), {}};
      const auto registered = cluster.Register(worker.as);
      if (!registered.ok()) return;
      if (Below(4) == 0) return;  // this worker never joins
      messages::DatasetInfo data = TestDataset();
      data.own_partition = Below(2) == 0;
      if (data.own_partition) data.fingerprint = absl::StrCat("own ", Below(3));
      if (!cluster.Join(worker.as, data).ok()) return;
      workers_.push_back(worker);
      return;
    }
    Worker& worker = workers_[Below(static_cast<int64_t>(workers_.size()))];
    switch (Below(16)) {
      default:
        return Ask(worker);
      case 0:
        coordinator.Heartbeat({worker.as.life, chance_() % 100, 0, "push"}, now).IgnoreError();
        return;
      case 1:
        return cluster.Pass(absl::Milliseconds(Below(900)));
      case 2:
        if (Below(4) != 0) return;
        coordinator.Leave(worker.as.life, "by chance", worker.report, now).IgnoreError();
        std::swap(worker, workers_.back());
        return workers_.pop_back();
      case 3: {
        messages::RoundReport report;
        report.round = Round(Below(3));
        if (Below(3) == 0) report.loss_sum = std::numeric_limits<double>::quiet_NaN();
        report.num_predictions = 1;
        coordinator.RequestGrant(worker.as.life, report, now).IgnoreError();
        return;
      }
      case 4:
        coordinator.OnShardEvent(
            static_cast<int>(Below(2)),
            shards::ShardSquareSums{
                1000, Round(Below(8)), {1.0 / static_cast<double>(1 + Below(9))}},
            now);
        return;
      case 5:
        cluster.DetachAll();
        return cluster.AttachAgain();
      case 6:
        coordinator.BeginLeave(worker.as.life, now).IgnoreError();
        return;
      case 7:
        if (cluster.sent().save_directories.size() > saves_) {
          saves_ = cluster.sent().save_directories.size();
          coordinator.OnShardEvent(
              0, shards::ShardSaved{1000, cluster.sent().save_directories.back(), {"part"}}, now);
        }
        return;
      case 8:
        coordinator.RequestCheckpoint(now).IgnoreError();
        return;
      case 9:
        coordinator.PollGrant(worker.as.life, now).IgnoreError();
        return;
    }
  }

  std::mt19937_64 chance_;
  std::vector<Worker> workers_;
  size_t saves_ = 0;
  std::mt19937_64 record_chance_{1};
  MemoryRecords records_;
  std::vector<std::string> journal_;
};

// Returns the memory as JSON, without the fields that an outage may change.
std::string Lasting(const Coordinator& coordinator, absl::Time now) {
  nlohmann::json json = nlohmann::json::parse(Kept(coordinator, now))["memory"];
  if (json.is_null()) return "none";
  for (const char* field : {"checkpoints", "schedule", "progress", "quota", "last_rounds"}) {
    json.erase(field);
  }
  return json.dump();
}

TEST(CoordinatorMemoryTest, ARestartIsToEverybodyElseLikeAnOutage) {
  int num_compared = 0;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Coordinator::Config config = PairConfig();
    config.job.min_workers = 1;
    config.job.schedule.total_rounds = 12;
    if (seed % 3 == 0) {
      config.job.mode = job::Mode::kAsync;
      config.job.clip_norm = 0;
      config.job.max_rounds_ahead = 2;
    }
    History cut_off(config, seed);
    History restarted(config, seed);
    const int64_t num_steps = 10 + static_cast<int64_t>(seed * 7919 % 150);
    for (int64_t i = 0; i < num_steps; ++i) {
      cut_off.Step();
      restarted.Step();
    }
    if (HasFailure()) return;
    if (!restarted.cluster.coordinator().Memory().has_value()) continue;
    ++num_compared;
    cut_off.cluster.DetachAll();
    restarted.cluster.Restart();
    for (History* history : {&cut_off, &restarted}) {
      history->cluster.AttachAgain();
      for (int lap = 0; lap < 5; ++lap) history->AskAll();
    }
    EXPECT_TRUE(restarted.grants == cut_off.grants);
    EXPECT_EQ(Lasting(restarted.cluster.coordinator(), restarted.cluster.now()),
              Lasting(cut_off.cluster.coordinator(), cut_off.cluster.now()));
    if (HasFailure()) return;
  }
  EXPECT_GT(num_compared, 15);
}

TEST(CoordinatorMemoryTest, TheTimeInWhichNoProcessRanIsNobodysLease) {
  CoordinatorHarness cluster(PairConfig());
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  cluster.Pass(absl::Seconds(9));
  cluster.Restart();
  cluster.AttachAgain();
  cluster.Pass(absl::Seconds(9));
  EXPECT_OK(cluster.coordinator().Heartbeat({a.life, 0, 0, "wait"}, cluster.now()));
  cluster.Pass(absl::Seconds(11));
  EXPECT_THAT(cluster.coordinator().Heartbeat({a.life, 0, 0, "wait"}, cluster.now()),
              StatusIs(absl::StatusCode::kAborted));
}

TEST(CoordinatorMemoryTest, AStoppedJobStillWaitsForWorkersOnlySoLong) {
  CoordinatorHarness cluster(PairConfig());
  cluster.Start();
  const TestWorker a = cluster.Add("a"), b = cluster.Add("b");
  cluster.Ask(b);  // if both wait, a round is opened
  const messages::Grant grant = *cluster.Ask(a).grant;
  ASSERT_TRUE(cluster.Ask(b).grant.has_value());
  cluster.Ask(a, CoordinatorHarness::ReportOf(grant));
  cluster.coordinator().RequestStop("an operator asked for it", cluster.now());
  cluster.Restart();
  cluster.AttachAgain();
  for (int i = 0; i < 11; ++i) cluster.Pass(absl::Seconds(5), {a, b});
  cluster.Pass(absl::Seconds(6), {a});  // the lease of b is not over
  EXPECT_THAT(cluster.observer().events,
              Contains(HasSubstr("has not delivered its round within --stop_timeout")));
}

TEST(CoordinatorMemoryTest, PeopleAreToldThatItGoesOn) {
  CoordinatorHarness cluster(PairConfig());
  Script script(&cluster);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(script.Step());
  const Round round = cluster.coordinator().committed_round();
  cluster.Restart();
  EXPECT_THAT(cluster.coordinator().Snapshot(cluster.now()).waiting_for,
              HasSubstr("waits for the server of shard 0 (away for 0s) and shard 1 (away for 0s)"));
  cluster.AttachAgain();
  EXPECT_THAT(
      cluster.observer().events,
      Contains(absl::StrCat("the server was restarted, and continues from its journal at round ",
                            round.value())));
  ASSERT_EQ(cluster.observer().restored.size(), 2);
  EXPECT_TRUE(cluster.observer().restored.back().is_from_journal);
  EXPECT_EQ(cluster.observer().restored.back().next_round, round);
}

TEST(CoordinatorMemoryTest, RoundsThatAreNotOnRecordAreAnnouncedAgain) {
  CoordinatorHarness cluster(PairConfig());
  Script script(&cluster);
  while (cluster.observer().rounds.size() < 4) ASSERT_TRUE(script.Step());
  const std::vector<rounds::RoundSummary> announced = cluster.observer().rounds;
  cluster.coordinator().OnRecorded(announced[1]);
  cluster.Restart();
  cluster.AttachAgain();
  const RestoredPoint first = cluster.observer().restored.back();
  ASSERT_EQ(first.last_rounds.size(), 2);
  EXPECT_EQ(first.last_rounds[0].round, announced[2].round);
  EXPECT_EQ(first.last_rounds[1].total_samples, announced[3].total_samples);
  EXPECT_EQ(first.last_rounds[1].train_loss, announced[3].train_loss);
  cluster.coordinator().OnRecorded(first.last_rounds[1]);
  cluster.Restart();
  cluster.AttachAgain();
  EXPECT_THAT(cluster.observer().restored.back().last_rounds, IsEmpty());
}

TEST(CoordinatorMemoryTest, ACheckpointUnderWayIsDiscardedAndBegunAnew) {
  CoordinatorHarness cluster(PairConfig());
  Script script(&cluster);
  while (cluster.sent().save_directories.empty()) ASSERT_TRUE(script.Step());
  const std::string given_up = cluster.sent().save_directories.back();
  cluster.Restart();
  EXPECT_THAT(cluster.store().discarded, IsEmpty()) << "its journal may have gone back";
  cluster.AttachAgain();
  EXPECT_THAT(cluster.store().discarded, ElementsAre(given_up));
  // The server of shard 1 has continued to write the checkpoint that was given up.
  cluster.coordinator().OnShardEvent(1, shards::ShardSaved{1000, given_up, {"part 1"}},
                                     cluster.now());
  EXPECT_THAT(cluster.store().discarded, ElementsAre(given_up, given_up));
  cluster.sent().save_directories.pop_back();
  while (cluster.sent().save_directories.empty()) ASSERT_TRUE(script.Step());
  EXPECT_NE(cluster.sent().save_directories.back(), given_up);
  EXPECT_THAT(cluster.store().published, IsEmpty());
}

TEST(CoordinatorMemoryTest, AServerThatHasLostItsMemoryTakesAllBack) {
  CoordinatorHarness cluster(PairConfig());
  Script script(&cluster);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(script.Step());
  cluster.Restart();
  ASSERT_OK(
      cluster.coordinator().OnShardAttached(0, 2, 99, /*memory_of=*/0, "host:0", cluster.now()));
  EXPECT_EQ(cluster.store().restores, 1) << "what shard 1 has is not known yet";
  ASSERT_OK(cluster.coordinator().OnShardAttached(1, 2, 71, 1000, "host:1", cluster.now()));
  EXPECT_EQ(cluster.coordinator().phase(), CoordinatorPhase::kRestoring);
  EXPECT_FALSE(cluster.coordinator().Memory().has_value());
  EXPECT_THAT(cluster.observer().alarms,
              Contains(HasSubstr("shard 0 was started again and has lost its weights")));
  EXPECT_EQ(cluster.store().restores, 2);
}

TEST(CoordinatorMemoryTest, AServerThatHasLostAPartOfItsJournalTakesAllBack) {
  CoordinatorHarness cluster(PairConfig());
  Script script(&cluster);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(script.Step());
  cluster.coordinator().OnJournalState(0, {.end = 50}, cluster.now());
  cluster.coordinator().OnJournalState(1, {.end = 60}, cluster.now());
  cluster.coordinator().OnJournalState(1, {.end = 55},
                                       cluster.now());  // an older message that arrives late
  ASSERT_TRUE(script.Step());
  cluster.Restart();
  const auto attach = [&](int shard, uint64_t journal_end) {
    return cluster.coordinator().OnShardAttached(
        shard, 2, 70 + shard, 1000, absl::StrCat("host:", shard), cluster.now(),
        shards::JournalPlace{.first_segment = 1, .end = journal_end});
  };
  ASSERT_OK(attach(0, 50));
  EXPECT_EQ(cluster.store().restores, 1);
  ASSERT_OK(attach(1, 59));
  EXPECT_EQ(cluster.store().restores, 2);
  EXPECT_THAT(cluster.observer().alarms,
              Contains(HasSubstr("the server of shard 1 has a journal that ends with record 59, "
                                 "although record 60 was already on disk")));
}

TEST(CoordinatorMemoryTest, AServerWithAllOfItsJournalGoesOn) {
  CoordinatorHarness cluster(PairConfig());
  Script script(&cluster);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(script.Step());
  cluster.coordinator().OnJournalState(1, {.end = 60}, cluster.now());
  // A call over an old connection arrives late. It names an older end of the journal, which must
  // not count.
  EXPECT_OK(
      cluster.coordinator().OnShardAttached(1, 2, 71, 1000, "host:1", cluster.now(),
                                            shards::JournalPlace{.first_segment = 1, .end = 40}));
  ASSERT_TRUE(script.Step());
  cluster.Restart();
  EXPECT_OK(
      cluster.coordinator().OnShardAttached(1, 2, 71, 1000, "host:1", cluster.now(),
                                            shards::JournalPlace{.first_segment = 1, .end = 61}));
  EXPECT_EQ(cluster.store().restores, 1);
}

// An old process may run on for some time after a new process has taken over its folders. For
// example, its disk may have hung until then.
TEST(CoordinatorMemoryTest, AProcessWhoseJournalAnotherGoesOnWithIsLetInNoMore) {
  CoordinatorHarness cluster(PairConfig());
  Script script(&cluster);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(script.Step());
  const auto attach = [&](uint64_t first_segment, const std::string& address) {
    return cluster.coordinator().OnShardAttached(
        1, 2, 71, 1000, address, cluster.now(),
        shards::JournalPlace{.first_segment = first_segment, .end = 0});
  };
  ASSERT_OK(attach(3, "old:1"));
  ASSERT_OK(attach(3, "old:1")) << "its connection was cut";
  ASSERT_OK(attach(5, "new:1"));
  EXPECT_EQ(attach(3, "old:1").code(), absl::StatusCode::kAborted);
  ASSERT_TRUE(script.Step());
  cluster.Restart();
  EXPECT_EQ(attach(3, "old:1").code(), absl::StatusCode::kAborted);
  EXPECT_OK(attach(5, "new:1"));
  EXPECT_OK(attach(0, "new:1")) << "of an earlier release";
  EXPECT_EQ(cluster.coordinator().map()->servers[1].address, "new:1");
  EXPECT_EQ(cluster.store().restores, 1);
}

TEST(CoordinatorMemoryTest, AServerMayComeBackAtAnotherAddress) {
  CoordinatorHarness cluster(PairConfig());
  Script script(&cluster);
  cluster.Restart();
  cluster.AttachAgain();
  ASSERT_OK(cluster.coordinator().OnShardAttached(1, 2, 71, 1000, "other:9", cluster.now()));
  EXPECT_EQ(cluster.coordinator().map()->servers[1].address, "other:9");
  EXPECT_EQ(cluster.coordinator().Memory()->shards.servers[1].address, "other:9");
}

TEST(CoordinatorMemoryTest, WorkersFollowAServerToItsAddressWithTheirNextHeartbeat) {
  CoordinatorHarness cluster(PairConfig());
  cluster.Start();
  TestWorker worker = cluster.Add("follows");
  TestWorker old = cluster.Add("does-not");
  messages::HeartbeatCall call{.life = worker.life, .activity = "push", .map_version = 0};
  ASSERT_OK_AND_ASSIGN(messages::HeartbeatAnswer answer,
                       cluster.coordinator().Heartbeat(call, cluster.now()));
  EXPECT_FALSE(answer.servers.has_value()) << "they are where they were";
  ASSERT_OK(cluster.coordinator().OnShardAttached(1, 2, 71, 1000, "other:9", cluster.now()));
  cluster.Restart();
  cluster.AttachAgain();
  ASSERT_OK(cluster.coordinator().OnShardAttached(1, 2, 71, 1000, "other:9", cluster.now()));
  ASSERT_OK_AND_ASSIGN(answer, cluster.coordinator().Heartbeat(call, cluster.now()));
  ASSERT_TRUE(answer.servers.has_value());
  EXPECT_THAT(answer.servers->addresses, ElementsAre("host:0", "other:9"));
  EXPECT_NE(answer.servers->map_version, 0);
  call.map_version = answer.servers->map_version;
  ASSERT_OK_AND_ASSIGN(answer, cluster.coordinator().Heartbeat(call, cluster.now()));
  EXPECT_FALSE(answer.servers.has_value());
  // Some workers do not accept server addresses in answers to heartbeats. Such a worker must
  // register again to learn the new address.
  messages::HeartbeatCall plain;
  plain.life = old.life;
  EXPECT_THAT(cluster.coordinator().Heartbeat(plain, cluster.now()),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("another address")));
  ASSERT_OK_AND_ASSIGN(const messages::Registration again, cluster.Register(old));
  EXPECT_EQ(again.servers()[1].address, "other:9");
  plain.life = old.life;
  EXPECT_OK(cluster.coordinator().Heartbeat(plain, cluster.now()));
}

TEST(CoordinatorMemoryTest, ThereIsNoneBeforeTheServersAreReadyNorOnceTheJobIsSavedAndOver) {
  Coordinator::Config config = PairConfig();
  config.job.min_workers = 1;
  config.exit_when_done = true;
  CoordinatorHarness cluster(config);
  EXPECT_FALSE(cluster.coordinator().Memory().has_value());
  cluster.AttachAll();
  cluster.coordinator().OnRestoreChosen(
      RestoreChoice{.source = shards::InitialSource{}, .server_incarnation = 1000}, cluster.now());
  EXPECT_FALSE(cluster.coordinator().Memory().has_value()) << "loading";
  cluster.LoadAll();
  EXPECT_TRUE(cluster.coordinator().Memory().has_value());
  const TestWorker a = cluster.Add("a");
  EXPECT_FALSE(IsAllInCheckpoint(*cluster.coordinator().Memory()));
  cluster.RunToEnd({a});
  ASSERT_TRUE(cluster.coordinator().Memory().has_value()) << "a has not left";
  EXPECT_TRUE(IsAllInCheckpoint(*cluster.coordinator().Memory()));
  ASSERT_OK(cluster.coordinator().Leave(a.life, "", {}, cluster.now()));
  ASSERT_TRUE(cluster.coordinator().outcome().has_value());
  EXPECT_FALSE(cluster.coordinator().Memory().has_value());
}

TEST(CoordinatorMemoryTest, WhatCouldNotBeSavedOutlivesAServerThatCouldNotGoOn) {
  CoordinatorHarness cluster(PairConfig());
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  Coordinator& coordinator = cluster.coordinator();
  coordinator.OnShardEvent(1, shards::ShardFailing{1000, absl::ResourceExhaustedError("no memory")},
                           cluster.now());
  for (int i = 0; i < 10 && coordinator.phase() != CoordinatorPhase::kFailed; ++i) {
    if (!cluster.sent().save_directories.empty()) {
      coordinator.OnShardEvent(0,
                               shards::ShardSaved{1000, cluster.sent().save_directories.back(),
                                                  absl::ResourceExhaustedError("the disk is full")},
                               cluster.now());
    }
    cluster.Pass(absl::Seconds(9), {a});
  }
  ASSERT_EQ(coordinator.phase(), CoordinatorPhase::kFailed);
  cluster.Restart();
  cluster.AttachAgain();
  EXPECT_EQ(cluster.coordinator().phase(), CoordinatorPhase::kRunning);
  EXPECT_OK(cluster.coordinator().Heartbeat({a.life, 0, 0, "wait"}, cluster.now()));
}

TEST(CoordinatorMemoryTest, AnotherJobIsRefused) {
  CoordinatorHarness cluster(PairConfig());
  Script script(&cluster);
  const CoordinatorMemory memory = *cluster.coordinator().Memory();
  Coordinator::Config config = PairConfig();
  config.job.min_workers = 1;
  config.job.eval_every = 0;
  EXPECT_OK(CheckSameJob(memory, config.job, config.num_shards));
  config.job.schedule.peak = 0.125;
  config.num_shards = 1;
  EXPECT_THAT(Coordinator::Resume(config, memory, cluster.now()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("--shard was 0/2, but now 0/1 is given"),
                             HasSubstr("--learning_rate was "), HasSubstr("0.125 is given"),
                             Not(HasSubstr("min_workers")))));
}

TEST(CoordinatorMemoryJsonTest, SaysWhatIsWrongAndWhere) {
  CoordinatorHarness cluster(PairConfig());
  Script script(&cluster);
  ASSERT_TRUE(script.Step());
  ASSERT_TRUE(script.Step());
  const absl::Time now = cluster.now();
  const std::string kept = Kept(cluster.coordinator(), now);
  const auto read = [now](const std::string& text) {
    return CoordinatorMemoryFromRecords({text}, now).status();
  };
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = kept;
    EXPECT_GT(absl::StrReplaceAll({{from, to}}, &text), 0) << from << " in " << kept;
    return text;
  };
  EXPECT_OK(read(kept));
  EXPECT_OK(read(changed("\"next_ticket\"", "\"of_later\":{},\"next_ticket\"")));
  EXPECT_THAT(read("{"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("malformed")));
  EXPECT_THAT(read(changed("\"version\":1", "\"version\":3")),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("has version 3")));
  EXPECT_THAT(read(changed("\"next_round\":1", "\"next_round\":-1e3")),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("memory.ledger.state.next_round is not an integer from")));
  EXPECT_THAT(read(changed("\"last_incarnation\"", "\"last\"")),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("memory.membership.last_incarnation is not there")));
}

TEST(CoordinatorMemoryJsonTest, ReadsWorkersOfEarlierReleaseThatHaveNoIndex) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  CoordinatorMemory memory;
  memory.desks[WorkerId(1)].connection.index = 7;
  const std::string written = CoordinatorMemoryToJson(memory, now);
  const auto read = CoordinatorMemoryFromRecords({written}, now);
  ASSERT_OK(read);
  EXPECT_EQ((*read)->desks.at(WorkerId(1)).connection.index, 7);
  const std::string without = absl::StrReplaceAll(written, {{R"("index":7,)", ""}});
  ASSERT_NE(without, written);
  const auto of_earlier_release = CoordinatorMemoryFromRecords({without}, now);
  ASSERT_OK(of_earlier_release);
  EXPECT_EQ((*of_earlier_release)->desks.at(WorkerId(1)).connection.index, std::nullopt);
}

TEST(CoordinatorMemoryJsonTest, RefusesChangesThatDoNotFit) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  CoordinatorMemory memory;
  memory.membership.table.ended = {WorkerId(1), WorkerId(2)};
  memory.desks[WorkerId(1)].connection.device = "cpu";
  const std::string whole = CoordinatorMemoryToJson(memory, now);
  const auto read = [&](const std::string& changes) {
    const std::string record =
        absl::StrCat(R"({"version":2,"since_whole":0,"changes":)", changes, "}");
    return CoordinatorMemoryFromRecords({whole, record}, now);
  };
  const auto changed = read(R"({"desks":{"changed":[[1,{"device":"cuda"}]]},
                                "membership":{"ended":{"from":1,"keep":1,"new":[3],"end":0}}})");
  ASSERT_OK(changed);
  EXPECT_EQ((*changed)->desks.at(WorkerId(1)).connection.device, "cuda");
  EXPECT_THAT((*changed)->membership.table.ended, ElementsAre(WorkerId(2), WorkerId(3)));
  const struct {
    const char* changes;
    const char* field;
  } kRefused[] = {
      {"[]", "changes"},
      {R"({"desks":[]})", "changes.desks"},
      {R"({"desks":{"changed":[[2,{}]]}})", "changes.desks"},
      {R"({"desks":{"changed":[[1]]}})", "changes.desks"},
      {R"({"desks":{"gone":[-1]}})", "changes.desks.gone"},
      {R"({"desks":{"changed":[[1,{"device":7}]]}})", "changes.desks.device"},
      {R"({"membership":{"ended":{"from":3}}})", "changes.membership.ended"},
      {R"({"membership":{"ended":{"from":1,"keep":2}}})", "changes.membership.ended"},
      {R"({"membership":{"ended":{"end":18446744073709551615}}})", "changes.membership.ended"},
      {R"({"stop_reason":{"a":1}})", "changes.stop_reason"},
  };
  for (const auto& [changes, field] : kRefused) {
    EXPECT_THAT(read(changes), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(field))) << changes;
  }
  const std::string alone = R"({"version":2,"since_whole":0,"changes":{}})";
  EXPECT_THAT(CoordinatorMemoryFromRecords({alone}, now), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(
      CoordinatorMemoryFromRecords({CoordinatorMemoryToJson(std::nullopt, now), alone}, now),
      StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(CoordinatorMemoryFromRecords({}, now), StatusIs(absl::StatusCode::kDataLoss));
}

// Ended lives of workers are written only in whole records, so that records of changes stay short.
TEST(CoordinatorMemoryJsonTest, AChangeIsAsLongAsWhatHasChanged) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  CoordinatorMemory memory;
  for (int id = 1; id <= 5000; ++id) {
    membership::WorkerRecord worker;
    worker.id = WorkerId(id);
    worker.name = absl::StrCat("worker-", id);
    memory.membership.table.workers.push_back(worker);
    memory.membership.table.ended.push_back(WorkerId(id));
    memory.desks[WorkerId(id)].connection.device = "cpu";
  }
  MemoryRecords records;
  const MemoryRecords::Record whole = records.Next(memory, now, 1, /*must_be_whole=*/true);
  EXPECT_GT(whole.text.size(), 1'000'000);
  memory.faults.finite_reports = 9;
  memory.desks[WorkerId(77)].assignment.progress = 1;
  memory.membership.table.workers.erase(memory.membership.table.workers.begin());
  memory.membership.table.ended.erase(memory.membership.table.ended.begin());
  memory.membership.table.ended.push_back(WorkerId(5001));
  const absl::Time later = now + absl::Seconds(1);
  const MemoryRecords::Record change = records.Next(memory, later, 1, /*must_be_whole=*/false);
  EXPECT_FALSE(change.is_whole);
  EXPECT_LT(change.text.size(), 400) << change.text;
  const auto read = CoordinatorMemoryFromRecords({whole.text, change.text}, later);
  ASSERT_OK(read);
  EXPECT_EQ(CoordinatorMemoryToJson(*read, later), CoordinatorMemoryToJson(memory, later));
}

TEST(CoordinatorMemoryJsonTest, WhatALayoutMarksIsKept) {
  params::TensorSpec weight;
  weight.name = "weight";
  weight.decay = true;
  params::TensorSpec mean;
  mean.name = "mean";
  mean.block = 1;
  mean.averaged = true;
  weight.embedding = true;
  CoordinatorMemory memory;
  memory.model.layout = *params::Layout::FromTensors({weight, mean});
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  const auto back = CoordinatorMemoryFromRecords({CoordinatorMemoryToJson(memory, now)}, now);
  ASSERT_OK(back);
  ASSERT_TRUE(back->has_value());
  EXPECT_EQ((*back)->model.layout->hash(), memory.model.layout->hash());
  EXPECT_TRUE((*back)->model.layout->tensors()[0].embedding);
  EXPECT_FALSE((*back)->model.layout->tensors()[1].embedding);
}

TEST(CoordinatorMemoryJsonTest, NoneIsNone) {
  const auto none = CoordinatorMemoryFromRecords(
      {CoordinatorMemoryToJson(std::nullopt, absl::UnixEpoch())}, absl::UnixEpoch());
  ASSERT_OK(none);
  EXPECT_FALSE(none->has_value());
}

}  // namespace
}  // namespace lodestar::coordinator
