// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/coordinator_strand.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/runtime/executor.h"
#include "common/testing/queue_executor.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/cluster_words.h"
#include "server/coordinator/coordinator_memory_json.h"
#include "server/host/coordinator_journal.h"
#include "server/rpc/checkpoint_calls.h"

namespace lodestar::rpc {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr absl::Duration kTick = absl::Milliseconds(100);

// Fixture with a coordinator, a server of shard 1 and a worker. The lease is 2 s. Freeze() stands
// for a time in which the process does not run.
class CoordinatorStrandTest : public testing::Test {
 protected:
  CoordinatorStrandTest() : strand_(&clock_, /*tick=*/absl::InfiniteDuration()) {
    coordinator::CoordinatorConfig config;
    config.job.model = *params::ModelPreset("mlp");
    config.job.global_batch_size = 6;
    config.lease = absl::Seconds(2);
    config.num_shards = 2;
    strand_.Start(*coordinator::Coordinator::Create(config, clock_.Now()),
                  [this](coordinator::Effect effect, const shards::CoordinatorRecord&) {
                    if (const auto* told = std::get_if<coordinator::Announcement>(&effect))
                      Note(*told);
                  });
    strand_.Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
      EXPECT_OK(coordinator.OnShardAttached(0, 2, 70, 0, "host:0", now));
      EXPECT_OK(coordinator.OnShardAttached(1, 2, 71, 0, "host:1", now));
      coordinator.OnRestoreChosen(
          coordinator::RestoreChoice{.source = shards::InitialSource{}, .server_incarnation = 9},
          now);
      coordinator.OnShardEvent(0, shards::ShardLoaded{9, absl::OkStatus()}, now);
      coordinator.OnShardEvent(1, shards::ShardLoaded{9, absl::OkStatus()}, now);
      messages::RegisterCall call;
      call.name = "a";
      call.instance_id = 1;
      const auto registered = coordinator.Register(call, now);
      ASSERT_OK(registered);
      life_ = registered->life;
    });
  }
  ~CoordinatorStrandTest() override { strand_.Stop(); }

  void Note(const coordinator::Announcement& told) {
    if (const auto* event = std::get_if<coordinator::Event>(&told)) events_.push_back(event->text);
  }
  // Lets the process run for `duration`.
  void Run(absl::Duration duration) {
    for (absl::Duration passed; passed < duration; passed += kTick) {
      clock_.AdvanceTime(kTick);
      strand_.Tick();
    }
  }
  void Freeze(absl::Duration duration) { clock_.AdvanceTime(duration); }
  coordinator::ClusterSnapshot Snapshot() {
    return strand_.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
      return coordinator.Snapshot(now);
    });
  }
  std::string WorkerState() { return Snapshot().workers.at(0).state; }
  absl::Status Beat() {
    return strand_
        .Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
          return coordinator.Heartbeat({life_, 0, 0, "wait"}, now);
        })
        .status();
  }

  SimulatedClock clock_;
  std::vector<std::string> events_;
  CoordinatorStrand strand_;
  messages::WorkerLife life_;
};

TEST_F(CoordinatorStrandTest, NobodyIsSilentBecauseThisProcessDidNotRun) {
  Run(absl::Seconds(1));
  Freeze(absl::Minutes(1));
  // After the pause, either a tick or a call of a worker may come first, with the same result. Here
  // it is a tick.
  strand_.Tick();
  EXPECT_EQ(WorkerState(), "registered");
  EXPECT_EQ(Snapshot().shards.at(1).state, "serving");
  EXPECT_THAT(events_, Contains(HasSubstr("this process did not run for 1m")));
  Run(absl::Milliseconds(900));
  EXPECT_OK(Beat());
  Freeze(absl::Minutes(1));
  EXPECT_OK(Beat());
  strand_.Tick();
  EXPECT_EQ(WorkerState(), "registered");
}

TEST_F(CoordinatorStrandTest, OneThatIsGoneIsFoundALeaseOfRunningTimeLater) {
  Run(absl::Seconds(1));
  Freeze(absl::Minutes(1));
  strand_.Tick();
  Run(absl::Seconds(1));
  EXPECT_EQ(WorkerState(), "registered");
  Run(absl::Milliseconds(100));
  EXPECT_EQ(WorkerState(), "expired");
  EXPECT_THAT(events_, Contains(HasSubstr("no heartbeat for 2.1s, and the lease is 2s")));
  Run(absl::Seconds(3));
  EXPECT_EQ(Snapshot().shards.at(1).state, "away");
}

TEST_F(CoordinatorStrandTest, ABusyProcessThatLooksLateCountsAllTime) {
  for (int i = 0; i < 6; ++i) {
    Freeze(RunningTime::kLongestPause);
    strand_.Tick();
  }
  EXPECT_EQ(WorkerState(), "expired");
  EXPECT_THAT(events_, Not(Contains(HasSubstr("did not run"))));
}

// Server 0 is being stopped, and asks for a last save. Meanwhile a new process replaces the server
// of shard 1, so all servers go back to a checkpoint. The last save must still be answered.
TEST_F(CoordinatorStrandTest, ALastSaveOutlivesARestore) {
  absl::StatusOr<checkpoints::PublishedCheckpoint> saved = absl::UnknownError("not answered");
  strand_.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnShardDisconnected(1, 71, now);
  });
  TakeLastCheckpoint(
      strand_, /*asker=*/0, "test", absl::Minutes(1),
      [&](const absl::StatusOr<checkpoints::PublishedCheckpoint>& answer) { saved = answer; });
  EXPECT_THAT(saved, StatusIs(absl::StatusCode::kUnknown)) << "it may come back";
  strand_.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
    EXPECT_OK(coordinator.OnShardAttached(1, 2, 72, 0, "host:1", now));
    coordinator.OnRestoreChosen(
        coordinator::RestoreChoice{.source = shards::InitialSource{}, .server_incarnation = 10},
        now);
    coordinator.OnShardEvent(0, shards::ShardLoaded{10, absl::OkStatus()}, now);
    coordinator.OnShardEvent(1, shards::ShardLoaded{10, absl::OkStatus()}, now);
  });
  EXPECT_THAT(saved, Not(StatusIs(absl::StatusCode::kUnknown))) << "not after a minute";
}

// The first process of server 1 has asked for a last save and was stopped. A second process goes on
// with the state of the first. The request of the first process must not stop the job any more.
TEST_F(CoordinatorStrandTest, AServerThatIsBackIsNotHeldUpByTheStopOfTheProcessBefore) {
  strand_.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnShardDisconnected(1, 71, now);
  });
  TakeLastCheckpoint(strand_, /*asker=*/71, coordinator::ReasonOfStop(1), absl::Minutes(1),
                     [](const absl::StatusOr<checkpoints::PublishedCheckpoint>&) {});
  const auto is_held = [this] {
    return strand_.Run([](coordinator::Coordinator& coordinator, absl::Time) {
      return coordinator.has_begun_last_save();
    });
  };
  EXPECT_TRUE(is_held());
  strand_.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
    EXPECT_OK(coordinator.OnShardAttached(1, 2, 71, coordinator.server_incarnation(), "host:1", now,
                                          {.first_segment = 2}));
  });
  Run(absl::Seconds(1));
  EXPECT_FALSE(is_held());
}

TEST_F(CoordinatorStrandTest, AServerThatAsksAgainForItsLastSaveLeavesNoCallBehind) {
  strand_.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnShardDisconnected(1, 71, now);
  });
  std::vector<absl::Status> answers;
  for (int i = 0; i < 3; ++i) {
    TakeLastCheckpoint(strand_, /*asker=*/70, "test", absl::Minutes(1),
                       [&](const auto& answer) { answers.push_back(answer.status()); });
  }
  EXPECT_THAT(answers, ElementsAre(StatusIs(absl::StatusCode::kUnavailable, HasSubstr("newer")),
                                   StatusIs(absl::StatusCode::kUnavailable, HasSubstr("newer"))));
  strand_.Stop();  // answers the last call
}

// Fixture with a coordinator that writes its state to a disk. The test decides when each write
// ends.
class KeepingStrandTest : public testing::Test {
 protected:
  KeepingStrandTest() : strand_(&clock_, /*tick=*/absl::InfiniteDuration()) {
    EXPECT_OK(disk_.CreateDirectories("/journal"));
    journal_ = *host::CoordinatorJournal::Create(
        {"/journal", {}}, {.file_system = &disk_, .clock = &clock_, .executor = &executor_});
    config_.job.model = *params::ModelPreset("mlp");
    config_.job.global_batch_size = 6;
    config_.job.schedule.total_rounds = 10;
    config_.checkpoint_dir = "/run";
    strand_.Start(
        *coordinator::Coordinator::Create(config_, clock_.Now()),
        [this](coordinator::Effect effect, const shards::CoordinatorRecord&) {
          if (std::holds_alternative<shards::ShardCommand>(effect)) left_.push_back("command");
          const auto* task = std::get_if<coordinator::CheckpointTask>(&effect);
          if (task != nullptr && std::holds_alternative<coordinator::SetAsideTask>(*task)) {
            left_.push_back("set aside");
          }
          if (const auto* told = std::get_if<coordinator::Announcement>(&effect)) {
            if (const auto* alarm = std::get_if<coordinator::Alarm>(told))
              left_.push_back(alarm->text);
          }
        },
        journal_.get());
    strand_.Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
      EXPECT_OK(coordinator.OnShardAttached(0, 1, 70, 0, "host:0", now));
      coordinator.OnRestoreChosen(BackTo(5, /*server_incarnation=*/9), now);
      coordinator.OnShardEvent(0, shards::ShardLoaded{9, absl::OkStatus()}, now);
    });
    executor_.RunAll();
    left_.clear();
  }
  ~KeepingStrandTest() override { strand_.Stop(); }

  // Registers a worker. The answer, which is the name or the error, is recorded when it is sent.
  void Register(const std::string& name) {
    strand_.RunAndTell(
        [&](coordinator::Coordinator& coordinator, absl::Time now) {
          messages::RegisterCall call;
          call.name = name;
          call.instance_id = std::hash<std::string>()(name);
          return coordinator.Register(call, now);
        },
        [this, name](const absl::StatusOr<messages::Registration>& answer) {
          left_.push_back(answer.ok() ? name : std::string(answer.status().message()));
        });
  }
  static coordinator::RestoreChoice BackTo(int64_t round, uint64_t server_incarnation) {
    const std::string path = absl::StrFormat("/run/round-%08d", round);
    coordinator::RestoreChoice choice = {.source = shards::CheckpointSource{path},
                                         .state = checkpoints::CoordinatorState(),
                                         .server_incarnation = server_incarnation,
                                         .resumed = model::ResumeSnapshot{path, Round(round), {}}};
    choice.state->ledger.next_round = round;
    return choice;
  }
  // Pauses the job. The answer is "paused", or the error.
  void Pause(CoordinatorStrand::Unwritable unwritable = CoordinatorStrand::Unwritable::kRefuse) {
    strand_.RunOrder([](coordinator::Coordinator& coordinator,
                        absl::Time now) { return coordinator.Pause("test", now); },
                     [this](const absl::Status& answer) {
                       left_.push_back(answer.ok() ? "paused" : std::string(answer.message()));
                     },
                     unwritable);
  }
  bool IsPaused() {
    return strand_.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
      return coordinator.Snapshot(now).state == "paused";
    });
  }
  absl::Status Beat(const messages::WorkerLife& life) {
    const auto status = std::make_shared<absl::Status>(absl::UnknownError("not answered"));
    strand_.RunAndTell(
        [&](coordinator::Coordinator& coordinator, absl::Time now) {
          return coordinator.Heartbeat({life, 0, 0, "wait"}, now);
        },
        [status](const absl::StatusOr<messages::HeartbeatAnswer>& answer) {
          *status = answer.status();
        });
    return *status;
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    const auto contents = host::CoordinatorJournal::Read(disk_, "/journal");
    EXPECT_OK(contents);
    const auto memory = coordinator::CoordinatorMemoryFromRecords(contents->records, clock_.Now());
    EXPECT_OK(memory);
    if (!memory.ok() || !memory->has_value()) return {"no memory"};
    for (const membership::WorkerRecord& worker : (*memory)->membership.table.workers)
      names.push_back(worker.name);
    return names;
  }

  SimulatedClock clock_;
  SimulatedFileSystem disk_;
  QueueExecutor executor_;
  coordinator::CoordinatorConfig config_;
  std::vector<std::string> left_;
  std::unique_ptr<host::CoordinatorJournal> journal_;
  CoordinatorStrand strand_;
};

TEST_F(KeepingStrandTest, NothingLeavesBeforeItIsKept) {
  Register("a");
  Register("b");
  EXPECT_THAT(left_, IsEmpty());
  EXPECT_TRUE(strand_.awaits_journal());
  executor_.RunNext();  // writes a's record
  EXPECT_THAT(Names(), ElementsAre("a"));
  EXPECT_THAT(left_, ElementsAre("a"));
  executor_.RunAll();
  EXPECT_THAT(Names(), ElementsAre("a", "b"));
  EXPECT_THAT(left_, ElementsAre("a", "b"));
  EXPECT_FALSE(strand_.awaits_journal());
}

TEST_F(KeepingStrandTest, AnswersThatTellNothingNewWaitOnlyForWhatIsBeingKept) {
  messages::WorkerLife life;
  strand_.Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
    messages::RegisterCall call;
    call.name = "a";
    call.instance_id = 1;
    life = coordinator.Register(call, now)->life;
  });
  executor_.RunAll();
  EXPECT_OK(Beat(life));
  EXPECT_EQ(executor_.size(), 0) << "a lease is nothing to be kept";
  Register("b");
  EXPECT_THAT(Beat(life), StatusIs(absl::StatusCode::kUnknown));
  EXPECT_EQ(executor_.size(), 1);
  executor_.RunAll();
}

TEST_F(KeepingStrandTest, CommandsLeaveInOrderAndBeforeAnswersThatFollowFromThem) {
  strand_.RunAndTell(
      [](coordinator::Coordinator& coordinator, absl::Time now) {
        messages::RegisterCall call;
        call.name = "a";
        call.instance_id = 1;
        const messages::WorkerLife life = coordinator.Register(call, now)->life;
        return coordinator.Join(life, coordinator.map()->layout.hash(), {}, now).status();
      },
      [this](const absl::Status& joined) {
        left_.push_back(joined.ok() ? "joined" : "not joined");
      });
  Register("b");
  executor_.RunAll();
  EXPECT_THAT(left_, ElementsAre("command", "joined", "b"));
}

TEST_F(KeepingStrandTest, ARollbackIsAnsweredWithWhatWasRestored) {
  uint64_t life = 9;
  const auto roll_back = [&](int64_t round, const coordinator::RestoreChoice& choice) {
    absl::StatusOr<RolledBack> answer = absl::UnknownError("not answered");
    RollBack(strand_, Round(round), "test", absl::Minutes(1),
             [&answer](const absl::StatusOr<RolledBack>& back) { answer = back; });
    strand_.Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
      coordinator.OnRestoreChosen(choice, now);
      coordinator.OnShardEvent(0, shards::ShardLoaded{life, absl::OkStatus()}, now);
    });
    executor_.RunAll();
    return answer;
  };
  EXPECT_THAT(roll_back(3, BackTo(4, ++life)),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("continues from /run/round-00000004, of round 4"),
                             HasSubstr("the order was for at most round 3"))));
  ASSERT_OK_AND_ASSIGN(const RolledBack back, roll_back(3, BackTo(2, ++life)));
  EXPECT_EQ(back.path, "/run/round-00000002");
  EXPECT_EQ(back.round, Round(2));
  EXPECT_EQ(back.rounds_undone, 2);
  const coordinator::RestoreChoice anew = {.source = shards::InitialSource{},
                                           .server_incarnation = ++life};
  EXPECT_THAT(roll_back(2, anew),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("it has done 2 rounds, so there is nothing to undo for round 2")));
  EXPECT_THAT(roll_back(1, anew),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("has begun again at round 0")));
}

TEST_F(KeepingStrandTest, ARollbackIsAnsweredOnceNoRestartUndoesIt) {
  const auto roll_back = [this](int64_t round) {
    RollBack(strand_, Round(round), "test", absl::Minutes(1),
             [this](const absl::StatusOr<RolledBack>& answer) {
               left_.push_back(answer.ok() ? answer->path : std::string(answer.status().message()));
             });
  };
  roll_back(4);
  executor_.RunAll();
  EXPECT_THAT(Names(), ElementsAre("no memory"));
  EXPECT_THAT(left_, ElementsAre("set aside")) << "that may fail";
  roll_back(4);
  EXPECT_THAT(left_.back(), HasSubstr("cannot go back now"));
  strand_.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnRestoreChosen(BackTo(4, /*server_incarnation=*/10), now);
  });
  executor_.RunAll();
  EXPECT_EQ(left_.back(), "/run/round-00000004");
  strand_.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnShardEvent(0, shards::ShardLoaded{10, absl::OkStatus()}, now);
  });
  executor_.RunAll();
  roll_back(3);
  strand_.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnRestoreChosen(absl::DataLossError("it cannot be set aside"), now);
  });
  executor_.RunAll();
  EXPECT_THAT(left_.back(), HasSubstr("the job has failed: it cannot be set aside"));
}

TEST_F(KeepingStrandTest, WhileTheDiskRefusesOnlyAlarmsLeave) {
  disk_.SetFaultHook([](FileOperation, const std::string&) {
    return absl::ResourceExhaustedError("the disk is full");
  });
  Register("a");
  executor_.RunAll();
  strand_.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.RaiseAlarm("the disk is full", now);
  });
  strand_.Tick();
  executor_.RunAll();
  EXPECT_THAT(left_, ElementsAre("the disk is full"));
  EXPECT_THAT(journal_->trouble(), StatusIs(absl::StatusCode::kResourceExhausted));
  disk_.SetFaultHook(nullptr);
  for (int i = 0; i < 3; ++i) {
    clock_.AdvanceTime(absl::Milliseconds(400));
    strand_.Tick();
    executor_.RunAll();
  }
  EXPECT_THAT(left_, ElementsAre("the disk is full", "a"));
}

TEST_F(KeepingStrandTest, NothingIsOrderedWhileTheDiskRefusesWhichIsToldAtOnce) {
  disk_.SetFaultHook([](FileOperation, const std::string& path) {
    return absl::ResourceExhaustedError(path + ": the disk is full");
  });
  Register("a");
  executor_.RunAll();
  Pause();
  EXPECT_THAT(left_, ElementsAre(AllOf(StartsWith("the order was not accepted"),
                                       HasSubstr("/journal cannot be written: /journal/"),
                                       HasSubstr("the disk is full. Make room"))));
  EXPECT_FALSE(IsPaused());
  // With kTake, an order has an effect even if the journal cannot be written. The end of the job is
  // such an order.
  Pause(CoordinatorStrand::Unwritable::kTake);
  EXPECT_TRUE(IsPaused());
  disk_.SetFaultHook(nullptr);
  strand_.TryJournalAgain();
  executor_.RunAll();
  EXPECT_THAT(left_, ElementsAre(_, "a", "command", "paused"));
}

TEST_F(KeepingStrandTest, AnOrderThatIsNotKeptSoonIsToldAsTakenAndNotKept) {
  Pause();
  clock_.AdvanceTime(CoordinatorStrand::kOrderPatience - absl::Milliseconds(1));
  strand_.Tick();
  EXPECT_THAT(left_, IsEmpty());
  clock_.AdvanceTime(absl::Milliseconds(1));
  strand_.Tick();
  EXPECT_THAT(left_, ElementsAre(AllOf(StartsWith("the order is accepted, but not on disk yet"),
                                       HasSubstr("/journal cannot be written"))));
  EXPECT_TRUE(IsPaused());
  strand_.Tick();
  executor_.RunAll();
  EXPECT_THAT(left_, ElementsAre(_, "command")) << "it was told once";
}

TEST_F(KeepingStrandTest, AnOrderThatWasRefusedIsNotToldAsTaken) {
  Register("a");  // the disk does not answer
  strand_.RunOrder(
      [](coordinator::Coordinator& coordinator, absl::Time now) { return coordinator.Resume(now); },
      [this](const absl::Status& answer) { left_.push_back(std::string(answer.message())); });
  clock_.AdvanceTime(CoordinatorStrand::kOrderPatience);
  strand_.Tick();
  EXPECT_THAT(left_, ElementsAre("the job is not paused"));
  executor_.RunAll();
}

TEST_F(KeepingStrandTest, ARollbackThatIsNotKeptSoonIsToldAsTakenAndNotKept) {
  RollBack(strand_, Round(4), "test", absl::Hours(1),
           [this](const absl::StatusOr<RolledBack>& back) {
             left_.push_back(std::string(back.status().message()));
           });
  clock_.AdvanceTime(CoordinatorStrand::kOrderPatience);
  strand_.Tick();
  EXPECT_THAT(left_, ElementsAre(StartsWith("the order is accepted, but not on disk yet")));
  executor_.RunAll();
  EXPECT_THAT(left_, ElementsAre(_, "set aside")) << "it was told once";
}

TEST_F(KeepingStrandTest, AJournalIsTriedAgainAtOnceWhenItIsKnownToWork) {
  disk_.SetFaultHook([](FileOperation, const std::string&) {
    return absl::UnavailableError("the replica is lost");
  });
  Register("a");
  executor_.RunAll();
  disk_.SetFaultHook(nullptr);
  executor_.RunAll();
  EXPECT_THAT(left_, IsEmpty());
  strand_.TryJournalAgain();
  executor_.RunAll();
  EXPECT_THAT(left_, ElementsAre("a"));
}

TEST_F(KeepingStrandTest, WhoeverWaitsForTheJournalWhenTheProcessStopsIsToldSo) {
  Register("a");
  strand_.Stop();
  EXPECT_THAT(left_, ElementsAre(HasSubstr("the server is stopping")));
  executor_.RunAll();
  EXPECT_EQ(left_.size(), 1);
}

// A report names the waiting calls that are tried again. No other call is tried.
TEST_F(CoordinatorStrandTest, AReportToSomebodyAsksNobodyElse) {
  std::vector<int> asked(3);
  bool may_answer = false;
  int num_answered = 0;
  for (const int key : {1, 2}) {
    strand_.Await(key, absl::Seconds(10),
                  [&, key](coordinator::Coordinator&, absl::Time,
                           CoordinatorStrand::Occasion) -> CoordinatorStrand::Delivery {
                    ++asked[key];
                    if (!may_answer) return nullptr;
                    return [&](const absl::Status&) { ++num_answered; };
                  });
  }
  const std::vector<int> before = asked;
  strand_.ReportTo([](coordinator::Coordinator&, absl::Time) {
    return std::vector<uint64_t>{2, 3};
  });
  EXPECT_EQ(asked, (std::vector{0, before[1], before[2] + 1})) << "has no answer, and waits on";
  may_answer = true;
  strand_.ReportTo([](coordinator::Coordinator&, absl::Time) { return std::vector<uint64_t>{2}; });
  strand_.ReportTo([](coordinator::Coordinator&, absl::Time) { return std::vector<uint64_t>{2}; });
  EXPECT_EQ(asked, (std::vector{0, before[1], before[2] + 2}));
  EXPECT_EQ(num_answered, 1);
  strand_.ReportTo([](coordinator::Coordinator&, absl::Time) { return std::vector<uint64_t>{1}; });
  EXPECT_EQ(num_answered, 2);
}

TEST_F(CoordinatorStrandTest, AHeldCallIsAnsweredWhenItsCallersPatienceIsOver) {
  Run(absl::Seconds(1));
  std::vector<CoordinatorStrand::Occasion> occasions;
  strand_.Await(0, absl::Seconds(10),
                [&](coordinator::Coordinator&, absl::Time,
                    CoordinatorStrand::Occasion occasion) -> CoordinatorStrand::Delivery {
                  occasions.push_back(occasion);
                  if (occasion == CoordinatorStrand::Occasion::kChange) return nullptr;
                  return [](const absl::Status&) {};
                });
  Freeze(absl::Seconds(10));
  strand_.Tick();
  EXPECT_THAT(occasions, Contains(CoordinatorStrand::Occasion::kPatienceOver));
}

}  // namespace
}  // namespace lodestar::rpc
