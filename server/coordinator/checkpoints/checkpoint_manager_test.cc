// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/checkpoints/checkpoint_manager.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lodestar::checkpoints {
namespace {

using Place = LastSave::Place;
using Kind = LastSaveVerdict::Kind;

const absl::Status kFull = absl::ResourceExhaustedError("disk full");
constexpr int64_t kGigabyte = 1'000'000'000;

PublishedCheckpoint At(const std::string& path) {
  PublishedCheckpoint checkpoint;
  checkpoint.path = path;
  return checkpoint;
}

// Fixture with a job that has done two rounds and hands out work. The only server writes a
// checkpoint every five rounds.
class CheckpointManagerTest : public testing::Test {
 protected:
  CheckpointManagerTest() {
    config_.folder = "ckpt";
    config_.fallback_folder = "spare";
    config_.schedule.every_rounds = 5;
    facts_.ledger.next_round = 2;
    facts_.journal_id = 9;
    facts_.saves = facts_.is_training = facts_.hands_out_work = true;
    facts_.is_ready = facts_.all_serving = true;
    Make();
  }

  // Replaces the manager with a new one that has `config_`.
  void Make() {
    manager_.emplace(config_);
    manager_->StartSchedule(Round(0), now_);
  }
  std::string Begin(const CheckpointTry& begun) {
    CoordinatorState state;
    state.server_incarnation = 7;
    state.orders = facts_.orders;
    return manager_->Begin(begun, state, now_);
  }
  std::string Begin() { return Begin({.ledger = facts_.ledger}); }
  // Reports that the server has written its part. Returns the record to publish.
  CheckpointRecord Save(const std::string& directory) {
    const auto record = manager_->OnSaved(0, directory, "part", facts_);
    EXPECT_TRUE(record.has_value() && record->ok());
    return **record;
  }
  PublishedVerdict Publish(const std::string& directory, uint64_t bytes = 1) {
    const CheckpointRecord record = Save(directory);
    return manager_->OnPublished(
        directory,
        PublishedCheckpoint{.path = record.final_directory, .round = record.round, .bytes = bytes},
        now_);
  }
  // Simulates a job that hands out no further work and has no open round.
  void HoldWork() { facts_.hands_out_work = false; }
  // Simulates a job that hands out no further work while round 2 is open. The process may be killed
  // before the round is completed.
  void HoldWorkInRound() {
    HoldWork();
    facts_.before_open_round = facts_.ledger;
    ++facts_.ledger.next_round;
    facts_.num_open = 1;
    facts_.opened_at = now_;
  }
  LastSaveVerdict AdvanceLast() { return manager_->AdvanceLast(facts_, now_); }
  const CheckpointTracker& tracker() const { return manager_->tracker(); }
  const std::optional<LastSave::Outcome>& outcome() const {
    return manager_->last_save().outcome();
  }

  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  CheckpointManager::Config config_;
  CheckpointFacts facts_;
  std::optional<CheckpointManager> manager_;
};

TEST_F(CheckpointManagerTest, IsDueByRoundByTimeAndIfAskedFor) {
  EXPECT_FALSE(manager_->IsDue(Round(4), 0, now_));
  EXPECT_TRUE(manager_->IsDue(Round(5), 0, now_));
  EXPECT_EQ(manager_->Request(now_), 1);
  EXPECT_TRUE(manager_->IsDue(Round(4), 0, now_));

  config_.schedule = {.interval = absl::Minutes(5)};
  Make();
  EXPECT_FALSE(manager_->IsDue(Round(3), 3, now_)) << "no round is complete";
  EXPECT_TRUE(manager_->IsDue(Round(3), 2, now_));
}

TEST_F(CheckpointManagerTest, IsDueByRoundAloneWhileOneIsWritten) {
  config_.schedule.interval = absl::Minutes(5);
  Make();
  Begin();
  manager_->Request(now_);
  EXPECT_FALSE(manager_->IsDue(Round(4), 0, now_));
  EXPECT_TRUE(manager_->IsDue(Round(5), 0, now_));
}

TEST_F(CheckpointManagerTest, DueCheckpointBeginsOnce) {
  facts_.ledger.next_round = 5;
  EXPECT_EQ(manager_->OnDue(facts_, now_), DueVerdict::kBegin);
  EXPECT_FALSE(manager_->IsDue(Round(5), 0, now_));
}

TEST_F(CheckpointManagerTest, DueCheckpointWithNothingNewCountsAsBegun) {
  facts_.ledger.next_round = 5;
  Publish(Begin());
  EXPECT_EQ(manager_->OnDue(facts_, now_), DueVerdict::kNothingNew);
  EXPECT_FALSE(manager_->IsDue(Round(5), 0, now_));
  facts_.orders.pause = "lunch";
  EXPECT_EQ(manager_->OnDue(facts_, now_), DueVerdict::kBegin);
}

TEST_F(CheckpointManagerTest, RequestWithNothingNewIsServedByTheNewest) {
  facts_.ledger.next_round = 5;
  Publish(Begin());
  const uint64_t ticket = manager_->Request(now_);
  EXPECT_EQ(manager_->OnDue(facts_, now_), DueVerdict::kServed);
  EXPECT_EQ(tracker().OutcomeOf(ticket)->value().path, "ckpt/round-00000005");
  EXPECT_TRUE(manager_->IsDue(Round(5), 0, now_)) << "that was no turn of the schedule";
  ++facts_.ledger.trained_samples;
  manager_->Request(now_);
  EXPECT_EQ(manager_->OnDue(facts_, now_), DueVerdict::kBegin);
}

TEST_F(CheckpointManagerTest, DueCheckpointIsLeftOutWhileOneIsWritten) {
  facts_.ledger.next_round = 5;
  Publish(Begin());
  Begin();
  const uint64_t ticket = manager_->Request(now_);
  EXPECT_EQ(manager_->OnDue(facts_, now_), DueVerdict::kLeftOut);
  EXPECT_FALSE(tracker().OutcomeOf(ticket).has_value());
  EXPECT_FALSE(manager_->IsDue(Round(5), 0, now_));
}

TEST_F(CheckpointManagerTest, CompleteRoundsAreSavedOnceForEachOpenRound) {
  HoldWorkInRound();
  facts_.ledger.learning_rate_scale = 0.5;
  facts_.ledger.scale_by_operators = 0.25;
  LedgerState complete = *facts_.before_open_round;
  complete.learning_rate_scale = 0.5;
  complete.scale_by_operators = 0.25;
  EXPECT_EQ(manager_->SaveCompleteRounds(facts_, now_),
            (CheckpointTry{.ledger = complete, .is_early = true}));
  EXPECT_EQ(manager_->SaveCompleteRounds(facts_, now_), std::nullopt);
  ++facts_.before_open_round->next_round;
  EXPECT_TRUE(manager_->SaveCompleteRounds(facts_, now_).has_value());
}

TEST_F(CheckpointManagerTest, CompleteRoundsAreTheWholeLedgerWhereNoneIsOpenForTraining) {
  HoldWorkInRound();
  facts_.uses_rosters = false;
  EXPECT_EQ(manager_->SaveCompleteRounds(facts_, now_)->ledger, facts_.ledger);
  Make();
  facts_.uses_rosters = true;
  facts_.is_training = false;
  EXPECT_EQ(manager_->SaveCompleteRounds(facts_, now_)->ledger, facts_.ledger);
}

TEST_F(CheckpointManagerTest, CompleteRoundsAreNotSavedIfTheyCannotBeOrNeedNotBe) {
  HoldWorkInRound();
  const CheckpointFacts usual = facts_;
  const std::vector<std::function<void()>> reasons = {
      [this] { facts_.saves = false; },
      [this] { facts_.awaits_weights = true; },
      [this] { facts_.all_serving = false; },
      [this] { facts_.is_shard_away = true; },
      [this] { facts_.before_open_round.reset(); },
      [this] { facts_.before_open_round->next_round = 0; },
  };
  for (size_t i = 0; i < reasons.size(); ++i) {
    facts_ = usual;
    reasons[i]();
    EXPECT_EQ(manager_->SaveCompleteRounds(facts_, now_), std::nullopt) << "reason " << i;
  }
  facts_ = usual;
  for (bool CheckpointManager::Config::*setting :
       {&CheckpointManager::Config::has_journal, &CheckpointManager::Config::is_site}) {
    config_.*setting = true;
    Make();
    EXPECT_EQ(manager_->SaveCompleteRounds(facts_, now_), std::nullopt);
    config_.*setting = false;
  }
  Make();
  Begin();
  EXPECT_EQ(manager_->SaveCompleteRounds(facts_, now_), std::nullopt) << "one is being written";
  Make();
  EXPECT_TRUE(manager_->SaveCompleteRounds(facts_, now_).has_value());
}

TEST_F(CheckpointManagerTest, CompleteRoundsOfTheNewestCheckpointAreNotSavedAgain) {
  Publish(Begin());
  HoldWorkInRound();
  EXPECT_EQ(manager_->SaveCompleteRounds(facts_, now_), std::nullopt);
}

TEST_F(CheckpointManagerTest, CompleteRoundsAreNotSavedIfTheOpenRoundComesSooner) {
  const std::string directory = Begin();
  now_ += absl::Seconds(3);
  Publish(directory);
  facts_.ledger.next_round = 7;
  HoldWorkInRound();
  facts_.usual_round = absl::Seconds(10);
  now_ += absl::Seconds(7);
  EXPECT_EQ(manager_->SaveCompleteRounds(facts_, now_), std::nullopt);
  facts_.opened_at += absl::Nanoseconds(1);
  EXPECT_TRUE(manager_->SaveCompleteRounds(facts_, now_).has_value()) << "writing is sooner";
  Make();
  facts_.opened_at = now_ - facts_.usual_round;
  EXPECT_TRUE(manager_->SaveCompleteRounds(facts_, now_).has_value()) << "it is late already";
}

TEST_F(CheckpointManagerTest, CheckpointHasTheLedgerOfItsTryInTheFolderOfItsTry) {
  EXPECT_EQ(Begin(), "ckpt/round-00000002.7-1.tmp");
  EXPECT_EQ(manager_->GiveUp(kFull), "ckpt/round-00000002.7-1.tmp");
  const std::string directory = Begin({.ledger = facts_.ledger, .place = Place::kFallback});
  EXPECT_EQ(directory, "spare/round-00000002.7-2.tmp");
  EXPECT_EQ(Save(directory).state.ledger, facts_.ledger);
}

TEST_F(CheckpointManagerTest, CheckpointIsCompleteIfNoWorkIsOutAndNothingHasChanged) {
  HoldWork();
  const CheckpointFacts usual = facts_;
  const std::vector<std::function<void()>> reasons = {
      [this] { facts_.hands_out_work = true; },
      [this] { facts_.num_open = 1; },
      [this] { ++facts_.ledger.trained_samples; },
      [this] { facts_.orders.pause = "lunch"; },
  };
  for (size_t i = 0; i < reasons.size(); ++i) {
    const std::string directory = Begin();
    reasons[i]();
    EXPECT_FALSE(Save(directory).journal.is_complete) << "reason " << i;
    manager_->OnPublished(directory, At("ckpt/a"), now_);
    EXPECT_EQ(manager_->complete(), "");
    facts_ = usual;
  }
  const std::string directory = Begin();
  EXPECT_TRUE(Save(directory).journal.is_complete);
  EXPECT_EQ(manager_->complete(), "");
  manager_->OnPublished(directory, At("ckpt/b"), now_);
  EXPECT_EQ(manager_->complete(), "ckpt/b");
}

TEST_F(CheckpointManagerTest, PublishedCheckpointIsTheNewestAndSaysHowLongItTook) {
  const std::string directory = Begin({.ledger = facts_.ledger, .place = Place::kFallback});
  now_ += absl::Seconds(2);
  EXPECT_EQ(Publish(directory), (PublishedVerdict{.kind = PublishedVerdict::Kind::kPublished,
                                                  .write_time = absl::Seconds(2)}));
  EXPECT_EQ(tracker().last()->path, "spare/round-00000002");
  EXPECT_TRUE(tracker().last()->is_in_fallback);
  EXPECT_EQ(manager_->memory().schedule.write_time, absl::Seconds(2));
}

TEST_F(CheckpointManagerTest, PublishedCheckpointThatTookLongStretchesThePause) {
  config_.schedule = {.interval = absl::Seconds(20), .max_cost = 0.1};
  Make();
  manager_->OnDue(facts_, now_);
  const std::string directory = Begin();
  now_ += absl::Seconds(3);
  EXPECT_EQ(Publish(directory).next_in, absl::Seconds(30));
}

class SlowWriteTest : public CheckpointManagerTest {
 protected:
  SlowWriteTest() {
    config_.schedule = {.interval = absl::Minutes(1), .max_cost = 0.01};
    config_.stop_write_time = absl::Seconds(2);
    Make();
  }
  PublishedVerdict Write(absl::Duration time) {
    ++facts_.ledger.next_round;
    manager_->OnDue(facts_, now_);
    const std::string directory = Begin();
    now_ += time;
    return Publish(directory);
  }
};

TEST_F(SlowWriteTest, WriteThatOutlastsAStopIsToldUntilOneIsFast) {
  EXPECT_EQ(Write(absl::Seconds(2)).outlasts_stop, std::nullopt);
  EXPECT_EQ(Write(absl::Seconds(20)).outlasts_stop, std::nullopt) << "the disk hung once";
  EXPECT_EQ(Write(absl::Seconds(19)).outlasts_stop, absl::Seconds(16));
  EXPECT_EQ(Write(absl::Seconds(25)).outlasts_stop, absl::Seconds(16));
  EXPECT_EQ(Write(absl::Seconds(3)).outlasts_stop, absl::Seconds(2));
  EXPECT_EQ(Write(absl::Seconds(1)).outlasts_stop, std::nullopt);
}

TEST_F(SlowWriteTest, CheckpointsFarApartAreToldUntilTheyAreNot) {
  EXPECT_EQ(Write(absl::Milliseconds(2400)).far_apart, std::nullopt);
  EXPECT_EQ(Write(absl::Milliseconds(2500)).far_apart, std::nullopt);
  EXPECT_EQ(Write(absl::Milliseconds(2500)).far_apart, absl::Minutes(4));
  EXPECT_EQ(Write(absl::Seconds(9)).far_apart, absl::Minutes(4));
  EXPECT_EQ(Write(absl::Seconds(9)).far_apart, absl::Minutes(8));
  EXPECT_EQ(Write(absl::Seconds(1)).far_apart, std::nullopt);
}

TEST_F(SlowWriteTest, PauseOfAMinuteIsNotFarApart) {
  config_.schedule.interval = absl::Seconds(10);
  Make();
  EXPECT_EQ(Write(absl::Milliseconds(600)).far_apart, std::nullopt);
  EXPECT_EQ(Write(absl::Milliseconds(610)).far_apart, std::nullopt);
  EXPECT_EQ(Write(absl::Milliseconds(610)).far_apart, absl::Seconds(40));
}

TEST_F(SlowWriteTest, NothingIsToldIfAKilledServerLosesNothing) {
  for (bool CheckpointManager::Config::*setting :
       {&CheckpointManager::Config::has_journal, &CheckpointManager::Config::is_site}) {
    config_.*setting = true;
    Make();
    const PublishedVerdict verdict = Write(absl::Minutes(1));
    EXPECT_TRUE(verdict.next_in.has_value());
    EXPECT_EQ(verdict.outlasts_stop, std::nullopt);
    EXPECT_EQ(verdict.far_apart, std::nullopt);
    config_.*setting = false;
  }
}

TEST_F(CheckpointManagerTest, AnswerOfAnotherTryChangesNothing) {
  const std::string directory = Begin();
  EXPECT_EQ(manager_->OnPublished("ckpt/other.tmp", PublishedCheckpoint{}, now_),
            PublishedVerdict{});
  EXPECT_EQ(tracker().active_directory(), directory);
  EXPECT_FALSE(tracker().last().has_value());
}

TEST_F(CheckpointManagerTest, CheckpointThatCannotBePublishedHasFailed) {
  Publish(Begin());
  ++facts_.ledger.next_round;
  const std::string directory = Begin();
  Save(directory);
  EXPECT_EQ(manager_->OnPublished(directory, kFull, now_).kind, PublishedVerdict::Kind::kFailed);
  EXPECT_FALSE(tracker().is_active());
  EXPECT_EQ(tracker().last()->round, Round(2));
}

class JournalSuggestionTest : public CheckpointManagerTest {
 protected:
  // Writes checkpoints that are due by time. Each has 100 bytes and takes a second.
  void Write(int num_checkpoints = 2) {
    config_.schedule = {.interval = absl::Minutes(5), .max_cost = 1.0};
    Make();
    for (int i = 0; i < num_checkpoints; ++i) {
      ++facts_.ledger.next_round;
      manager_->OnDue(facts_, now_);
      const std::string directory = Begin();
      now_ += absl::Seconds(1);
      Publish(directory, /*bytes=*/100);
    }
  }
};

TEST_F(JournalSuggestionTest, JournalIsSuggestedIfItTakesASmallShareOfARound) {
  Write();
  EXPECT_EQ(manager_->JournalToSuggest(10, absl::Seconds(100)), absl::Seconds(1))
      << "it is no faster than the checkpoint";
  EXPECT_EQ(manager_->JournalToSuggest(300, absl::Seconds(300)), absl::Seconds(3));
  EXPECT_EQ(manager_->JournalToSuggest(300, absl::Seconds(299)), std::nullopt);
}

TEST_F(JournalSuggestionTest, JournalIsSuggestedWithTheSecondCheckpointByTimeOnly) {
  for (const int count : {1, 3}) {
    Write(count);
    EXPECT_EQ(manager_->JournalToSuggest(1, absl::Hours(1)), std::nullopt) << count;
  }
}

TEST_F(JournalSuggestionTest, JournalIsNotSuggestedToSitesAndJobsThatHaveOne) {
  config_.has_journal = true;
  Write();
  EXPECT_EQ(manager_->JournalToSuggest(1, absl::Hours(1)), std::nullopt);
  config_.has_journal = false;
  config_.is_site = true;
  Write();
  EXPECT_EQ(manager_->JournalToSuggest(1, absl::Hours(1)), std::nullopt);
}

TEST_F(CheckpointManagerTest, EarlyCheckpointThatTheOpenRoundOvertakesIsNoFault) {
  manager_->BeginLast(/*gives_up=*/true, now_);
  const std::string directory = Begin({.ledger = facts_.ledger, .is_early = true});
  EXPECT_EQ(manager_->OnFailed(directory, absl::FailedPreconditionError("past that"), now_),
            FailedVerdict::kOvertaken);
  EXPECT_EQ(manager_->OnFailed(directory, kFull, now_), FailedVerdict::kAlarm);
  EXPECT_TRUE(manager_->last_save().error().ok()) << "that was none of its tries";
  manager_->GiveUp(kFull);
  EXPECT_EQ(manager_->OnFailed(Begin(), absl::FailedPreconditionError("past that"), now_),
            FailedVerdict::kAlarm)
      << "it was not early";
}

TEST_F(CheckpointManagerTest, LastSaveEndsWithItsLastTry) {
  EXPECT_EQ(manager_->OnFailed(Begin(), kFull, now_), FailedVerdict::kAlarm)
      << "no last save is under way";
  manager_->BeginLast(/*gives_up=*/true, now_);
  for (int i = 0; i < LastSave::kTries; ++i) {
    EXPECT_EQ(manager_->OnFailed("ckpt/a.tmp", kFull, now_), FailedVerdict::kAlarm);
  }
  EXPECT_EQ(manager_->OnFailed("spare/a.tmp", kFull, now_), FailedVerdict::kLastTry);
}

TEST_F(CheckpointManagerTest, CheckpointBeingWrittenNeedsAServerThatGoesAway) {
  const absl::Status away = absl::UnavailableError("away");
  EXPECT_FALSE(manager_->OnShardAway(away));
  const std::string directory = Begin();
  const uint64_t ticket = manager_->Request(now_);
  EXPECT_TRUE(manager_->OnShardAway(away));
  EXPECT_EQ(tracker().OutcomeOf(ticket)->status().code(), absl::StatusCode::kUnavailable);
  Save(directory);
  EXPECT_FALSE(manager_->OnShardAway(away)) << "it waits for the disk only";
}

TEST_F(CheckpointManagerTest, GivenUpCheckpointIsNamedAndEndsAllRequests) {
  EXPECT_EQ(manager_->GiveUp(kFull), "");
  const uint64_t first = manager_->Request(now_);
  const std::string directory = Begin();
  const uint64_t second = manager_->Request(now_);
  EXPECT_EQ(manager_->GiveUp(kFull), directory);
  for (const uint64_t ticket : {first, second}) {
    EXPECT_EQ(tracker().OutcomeOf(ticket)->status(), kFull) << ticket;
  }
  EXPECT_TRUE(tracker().IsGivenUp(directory));
}

TEST_F(CheckpointManagerTest, JournalBeyondItsLimitAsksOnceUntilItIsCutOrDoubles) {
  config_.journal_limit_bytes = 1000;
  Make();
  EXPECT_EQ(manager_->OnJournalSize(1, 1000, 0), std::nullopt);
  EXPECT_EQ(manager_->OnJournalSize(1, 1500, 0), 1000);
  EXPECT_EQ(manager_->OnJournalSize(1, 2500, 0), std::nullopt) << "it may not be cut yet";
  EXPECT_EQ(manager_->OnJournalSize(2, 1001, 0), 1000) << "another shard";
  EXPECT_EQ(manager_->OnJournalSize(1, 2501, 0), 1000) << "it has grown by more than the limit";
  EXPECT_EQ(manager_->OnJournalSize(1, 2400, 0), 1000) << "it was cut, and is too long again";
  EXPECT_EQ(manager_->OnJournalSize(1, 10, 0), std::nullopt);
  EXPECT_EQ(manager_->OnJournalSize(1, 2450, 0), 1000);
  manager_->OnShardAway(kFull);
  EXPECT_EQ(manager_->OnJournalSize(1, 2450, 0), 1000) << "what it asked for was given up";
}

TEST_F(CheckpointManagerTest, JournalLimitFollowsFromTheWeights) {
  EXPECT_EQ(manager_->OnJournalSize(1, kGigabyte, 1), std::nullopt);
  EXPECT_EQ(manager_->OnJournalSize(1, kGigabyte + 1, 1), kGigabyte);
  EXPECT_EQ(manager_->OnJournalSize(2, 32 * kGigabyte, kGigabyte), std::nullopt);
  EXPECT_EQ(manager_->OnJournalSize(2, 32 * kGigabyte + 1, kGigabyte), 32 * kGigabyte);
}

TEST_F(CheckpointManagerTest, LastSaveIsBegunIfAllServersServe) {
  facts_.is_shard_long_away = true;
  EXPECT_TRUE(manager_->AwaitLast(facts_, now_));
  EXPECT_TRUE(manager_->last_save().is_under_way());
  for (int i = 0; i <= LastSave::kTries; ++i) manager_->OnFailed("ckpt/a.tmp", kFull, now_);
  EXPECT_TRUE(outcome().has_value()) << "a process waits, so that it gives up";
}

TEST_F(CheckpointManagerTest, LastSaveWaitsForAServerThatHasJustGoneIfAnythingIsMissing) {
  facts_.all_serving = false;
  EXPECT_TRUE(manager_->AwaitLast(facts_, now_));
  EXPECT_TRUE(manager_->last_save().is_under_way());

  for (const bool is_held : {false, true}) {
    Make();
    if (is_held) Publish(Begin());
    facts_.is_shard_long_away = !is_held;
    EXPECT_FALSE(manager_->AwaitLast(facts_, now_)) << is_held;
    EXPECT_FALSE(manager_->last_save().is_begun());
  }
}

TEST_F(CheckpointManagerTest, LastSaveIsNotBegunBeforeWorkersMayCall) {
  facts_.is_ready = false;
  EXPECT_FALSE(manager_->AwaitLast(facts_, now_));
  manager_->EndLast(facts_, kFull);
  EXPECT_TRUE(manager_->AwaitLast(facts_, now_)) << "it has its outcome";
  EXPECT_FALSE(manager_->last_save().is_begun());
}

TEST_F(CheckpointManagerTest, LastSaveBeginsWhereItsNextTryIs) {
  HoldWork();
  facts_.has_failed = true;
  EXPECT_EQ(AdvanceLast(), LastSaveVerdict{Kind::kNothing}) << "none is begun";
  facts_.has_failed = false;
  manager_->BeginLast(/*gives_up=*/true, now_);
  EXPECT_EQ(AdvanceLast(), (LastSaveVerdict{Kind::kBegin, Place::kFolder}));
  for (int i = 0; i < LastSave::kTries; ++i) {
    manager_->OnFailed("ckpt/a.tmp", kFull, now_);
    if (i == 0) {
      EXPECT_EQ(AdvanceLast(), LastSaveVerdict{Kind::kNothing}) << "a pause comes first";
    }
  }
  EXPECT_EQ(AdvanceLast(), (LastSaveVerdict{Kind::kBegin, Place::kFallback}));
  facts_.is_shard_away = true;
  EXPECT_EQ(AdvanceLast(), LastSaveVerdict{Kind::kNothing});
}

TEST_F(CheckpointManagerTest, LastSaveWaitsForTheCheckpointUnderWay) {
  HoldWork();
  manager_->BeginLast(/*gives_up=*/true, now_);
  Begin();
  facts_.has_failed = true;
  EXPECT_EQ(AdvanceLast(), LastSaveVerdict{Kind::kNothing});
}

TEST_F(CheckpointManagerTest, LastSaveEndsIfTheJobHasFailedOrNothingIsToBeSaved) {
  HoldWork();
  const CheckpointFacts usual = facts_;
  manager_->BeginLast(/*gives_up=*/true, now_);
  facts_.saves = false;
  facts_.is_shard_away = true;
  EXPECT_EQ(AdvanceLast(), LastSaveVerdict{Kind::kNothingToSave});
  facts_.has_failed = true;
  EXPECT_EQ(AdvanceLast(), LastSaveVerdict{Kind::kJobFailed});
  facts_ = usual;
  facts_.awaits_weights = true;
  EXPECT_EQ(AdvanceLast(), LastSaveVerdict{Kind::kNothingToSave});
  facts_ = usual;
  Publish(Begin());
  EXPECT_EQ(AdvanceLast(), LastSaveVerdict{Kind::kNothingToSave}) << "the newest has everything";
}

TEST_F(CheckpointManagerTest, RequestsAreServedByTheNewestBeforeTheLastSaveGoesOn) {
  HoldWork();
  Publish(Begin());
  manager_->BeginLast(/*gives_up=*/true, now_);
  const uint64_t ticket = manager_->Request(now_);
  EXPECT_EQ(AdvanceLast(), LastSaveVerdict{Kind::kServed});
  EXPECT_TRUE(tracker().OutcomeOf(ticket)->ok());
  EXPECT_EQ(AdvanceLast(), LastSaveVerdict{Kind::kNothingToSave});
}

TEST_F(CheckpointManagerTest, LastSaveEndsWithTheErrorIfSomethingIsUnsaved) {
  EXPECT_EQ(manager_->EndLast(facts_, kFull), LastSaveEnd::kUnsaved);
  EXPECT_EQ(outcome()->status(), kFull);
  const absl::Status later = absl::InternalError("later");
  EXPECT_EQ(manager_->EndLast(facts_, later), LastSaveEnd::kUnsaved);
  EXPECT_EQ(outcome()->status(), later);
  Make();
  Publish(Begin());
  facts_.is_comparing = true;
  EXPECT_EQ(manager_->EndLast(facts_, kFull), LastSaveEnd::kUnsaved)
      << "the journals may have later rounds";
}

TEST_F(CheckpointManagerTest, LastSaveEndsWithTheNewestCheckpointIfThatHasEverything) {
  Publish(Begin());
  EXPECT_EQ(manager_->EndLast(facts_, kFull), LastSaveEnd::kHeldUnmarked);
  EXPECT_EQ((*outcome())->path, "ckpt/round-00000002");
  EXPECT_EQ(manager_->complete(), "ckpt/round-00000002");
  ++facts_.ledger.next_round;
  EXPECT_EQ(manager_->EndLast(facts_, kFull), LastSaveEnd::kOverBefore);
  EXPECT_TRUE(outcome()->ok());
}

TEST_F(CheckpointManagerTest, NewestCheckpointIsMarkedAtTheEndOnceAndIfThereIsAJournal) {
  HoldWork();
  Publish(Begin());
  EXPECT_EQ(manager_->EndLast(facts_, kFull), LastSaveEnd::kHeld) << "its record says so";
  Make();
  facts_.hands_out_work = true;
  Publish(Begin());
  facts_.journal_id = 0;
  EXPECT_EQ(manager_->EndLast(facts_, kFull), LastSaveEnd::kHeld);
  EXPECT_EQ(manager_->complete(), "");
}

TEST_F(CheckpointManagerTest, ForgottenLastSaveBeginsAnew) {
  HoldWorkInRound();
  EXPECT_TRUE(manager_->SaveCompleteRounds(facts_, now_).has_value());
  manager_->BeginLast(/*gives_up=*/true, now_);
  manager_->EndLast(facts_, kFull);
  manager_->ForgetLast();
  EXPECT_FALSE(manager_->last_save().is_begun());
  EXPECT_FALSE(outcome().has_value());
  EXPECT_TRUE(manager_->SaveCompleteRounds(facts_, now_).has_value());
  manager_->BeginLast(/*gives_up=*/true, now_);
  for (int i = 0; i < LastSave::kTries; ++i) manager_->OnFailed("ckpt/a.tmp", kFull, now_);
  EXPECT_EQ(AdvanceLast().place, Place::kFallback) << "it still has one";
}

TEST_F(CheckpointManagerTest, CheckpointThatIsGoneOnFromHasEverythingUnlessItIsInTheFallback) {
  const absl::Time written_at = now_ - absl::Hours(3);
  manager_->Restart(At("ckpt/round-00000002"), facts_.ledger, facts_.orders, written_at);
  EXPECT_EQ(manager_->OnDue(facts_, now_), DueVerdict::kNothingNew);
  EXPECT_EQ(tracker().last_at(), written_at);
  manager_->Restart(At("spare/round-00000002"), facts_.ledger, facts_.orders, written_at);
  EXPECT_EQ(manager_->OnDue(facts_, now_), DueVerdict::kBegin) << "it belongs into the folder";
  EXPECT_TRUE(tracker().last()->is_in_fallback);
  manager_->ForgetNewest();
  EXPECT_FALSE(tracker().last().has_value());
}

TEST_F(CheckpointManagerTest, CompleteCheckpointIsReopenedBeforeWorkIsHandedOut) {
  EXPECT_EQ(manager_->AwaitReopening(facts_.journal_id), Reopening::kNone);
  manager_->SetComplete("ckpt/a");
  EXPECT_EQ(manager_->AwaitReopening(/*journal_id=*/0), Reopening::kNone);
  EXPECT_EQ(manager_->AwaitReopening(facts_.journal_id), Reopening::kBegin);
  EXPECT_EQ(manager_->AwaitReopening(facts_.journal_id), Reopening::kAwaited);
  manager_->OnReopened(/*is_ok=*/true, now_);
  EXPECT_EQ(manager_->complete(), "");
  EXPECT_EQ(manager_->AwaitReopening(facts_.journal_id), Reopening::kNone);
}

TEST_F(CheckpointManagerTest, CompleteCheckpointIsAwaitedWhileItIsPublished) {
  HoldWork();
  const std::string directory = Begin();
  EXPECT_EQ(manager_->AwaitReopening(facts_.journal_id), Reopening::kNone);
  const CheckpointRecord record = Save(directory);
  ASSERT_TRUE(record.journal.is_complete);
  facts_.hands_out_work = true;
  EXPECT_EQ(manager_->AwaitReopening(facts_.journal_id), Reopening::kAwaited);
  EXPECT_EQ(manager_->AwaitReopening(/*journal_id=*/0), Reopening::kNone);
  manager_->OnPublished(
      directory, PublishedCheckpoint{.path = record.final_directory, .round = record.round}, now_);
  EXPECT_EQ(manager_->AwaitReopening(facts_.journal_id), Reopening::kBegin);
}

TEST_F(CheckpointManagerTest, IncompleteCheckpointIsNotAwaitedWhileItIsPublished) {
  facts_.hands_out_work = true;
  Save(Begin());
  EXPECT_EQ(manager_->AwaitReopening(facts_.journal_id), Reopening::kNone);
}

TEST_F(CheckpointManagerTest, FailureAfterTheLastSaveIsNotItsFailure) {
  HoldWork();
  Publish(Begin());
  manager_->BeginLast(/*gives_up=*/true, now_);
  manager_->EndLast(facts_, kFull);
  ASSERT_TRUE(outcome()->ok());
  EXPECT_EQ(manager_->OnFailed("ckpt/a.tmp", kFull, now_), FailedVerdict::kAlarm);
}

TEST_F(CheckpointManagerTest, ReopeningThatFailsIsTriedAgainAfterAPause) {
  manager_->SetComplete("ckpt/a");
  manager_->AwaitReopening(facts_.journal_id);
  EXPECT_FALSE(manager_->TriesReopeningAgain(now_));
  manager_->OnReopened(/*is_ok=*/false, now_);
  EXPECT_EQ(manager_->AwaitReopening(facts_.journal_id), Reopening::kAwaited);
  now_ += CheckpointManager::kReopenPause;
  EXPECT_FALSE(manager_->TriesReopeningAgain(now_ - absl::Nanoseconds(1)));
  EXPECT_TRUE(manager_->TriesReopeningAgain(now_));
  EXPECT_FALSE(manager_->TriesReopeningAgain(now_));
  EXPECT_EQ(manager_->AwaitReopening(facts_.journal_id), Reopening::kBegin);
}

TEST_F(CheckpointManagerTest, MemoryHasTheNewestCheckpointAndTheSchedule) {
  facts_.ledger.next_round = 5;
  manager_->OnDue(facts_, now_);
  Publish(Begin());
  ++facts_.ledger.next_round;
  const std::string directory = Begin();
  CheckpointManager resumed(config_);
  resumed.Resume(manager_->memory());
  EXPECT_TRUE(resumed.tracker().IsGivenUp(directory));
  EXPECT_EQ(resumed.tracker().last()->round, Round(5));
  EXPECT_FALSE(resumed.IsDue(Round(5), 0, now_));
  EXPECT_TRUE(resumed.IsDue(Round(10), 0, now_));
}

}  // namespace
}  // namespace lodestar::checkpoints
