// SPDX-License-Identifier: Apache-2.0

#include "common/storage/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/notification.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/status_matchers.h"

namespace lodestar::storage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FolderLockTest : public testing::Test {
 protected:
  FolderLockTest() {
    folder_ = absl::StrCat(testing::TempDir(), "/lock-",
                           testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/LOCK";
  }

  static FolderClaim ClaimOf(const std::string& host, const std::string& machine) {
    FolderClaim claim = NewFolderClaim();
    claim.host = host;
    claim.machine = machine;
    return claim;
  }

  std::string Contents() const {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

  // Writes a claim of another server into LOCK, but takes no kernel lock. So that server seems to
  // have been killed, or to run on a machine whose locks the kernel here does not see.
  void LeaveClaim(const std::string& host, const std::string& machine) {
    const std::string elsewhere = folder_ + "-elsewhere";
    std::filesystem::create_directories(elsewhere);
    const auto lock = FolderLock::Take(elsewhere, ClaimOf(host, machine), {});
    ASSERT_OK(lock);
    std::filesystem::copy(elsewhere + "/LOCK", path_,
                          std::filesystem::copy_options::overwrite_existing);
  }

  absl::StatusOr<std::unique_ptr<FolderLock>> TakeHere(FolderLock::Deps deps = {}) {
    return FolderLock::Take(folder_, ClaimOf("here", "m1"), std::move(deps));
  }

  std::string folder_;
  std::string path_;
};

TEST_F(FolderLockTest, ASecondServerIsRefusedAndTheHolderNamed) {
  const auto first = TakeHere();
  ASSERT_OK(first);
  EXPECT_FALSE((*first)->crashed_holder().has_value());
  const auto second = FolderLock::Take(folder_, ClaimOf("there", "m1"), {});
  EXPECT_THAT(second, StatusIs(absl::StatusCode::kAlreadyExists,
                               AllOf(HasSubstr(folder_), HasSubstr("host here"),
                                     HasSubstr(absl::StrCat("process ", getpid())))));
  EXPECT_THAT(Contents(), HasSubstr("\"here\"")) << "the refused one has written";
}

TEST_F(FolderLockTest, AHolderThatWasTakenForDeadLearnsThatItIsNoneAnyMore) {
  const auto lock = TakeHere();
  ASSERT_OK(lock);
  EXPECT_OK((*lock)->CheckHeld());
  LeaveClaim("there", "m2");
  EXPECT_THAT((*lock)->CheckHeld(),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("host there")));
  std::filesystem::remove(path_);
  EXPECT_THAT((*lock)->CheckHeld(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is gone")));
}

TEST_F(FolderLockTest, AHolderIsNamedInWordsThatCannotRuleATerminal) {
  LeaveClaim("a\x1b[2J", "m2");
  const absl::Status elsewhere = CheckClaimIsIn(folder_, /*claim_id=*/1);
  EXPECT_THAT(elsewhere, StatusIs(absl::StatusCode::kFailedPrecondition,
                                  testing::HasSubstr("host a\\x1b[2J,")));
}

TEST_F(FolderLockTest, WhetherAFolderIsHeldCanBeSeenFromOutside) {
  EXPECT_FALSE(IsFolderHeld(folder_)) << "no server was there";
  auto lock = TakeHere();
  ASSERT_OK(lock);
  EXPECT_TRUE(IsFolderHeld(folder_));
  lock->reset();
  EXPECT_FALSE(IsFolderHeld(folder_));
  EXPECT_OK(TakeHere()) << "looking has taken it";
}

TEST_F(FolderLockTest, ReleasedItIsThereForTheNext) {
  ASSERT_OK(TakeHere());
  const auto next = TakeHere();
  ASSERT_OK(next);
  EXPECT_FALSE((*next)->crashed_holder().has_value());
}

TEST_F(FolderLockTest, AKilledHolderOnThisMachineIsTakenOverAtOnce) {
  LeaveClaim("here", "m1");
  SimulatedClock clock(SimulatedClock::OnSleep::kAdvance);
  const absl::Time before = clock.Now();
  const auto lock = TakeHere({.clock = &clock});
  ASSERT_OK(lock);
  EXPECT_EQ(clock.Now(), before);
  ASSERT_TRUE((*lock)->crashed_holder().has_value());
  EXPECT_EQ((*lock)->crashed_holder()->host, "here");
}

TEST_F(FolderLockTest, AHolderOnAnotherMachineIsTakenOverOnceItHasBeenSilent) {
  LeaveClaim("there", "m2");
  SimulatedClock clock(SimulatedClock::OnSleep::kAdvance);
  const absl::Time before = clock.Now();
  const auto lock = TakeHere({.clock = &clock});
  ASSERT_OK(lock);
  EXPECT_GE(clock.Now() - before, FolderLock::kPatience);
  EXPECT_EQ((*lock)->crashed_holder()->host, "there");
}

TEST_F(FolderLockTest, AHolderOnAnotherMachineThatBeatsIsAlive) {
  LeaveClaim("there", "m2");
  SimulatedClock clock(SimulatedClock::OnSleep::kAdvance);
  const auto beat = [this] {
    const std::string text = absl::StrReplaceAll(Contents(), {{"\"beat\":1", "\"beat\":2"}});
    std::ofstream(path_) << text;
    return false;
  };
  EXPECT_THAT(TakeHere({.clock = &clock, .is_interrupted = beat}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("host there")));
}

TEST_F(FolderLockTest, AHolderOnAnotherMachineThatReleasesMeanwhileHasNotCrashed) {
  LeaveClaim("there", "m2");
  SimulatedClock clock(SimulatedClock::OnSleep::kAdvance);
  const auto release = [this] {
    const std::string text = absl::StrReplaceAll(
        Contents(), {{"\"beat\":1", "\"beat\":2"}, {"\"released\":false", "\"released\":true"}});
    std::ofstream(path_) << text;
    return false;
  };
  const auto lock = TakeHere({.clock = &clock, .is_interrupted = release});
  ASSERT_OK(lock);
  EXPECT_FALSE((*lock)->crashed_holder().has_value());
}

FolderClaim LeadersClaim(const std::string& host, const std::string& machine, int64_t revision,
                         const std::string& key = "run1") {
  FolderClaim claim = NewFolderClaim({key, revision});
  claim.host = host;
  claim.machine = machine;
  return claim;
}

TEST_F(FolderLockTest, LeaderSeizesFolderThatAFrozenLeaderKeepsLocked) {
  const auto frozen = FolderLock::Take(folder_, LeadersClaim("frozen", "m1", 7), {});
  ASSERT_OK(frozen);
  SimulatedClock clock(SimulatedClock::OnSleep::kAdvance);
  const absl::Time before = clock.Now();
  const auto next = FolderLock::Take(folder_, LeadersClaim("next", "m1", 12), {.clock = &clock});
  ASSERT_OK(next);
  EXPECT_EQ(clock.Now(), before);
  EXPECT_EQ((*next)->revision(), 12);
  ASSERT_TRUE((*next)->crashed_holder().has_value());
  EXPECT_EQ((*next)->crashed_holder()->host, "frozen");
  // The former leader continues after it was frozen.
  const auto is_held_by_next =
      StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("the server on host next"));
  EXPECT_THAT((*frozen)->Confirm(), is_held_by_next);
  EXPECT_THAT((*frozen)->CheckHeld(), is_held_by_next);
  EXPECT_OK((*next)->Confirm());
  EXPECT_OK((*next)->CheckHeld());
  EXPECT_TRUE(IsFolderHeld(folder_)) << "the kernel's lock is on the new file";
}

TEST_F(FolderLockTest, FormerLeaderStaysOutAfterTheNextOneHasEnded) {
  const auto frozen = FolderLock::Take(folder_, LeadersClaim("frozen", "m1", 7), {});
  ASSERT_OK(frozen);
  ASSERT_OK(FolderLock::Take(folder_, LeadersClaim("next", "m1", 12), {}));
  EXPECT_THAT((*frozen)->Confirm(), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(Contents(), HasSubstr("\"next\""));
}

TEST_F(FolderLockTest, LeaderDoesNotWaitForALeaderOnAnotherMachine) {
  {
    const std::string elsewhere = folder_ + "-elsewhere";
    std::filesystem::create_directories(elsewhere);
    const auto lock = FolderLock::Take(elsewhere, LeadersClaim("there", "m2", 7), {});
    ASSERT_OK(lock);
    std::filesystem::copy(elsewhere + "/LOCK", path_);
  }
  SimulatedClock clock(SimulatedClock::OnSleep::kAdvance);
  const absl::Time before = clock.Now();
  ASSERT_OK(FolderLock::Take(folder_, LeadersClaim("here", "m1", 8), {.clock = &clock}));
  EXPECT_EQ(clock.Now(), before);
}

TEST_F(FolderLockTest, LeaderSeizesNothingFromOthersThanLeadersUnderItsKey) {
  const auto no_leader = TakeHere();
  ASSERT_OK(no_leader);
  const auto is_refused = StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("host here"));
  EXPECT_THAT(FolderLock::Take(folder_, LeadersClaim("there", "m1", 12), {}), is_refused);
  std::filesystem::remove(path_);
  const auto other_key = FolderLock::Take(folder_, LeadersClaim("here", "m1", 7, "run2"), {});
  ASSERT_OK(other_key);
  EXPECT_THAT(FolderLock::Take(folder_, LeadersClaim("there", "m1", 12), {}), is_refused);
}

TEST_F(FolderLockTest, ProcessThatHasLostTheLeaseSeizesNothing) {
  const auto first = FolderLock::Take(folder_, LeadersClaim("first", "m1", 7), {});
  ASSERT_OK(first);
  EXPECT_THAT(FolderLock::Take(folder_, LeadersClaim("late", "m1", 6),
                               {.confirm_leader = [] { return absl::AbortedError("lost"); }}),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("lost")));
  EXPECT_OK((*first)->CheckHeld());
}

TEST_F(FolderLockTest, LeaderTakesTheFolderBackFromAFormerOneThatSeizedItLate) {
  const auto leader = FolderLock::Take(folder_, LeadersClaim("leader", "m1", 12), {});
  ASSERT_OK(leader);
  // Simulates a former leader that was frozen while it seized the folder: it had confirmed its
  // lease, and had not renamed its LOCK yet.
  const std::string elsewhere = folder_ + "-elsewhere";
  std::filesystem::create_directories(elsewhere);
  const auto late = FolderLock::Take(elsewhere, LeadersClaim("late", "m1", 7), {});
  ASSERT_OK(late);
  std::filesystem::rename(elsewhere + "/LOCK", path_);
  EXPECT_OK((*leader)->Confirm());
  EXPECT_OK((*leader)->CheckHeld());
  EXPECT_THAT((*late)->CheckHeld(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

// If the store of leases has lost its data, new leases have revisions from 1 again. A server may
// also start without a leader lease.
TEST_F(FolderLockTest, ClaimHasAHigherRevisionThanAllBeforeIt) {
  ASSERT_OK(FolderLock::Take(folder_, LeadersClaim("first", "m1", 900), {}));
  const auto counts_anew = FolderLock::Take(folder_, LeadersClaim("second", "m1", 3), {});
  ASSERT_OK(counts_anew);
  EXPECT_EQ((*counts_anew)->revision(), 901);
  ASSERT_OK((*counts_anew)->Confirm());
  std::filesystem::remove_all(folder_ + "-none");
}

TEST_F(FolderLockTest, AnotherServerSeesWhetherItHasTheSameFolder) {
  EXPECT_THAT(CheckClaimIsIn(folder_, 7),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(path_ + " is missing")));
  const auto lock = TakeHere();
  ASSERT_OK(lock);
  EXPECT_OK(CheckClaimIsIn(folder_, (*lock)->claim_id()));
  EXPECT_THAT(CheckClaimIsIn(folder_, (*lock)->claim_id() + 1),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("names the server on host here"), HasSubstr("mount"))));
}

TEST_F(FolderLockTest, AFolderThatWasRemovedIsClaimedAgain) {
  const auto lock = TakeHere();
  ASSERT_OK(lock);
  EXPECT_OK((*lock)->Confirm());
  std::filesystem::remove_all(folder_);
  EXPECT_THAT((*lock)->Confirm(), StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder_)));
  std::filesystem::create_directories(folder_);
  EXPECT_OK((*lock)->Confirm());
  EXPECT_OK(CheckClaimIsIn(folder_, (*lock)->claim_id()));
  EXPECT_THAT(FolderLock::Take(folder_, ClaimOf("there", "m1"), {}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("the server on host here")));
}

TEST_F(FolderLockTest, AFolderThatWasRemovedIsMadeAgainByReclaim) {
  const std::string below = folder_ + "/a/b";
  std::filesystem::create_directories(below);
  const auto lock = FolderLock::Take(below, ClaimOf("here", "m1"), {});
  ASSERT_OK(lock);
  std::filesystem::remove_all(folder_ + "/a");
  EXPECT_OK((*lock)->Reclaim());
  EXPECT_OK((*lock)->CheckHeld());
  EXPECT_OK((*lock)->Reclaim());
}

TEST(FolderPlaceTest, MountPointIsTheHighestFolderOfTheDevice) {
  ASSERT_OK_AND_ASSIGN(const FolderPlace root, PlaceOf("/"));
  EXPECT_EQ(root.mount_point, "/");
  ASSERT_OK_AND_ASSIGN(const FolderPlace process, PlaceOf("/proc/self"));
  EXPECT_EQ(process.mount_point, "/proc");
  EXPECT_NE(process.device, root.device);
  EXPECT_THAT(PlaceOf("/proc/none"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(FolderLockTest, FolderWhoseFileSystemIsMountedAgainIsClaimedAgain) {
  FolderPlace place = {.device = 41, .mount_point = "/mnt"};
  FolderLock::Deps deps;
  deps.place_of = [&](const std::string& /*folder*/) { return place; };
  ASSERT_OK_AND_ASSIGN(const auto lock, TakeHere(deps));
  EXPECT_OK(lock->Confirm()) << "the folder's device is not that of LOCK, as on an overlay";
  place.device = 45;
  EXPECT_OK(lock->Confirm());
  EXPECT_OK(lock->CheckHeld());

  // An empty folder of a new disk.
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  place.device = 46;
  EXPECT_OK(lock->Confirm());
  EXPECT_OK(CheckClaimIsIn(folder_, lock->claim_id()));

  // A new disk without the folder.
  std::filesystem::remove_all(folder_);
  place.device = 47;
  EXPECT_OK(lock->Reclaim());
  EXPECT_OK(CheckClaimIsIn(folder_, lock->claim_id()));
}

TEST_F(FolderLockTest, FolderWhoseFileSystemIsUnmountedIsRefused) {
  FolderPlace place = {.device = 41, .mount_point = "/mnt"};
  FolderLock::Deps deps;
  deps.place_of = [&](const std::string& /*folder*/) { return place; };
  ASSERT_OK_AND_ASSIGN(const auto lock, TakeHere(deps));
  place = {.device = 1, .mount_point = "/"};
  EXPECT_THAT(lock->Confirm(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("/mnt")));
  std::filesystem::remove_all(folder_);
  EXPECT_THAT(lock->Reclaim(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("/mnt")));
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(FolderLockTest, AFolderThatAnotherServerHasClaimedMeanwhileIsNotReclaimed) {
  const auto lock = TakeHere();
  ASSERT_OK(lock);
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  const auto later = FolderLock::Take(folder_, ClaimOf("there", "m1"), {});
  ASSERT_OK(later);
  EXPECT_THAT((*lock)->Reclaim(), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(FolderLockTest, AFolderThatAnotherServerHasClaimedMeanwhileIsLost) {
  const auto lock = TakeHere();
  ASSERT_OK(lock);
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  const auto later = FolderLock::Take(folder_, ClaimOf("there", "m1"), {});
  ASSERT_OK(later);
  const auto is_held_there =
      StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("the server on host there"));
  EXPECT_THAT((*lock)->Confirm(), is_held_there);
  std::filesystem::remove(path_);
  LeaveClaim("there", "m2");  // a claim of another machine, whose locks are not seen here
  EXPECT_THAT((*lock)->Confirm(), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(FolderLockTest, LeavesAnotherRunThatWasMovedThere) {
  const std::string other = folder_ + "-other";
  std::filesystem::remove_all(other);
  std::filesystem::create_directories(other + "/round-00000007");
  ASSERT_OK(FolderLock::Take(other, ClaimOf("there", "m1"), {}));  // taken and released at once
  for (const bool has_lock : {true, false}) {
    const auto lock = TakeHere();
    ASSERT_OK(lock);
    const std::string aside = folder_ + "-aside";
    std::filesystem::remove_all(aside);
    std::filesystem::rename(folder_, aside);
    std::filesystem::copy(other, folder_, std::filesystem::copy_options::recursive);
    if (!has_lock) std::filesystem::remove(path_);
    const auto is_refused =
        StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("round-00000007"));
    EXPECT_THAT((*lock)->Confirm(), is_refused);
    EXPECT_THAT((*lock)->Reclaim(), is_refused);
    EXPECT_EQ(std::filesystem::exists(path_), has_lock);
    // If the claimed folder is back at its path, it still belongs to this server.
    std::filesystem::remove_all(folder_);
    std::filesystem::rename(aside, folder_);
    EXPECT_OK((*lock)->Confirm());
  }
}

TEST_F(FolderLockTest, LeavesAnotherRunThatWasCopiedOverIt) {
  const auto lock = TakeHere();
  ASSERT_OK(lock);
  std::filesystem::remove(path_);
  LeaveClaim("there", "m1");  // the server was killed
  std::filesystem::create_directories(folder_ + "/round-00000007");
  EXPECT_THAT((*lock)->Confirm(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                           AllOf(HasSubstr("host there"), HasSubstr("round-"))));
}

TEST_F(FolderLockTest, ClaimsTheSameFolderAgainWhoseFileWasRemoved) {
  const auto lock = TakeHere();
  ASSERT_OK(lock);
  std::filesystem::create_directories(folder_ + "/round-00000007");
  std::filesystem::remove(path_);
  EXPECT_OK((*lock)->Confirm());
  EXPECT_OK((*lock)->CheckHeld());
}

// After an unmount, the folder below the mount point is at the path. It may have the files of a run
// that has ended.
TEST_F(FolderLockTest, AnEndedRunThatComesToLieThereHasNotTakenOver) {
  SimulatedClock clock;
  const auto lock = TakeHere(
      {.clock = &clock, .on_lost = [](const absl::Status& status) { ADD_FAILURE() << status; }});
  ASSERT_OK(lock);
  (*lock)->StartBeating();
  clock.AwaitSleepers(1);
  std::filesystem::remove(path_);
  LeaveClaim("there", "m1");
  std::filesystem::create_directories(folder_ + "/round-00000007");
  for (int i = 0; i < 3; ++i) {
    clock.AdvanceTime(FolderLock::kBeatInterval);
    clock.AwaitSleepers(1);
  }
  EXPECT_THAT(Contents(), HasSubstr("\"there\""));
}

TEST_F(FolderLockTest, WaitingCanBeInterrupted) {
  LeaveClaim("there", "m2");
  SimulatedClock clock(SimulatedClock::OnSleep::kAdvance);
  EXPECT_THAT(TakeHere({.clock = &clock, .is_interrupted = [] { return true; }}),
              StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(FolderLockTest, AFileThatSaysNothingIsNoHolder) {
  std::ofstream(path_) << "{\"machine\": \"m2\", \"ho";
  SimulatedClock clock(SimulatedClock::OnSleep::kAdvance);
  const auto lock = TakeHere({.clock = &clock});
  ASSERT_OK(lock);
  EXPECT_THAT(Contents(), HasSubstr("\"here\""));
}

TEST_F(FolderLockTest, AHolderLearnsThatItWasTakenForDeadOrItsFileRemoved) {
  for (const bool is_removed : {false, true}) {
    SimulatedClock clock;
    absl::Notification lost;
    absl::Status why;
    const auto lock = TakeHere({.clock = &clock, .on_lost = [&](const absl::Status& status) {
                                  why = status;
                                  lost.Notify();
                                }});
    ASSERT_OK(lock);
    (*lock)->StartBeating();
    clock.AwaitSleepers(1);
    if (is_removed) std::filesystem::remove(path_);
    LeaveClaim("usurper", "m2");
    clock.AdvanceTime(FolderLock::kBeatInterval);
    lost.WaitForNotification();
    EXPECT_THAT(std::string(why.message()),
                AllOf(HasSubstr(is_removed ? "was removed" : "was taken over"),
                      HasSubstr("by the server on host usurper")));
    std::filesystem::remove(path_);
  }
}

TEST_F(FolderLockTest, TheBeatMoves) {
  SimulatedClock clock;
  const auto lock = TakeHere({.clock = &clock});
  ASSERT_OK(lock);
  (*lock)->StartBeating();
  clock.AwaitSleepers(1);
  EXPECT_THAT(Contents(), HasSubstr("\"beat\":1"));
  clock.AdvanceTime(FolderLock::kBeatInterval);
  while (Contents().find("\"beat\":2") == std::string::npos) std::this_thread::yield();
}

}  // namespace
}  // namespace lodestar::storage
