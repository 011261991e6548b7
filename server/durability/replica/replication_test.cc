// SPDX-License-Identifier: Apache-2.0

#include "server/durability/replica/replication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/testing/checkpoint_files.h"
#include "common/testing/queue_executor.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"
#include "server/durability/journal/journal_reader.h"
#include "server/durability/journal/journal_segments.h"
#include "server/durability/journal/journal_writer.h"
#include "server/durability/replica/replica_store.h"
#include "server/durability/replica/summed_file_system.h"
#include "server/durability/replica/testing/direct_connection.h"

namespace lodestar::replica {
namespace {

using ::testing::HasSubstr;

constexpr char kJournals[] = "/run/journal";
constexpr char kJournal[] = "/run/journal/shard-0";
constexpr char kCheckpoints[] = "/run";

// Fixture with a server and a replica on two machines. Each machine has its own disk.
class ReplicationTest : public testing::Test {
 protected:
  ReplicationTest() { StartReplica(); }

  void StartReplica() {
    store_.reset();
    ReplicaStore::Deps deps;
    deps.disk = there_.get();
    deps.clock = &clock_;
    store_ =
        std::make_shared<ReplicaStore>(MirroredFolders(kJournals, kCheckpoints), std::move(deps));
    ASSERT_OK(store_->Open());
  }

  // Starts a server process with the files that are on its disk.
  absl::Status StartServer(bool may_promote = false) {
    server_.reset();
    for (const char* const folder : {kJournal, "/run/journal/coordinator"}) {
      RETURN_IF_ERROR(here_->CreateDirectories(folder));
    }
    for (const char* const folder : {"/", "/run", kJournals}) {
      RETURN_IF_ERROR(here_->SyncDirectory(folder));
    }
    ReplicationStart start;
    start.folder = kJournal;
    ASSIGN_OR_RETURN(start.mark, ReadReplicationMark(*here_, kJournal));
    ASSIGN_OR_RETURN(const std::vector<uint64_t> segments,
                     journal::ListJournalSegments(*here_, kJournal));
    start.has_journal = !segments.empty();  // the coordinator's journal is empty here
    start.wants_replica = true;
    start.may_promote = may_promote;
    ASSIGN_OR_RETURN(ReplicationPlan plan, JudgeStart(start));
    if (plan.drops_mark) RETURN_IF_ERROR(RemoveReplicationMark(*here_, kJournal));
    server_ = MakeServer(here_.get(), std::move(plan));
    disk_ = server_->AddDisk();
    return server_->Connect();
  }

  std::unique_ptr<Replication> MakeServer(storage::FileSystem* disk, ReplicationPlan plan) {
    return std::make_unique<Replication>(ConfigOf(std::move(plan)), DepsOf(disk));
  }

  Replication::Config ConfigOf(ReplicationPlan plan) {
    Replication::Config config;
    config.journal_dir = kJournals;
    config.checkpoint_dir = kCheckpoints;
    config.replica = "there:1";
    config.server = "here";
    config.term = ++last_term_;
    config.plan = std::move(plan);
    return config;
  }

  Replication::Deps DepsOf(storage::FileSystem* disk) {
    Replication::Deps deps;
    deps.disk = disk;
    deps.clock = &clock_;
    deps.random_id = [this] { return ++last_id_; };
    deps.confirm = [this] { return confirmed_; };
    deps.connect = [this] { return std::make_unique<DirectConnection>(store_, link_); };
    deps.on_change = [this](const absl::Status& state) { last_change_ = state; };
    return deps;
  }

  static ReplicationPlan WithNothing() {
    ReplicationPlan plan;
    plan.has_nothing = true;
    return plan;
  }

  void LoseDiskHere() {
    server_.reset();
    here_ = std::make_unique<SimulatedFileSystem>();
  }

  static absl::Status Write(storage::FileSystem& disk, const std::string& path,
                            absl::string_view text) {
    ASSIGN_OR_RETURN(const std::unique_ptr<storage::WritableFile> file,
                     disk.Create(path, storage::FileSystem::IfExists::kTruncate));
    RETURN_IF_ERROR(file->Append(text));
    RETURN_IF_ERROR(file->Sync());
    return file->Close();
  }

  // Returns the contents of all copied files, by path.
  static std::map<std::string, std::string> Contents(storage::FileSystem& disk) {
    const MirroredFolders folders(kJournals, kCheckpoints);
    SummedFileSystem summed(&disk);
    const auto entries = folders.List(summed, 0);
    EXPECT_OK(entries.status());
    std::map<std::string, std::string> contents;
    for (const FileEntry& entry : *entries) {
      const std::string path = *folders.Locate(0, entry.path);
      contents[path] =
          entry.is_directory ? "directory" : *disk.ReadWholeFile(path, entry.num_bytes);
    }
    return contents;
  }

  SimulatedClock clock_;
  absl::Status confirmed_;  // says whether a server still has its folders
  LinkHook link_;           // null means that no connection is cut
  std::unique_ptr<SimulatedFileSystem> here_ = std::make_unique<SimulatedFileSystem>();
  std::unique_ptr<SimulatedFileSystem> there_ = std::make_unique<SimulatedFileSystem>();
  std::shared_ptr<ReplicaStore> store_;
  std::unique_ptr<Replication> server_;
  storage::FileSystem* disk_ = nullptr;  // the disk of server_
  absl::Status last_change_;             // the last change that any server has reported
  uint64_t last_term_ = 0;
  uint64_t last_id_ = 0;
};

TEST_F(ReplicationTest, WhatIsWrittenIsOnBothSides) {
  ASSERT_OK(StartServer());
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000001.journal", "records"));
  ASSERT_OK(disk_->CreateDirectories("/run/round-00000004.x.tmp"));
  ASSERT_OK(Write(*disk_, "/run/round-00000004.x.tmp/MANIFEST.json", "manifest"));
  ASSERT_OK(disk_->Rename("/run/round-00000004.x.tmp", "/run/round-00000004"));
  ASSERT_OK(disk_->SyncDirectory("/run"));
  ASSERT_OK(Write(*disk_, "/run/notes.txt", "of this machine"));
  EXPECT_EQ(Contents(*there_), Contents(*here_));
  EXPECT_EQ(Contents(*there_).count("/run/round-00000004/MANIFEST.json"), 1);
  EXPECT_FALSE(there_->Exists("/run/notes.txt"));
  ASSERT_OK(disk_->RemoveAll("/run/journal/shard-0/00000001.journal"));
  EXPECT_EQ(Contents(*there_), Contents(*here_));
}

TEST_F(ReplicationTest, WhatWasThereBeforeIsCopiedFirst) {
  ASSERT_OK(here_->CreateDirectories(kJournal));
  ASSERT_OK(Write(*here_, "/run/journal/shard-0/00000001.journal", "records"));
  ASSERT_OK(StartServer());
  EXPECT_EQ(Contents(*there_), Contents(*here_));
}

TEST_F(ReplicationTest, NothingIsDurableWhileTheReplicaIsAway) {
  ASSERT_OK(StartServer());
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000001.journal", "before"));
  link_ = [] { return absl::UnavailableError("cut"); };
  server_.reset();
  ASSERT_EQ(StartServer().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(server_->state().message(), HasSubstr("replica there:1: cut"));
  EXPECT_EQ(Write(*disk_, "/run/journal/shard-0/00000002.journal", "x").code(),
            absl::StatusCode::kUnavailable);
  EXPECT_FALSE(here_->Exists("/run/journal/shard-0/00000002.journal"));
  link_ = nullptr;
  ASSERT_OK(server_->Connect());
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000002.journal", "x"));
  EXPECT_EQ(Contents(*there_), Contents(*here_));
}

TEST_F(ReplicationTest, AFileIsNotGoneOnWithAfterTheReplicaWasLost) {
  ASSERT_OK(StartServer());
  const auto file =
      disk_->Create("/run/journal/shard-0/00000001.journal", storage::FileSystem::IfExists::kFail);
  ASSERT_OK(file.status());
  ASSERT_OK((*file)->Append("before"));
  StartReplica();
  EXPECT_THAT((*file)->Append("while").message(), HasSubstr("replica there:1: "));
  ASSERT_OK(server_->Connect());
  const absl::Status late = (*file)->Append("after");
  EXPECT_EQ(late.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(late.message(), HasSubstr("lost while this file"));
}

TEST_F(ReplicationTest, ACutCostsNoReadingOfWhatBothSidesHaveWritten) {
  bool is_cut = false;
  link_ = [&is_cut] { return is_cut ? absl::UnavailableError("cut") : absl::OkStatus(); };
  ASSERT_OK(StartServer());
  ASSERT_OK(disk_->CreateDirectories("/run/round-00000004.x.tmp"));
  ASSERT_OK(Write(*disk_, "/run/round-00000004.x.tmp/weights", "of gigabytes"));
  ASSERT_OK(disk_->Rename("/run/round-00000004.x.tmp", "/run/round-00000004"));
  ASSERT_OK(disk_->SyncDirectory("/run"));
  is_cut = true;
  EXPECT_FALSE(Write(*disk_, "/run/journal/shard-0/00000001.journal", "x").ok());
  is_cut = false;
  std::vector<std::string> read;
  const auto note = [&read](FileOperation operation, const std::string& path) {
    if (operation == FileOperation::kRead && absl::StrContains(path, "weights")) {
      read.push_back(path);
    }
    return absl::OkStatus();
  };
  here_->SetFaultHook(note);
  there_->SetFaultHook(note);
  ASSERT_OK(server_->Connect());
  EXPECT_THAT(read, testing::IsEmpty());
  EXPECT_EQ(Contents(*there_), Contents(*here_));
}

// A connection in which only the answers on its lanes are lost.
class DeafConnection final : public ReplicaConnection {
 public:
  explicit DeafConnection(std::unique_ptr<ReplicaConnection> connection)
      : connection_(std::move(connection)) {}

  void LoseAnswers() { state_->loses_answers = true; }
  // Blocks until a thread waits for an answer that is lost.
  void AwaitWaiting() { state_->is_waiting.WaitForNotification(); }

  absl::StatusOr<TermGrant> BeginTerm(const TermRequest& request) override {
    return connection_->BeginTerm(request);
  }
  absl::Status CheckTerm() override { return connection_->CheckTerm(); }
  absl::StatusOr<std::vector<FileEntry>> ListFiles() override { return connection_->ListFiles(); }
  absl::Status ReadFile(const MirroredPath& path,
                        absl::FunctionRef<absl::Status(absl::string_view block)> take) override {
    return connection_->ReadFile(path, take);
  }
  absl::StatusOr<std::unique_ptr<ReplicaLane>> OpenLane() override {
    absl::StatusOr<std::unique_ptr<ReplicaLane>> lane = connection_->OpenLane();
    if (!lane.ok()) return lane;
    return std::make_unique<Lane>(*std::move(lane), state_);
  }
  void Cancel() override {
    connection_->Cancel();
    if (!state_->is_cancelled.HasBeenNotified()) state_->is_cancelled.Notify();
  }

 private:
  struct State {
    std::atomic<bool> loses_answers = false;
    absl::Notification is_waiting;
    absl::Notification is_cancelled;
  };

  class Lane final : public ReplicaLane {
   public:
    Lane(std::unique_ptr<ReplicaLane> lane, std::shared_ptr<State> state)
        : lane_(std::move(lane)), state_(std::move(state)) {}
    absl::Status Send(FileChange change) override { return lane_->Send(std::move(change)); }
    absl::StatusOr<uint64_t> Ask() override { return lane_->Ask(); }
    absl::Status Await(uint64_t question) override {
      if (!state_->loses_answers) return lane_->Await(question);
      state_->is_waiting.Notify();
      state_->is_cancelled.WaitForNotification();
      return absl::UnavailableError("the connection was ended");
    }

   private:
    const std::unique_ptr<ReplicaLane> lane_;
    const std::shared_ptr<State> state_;
  };

  const std::unique_ptr<ReplicaConnection> connection_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST_F(ReplicationTest, AnAnswerThatIsLostIsNotWaitedForForEver) {
  ASSERT_OK(StartServer());
  server_.reset();
  DeafConnection* deaf = nullptr;
  Replication::Config config = ConfigOf(WithNothing());
  config.plan.previous = {last_term_ - 1};
  config.plan.has_nothing = false;
  Replication::Deps deps = DepsOf(here_.get());
  deps.connect = [&] {
    auto connection =
        std::make_unique<DeafConnection>(std::make_unique<DirectConnection>(store_, nullptr));
    deaf = connection.get();
    return connection;
  };
  Replication server(std::move(config), std::move(deps));
  storage::FileSystem* const disk = server.AddDisk();
  ASSERT_OK(server.Connect());
  deaf->LoseAnswers();
  absl::Status written;
  std::thread writing(
      [&] { written = Write(*disk, "/run/journal/shard-0/00000001.journal", "x"); });
  deaf->AwaitWaiting();
  clock_.AdvanceTime(absl::Seconds(29));
  EXPECT_OK(server.Look());
  clock_.AdvanceTime(absl::Seconds(1));
  const absl::Status looked = server.Look();
  EXPECT_EQ(looked.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(looked.message(), HasSubstr("has not answered for 30s, although it is connected"));
  writing.join();
  EXPECT_EQ(written.code(), absl::StatusCode::kUnavailable);
  ASSERT_OK(server.Connect());
  EXPECT_EQ(Contents(*there_), Contents(*here_));
}

TEST_F(ReplicationTest, DifferencesOfEveryKindAreMended) {
  ASSERT_OK(StartServer());
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000001.journal", "the same"));
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000002.journal", "begins so"));
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000003.journal", "differs"));
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000004.journal", "goes"));
  ASSERT_OK(disk_->CreateDirectories("/run/round-00000001"));
  ASSERT_OK(Write(*disk_, "/run/round-00000001/weights", "old"));
  // These changes are made on the server's disk only.
  ASSERT_OK(Write(*here_, "/run/journal/shard-0/00000002.journal", "begins so and goes on"));
  ASSERT_OK(Write(*here_, "/run/journal/shard-0/00000003.journal", "changed"));
  ASSERT_OK(Write(*here_, "/run/journal/shard-0/00000005.journal", "new"));
  ASSERT_OK(here_->RemoveAll("/run/journal/shard-0/00000004.journal"));
  ASSERT_OK(here_->RemoveAll("/run/round-00000001"));
  ASSERT_OK(Write(*here_, "/run/round-00000001", "a file where a directory was"));
  ASSERT_OK(StartServer());
  EXPECT_EQ(Contents(*there_), Contents(*here_));
  // The replica's files also survive a crash.
  std::mt19937_64 chance(1);
  there_->Crash(chance);
  EXPECT_EQ(Contents(*there_), Contents(*here_));
}

TEST_F(ReplicationTest, AServerWithoutItsDiskGoesOnFromTheReplica) {
  ASSERT_OK(StartServer());
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000001.journal", "records"));
  ASSERT_OK(disk_->CreateDirectories("/run/round-00000004"));
  ASSERT_OK(Write(*disk_, "/run/round-00000004/weights", "numbers"));
  const std::map<std::string, std::string> before = Contents(*here_);
  LoseDiskHere();
  ASSERT_OK(StartServer());
  EXPECT_EQ(Contents(*here_), before);
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000002.journal", "more"));
  EXPECT_EQ(Contents(*there_), Contents(*here_));
}

TEST_F(ReplicationTest, CheckpointsOfOthersStayBeside) {
  ASSERT_OK(StartServer());
  ASSERT_OK(disk_->CreateDirectories("/run/round-00000004"));
  ASSERT_OK(Write(*disk_, "/run/round-00000004/weights", "numbers"));
  LoseDiskHere();
  ASSERT_OK(here_->CreateDirectories("/run/round-00000007"));
  ASSERT_OK(Write(*here_, "/run/round-00000007/weights", "of another run"));
  ASSERT_OK(Write(*here_, "/run/round-00000007/MANIFEST.json", "whole"));
  ASSERT_OK(here_->CreateDirectories("/run/round-00000007.abandoned"));
  ASSERT_OK(Write(*here_, "/run/round-00000007.abandoned/weights", "set aside before"));
  // Each attempt is cut after a different number of calls.
  for (int calls = 0; calls < 8; ++calls) {
    int left = calls;
    link_ = [&left] { return left-- > 0 ? absl::OkStatus() : absl::UnavailableError("cut"); };
    StartServer().IgnoreError();
  }
  link_ = nullptr;
  ASSERT_OK(StartServer());
  EXPECT_FALSE(here_->Exists("/run/round-00000007"));
  EXPECT_TRUE(here_->Exists("/run/round-00000007.abandoned/weights"));
  EXPECT_TRUE(here_->Exists("/run/round-00000007.abandoned.2/MANIFEST.json"));
  EXPECT_TRUE(here_->Exists("/run/round-00000004/weights"));
}

TEST_F(ReplicationTest, FetchingIsBegunAnewWhereItWasCutShort) {
  ASSERT_OK(StartServer());
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000001.journal", "records"));
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000002.journal", "more"));
  const std::map<std::string, std::string> before = Contents(*here_);
  LoseDiskHere();
  for (int calls = 0; calls < 8; ++calls) {
    int left = calls;
    link_ = [&left] { return left-- > 0 ? absl::OkStatus() : absl::UnavailableError("cut"); };
    StartServer().IgnoreError();
  }
  link_ = nullptr;
  ASSERT_OK(StartServer());
  EXPECT_EQ(Contents(*here_), before);
}

TEST_F(ReplicationTest, StartsThatWereCutShortAreNoReasonNotToStart) {
  ASSERT_OK(here_->CreateDirectories(kJournal));
  ASSERT_OK(Write(*here_, "/run/journal/shard-0/00000001.journal", "records"));
  // Each attempt is cut after this many calls: some before the replica has recorded the term, some
  // after. A server remembers the terms of all earlier attempts.
  for (const int calls : {0, 0, 3, 0, 5, 0, 9, 1}) {
    int left = calls;
    link_ = [&left] { return left-- > 0 ? absl::OkStatus() : absl::UnavailableError("cut"); };
    EXPECT_EQ(StartServer().code(), absl::StatusCode::kUnavailable) << calls;
  }
  link_ = nullptr;
  ASSERT_OK(StartServer());
  EXPECT_EQ(Contents(*there_), Contents(*here_));
}

TEST_F(ReplicationTest, AServerThatAnotherHasGoneOnWithoutWritesNothingAnyMore) {
  ASSERT_OK(StartServer());
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000001.journal", "records"));
  auto emptied = std::make_unique<SimulatedFileSystem>();
  // The server is frozen, and another machine starts without any files.
  clock_.AdvanceTime(absl::Seconds(5));
  SimulatedFileSystem elsewhere;
  ASSERT_OK(elsewhere.CreateDirectories(kJournal));
  ASSERT_OK(elsewhere.CreateDirectories("/run/journal/coordinator"));
  const std::unique_ptr<Replication> other = MakeServer(&elsewhere, WithNothing());
  storage::FileSystem* const disk = other->AddDisk();
  ASSERT_OK(other->Connect());
  ASSERT_OK(Write(*disk, "/run/journal/shard-0/00000002.journal", "of the other"));
  EXPECT_EQ(Write(*disk_, "/run/journal/shard-0/00000003.journal", "late").code(),
            absl::StatusCode::kAborted);
  EXPECT_FALSE(there_->Exists("/run/journal/shard-0/00000003.journal"));
  // This server is told that it can never write again.
  EXPECT_EQ(server_->Look().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(last_change_.code(), absl::StatusCode::kAborted);
  // The error stays the same if the replica is now empty.
  store_.reset();
  std::swap(there_, emptied);
  StartReplica();
  EXPECT_EQ(server_->Look().code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(store_->HasWhole(0));
  store_.reset();
  std::swap(there_, emptied);
  StartReplica();
  ASSERT_TRUE(absl::IsUnavailable(other->Look()));
  ASSERT_OK(other->Connect());
  // A restart does not help, although this server has all its files.
  const absl::Status started = StartServer();
  EXPECT_EQ(started.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(started.message(), HasSubstr("has continued without this server"));
  ASSERT_OK(Write(*disk, "/run/journal/shard-0/00000004.journal", "of the other"));
}

TEST_F(ReplicationTest, ACopyThatWasNeverWholeIsNotGoneOnFrom) {
  ASSERT_OK(here_->CreateDirectories(kJournal));
  ASSERT_OK(Write(*here_, "/run/journal/shard-0/00000001.journal", "records"));
  int left = 7;
  link_ = [&left] { return left-- > 0 ? absl::OkStatus() : absl::UnavailableError("cut"); };
  ASSERT_EQ(StartServer().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(there_->Exists("/run/journal/shard-0/00000001.journal"));
  link_ = nullptr;
  LoseDiskHere();
  const absl::Status started = StartServer();
  EXPECT_EQ(started.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(started.message(), HasSubstr("incomplete copy"));
  // An incomplete copy cannot be promoted either.
  std::swap(here_, there_);
  const absl::Status promoted = StartServer(/*may_promote=*/true);
  EXPECT_EQ(promoted.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(promoted.message(), HasSubstr("cannot be promoted"));
}

TEST_F(ReplicationTest, AReplicaBecomesTheServerOnlyIfToldSo) {
  ASSERT_OK(StartServer());
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000001.journal", "records"));
  server_.reset();
  store_.reset();
  const std::map<std::string, std::string> before = Contents(*here_);
  here_ = std::exchange(there_, std::make_unique<SimulatedFileSystem>());
  StartReplica();
  const absl::Status started = StartServer();
  EXPECT_EQ(started.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(started.message(), HasSubstr("--promote"));
  // A lease also permits the start, because it says that no other server runs.
  ReplicationStart start;
  start.mark = *ReadReplicationMark(*here_, kJournal);
  start.is_leader = true;
  EXPECT_OK(JudgeStart(start).status());
  // The promoted server may fill a new replica at once.
  ASSERT_OK(StartServer(/*may_promote=*/true));
  EXPECT_EQ(Contents(*here_), before);
  EXPECT_EQ(Contents(*there_), before);
}

TEST_F(ReplicationTest, AnEmptyReplicaIsFilledByWhoMayHaveNoOther) {
  ASSERT_OK(StartServer());
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000001.journal", "records"));
  store_.reset();
  there_ = std::make_unique<SimulatedFileSystem>();
  StartReplica();
  // This process has run all the time since it lost the replica. So no other server has resumed
  // from the replica, and the empty one may be filled.
  server_->Connect().IgnoreError();
  EXPECT_FALSE(Write(*disk_, "/run/journal/shard-0/00000002.journal", "more").ok());
  ASSERT_OK(server_->Connect());
  EXPECT_EQ(Contents(*there_), Contents(*here_));
  store_.reset();
  there_ = std::make_unique<SimulatedFileSystem>();
  StartReplica();
  const absl::Status started = StartServer();
  EXPECT_EQ(started.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(started.message(), HasSubstr("the replica is empty"));
  ASSERT_OK(StartServer(/*may_promote=*/true));
  EXPECT_EQ(Contents(*there_), Contents(*here_));
}

TEST_F(ReplicationTest, PathsThatLeadElsewhereAreRefused) {
  TermRequest request;
  request.term = 1;
  request.connection = 1;
  request.checkpoint_dir = kCheckpoints;
  ASSERT_OK(store_->BeginTerm(request).status());
  for (const MirroredPath& path :
       {MirroredPath{MirroredFolder::kJournal, "../escaped"},
        MirroredPath{MirroredFolder::kJournal, "shard-0/../../escaped"},
        MirroredPath{MirroredFolder::kJournal, "shard-1/00000001.journal"},
        MirroredPath{MirroredFolder::kJournal, "shard-0/LOCK"},
        MirroredPath{MirroredFolder::kJournal, "shard-0/REPLICATION"},
        MirroredPath{MirroredFolder::kJournal, ""},
        MirroredPath{MirroredFolder::kJournal, std::string("shard-0/a\0b", 11)},
        MirroredPath{MirroredFolder::kCheckpoints, "journal/shard-0/00000001.journal"},
        MirroredPath{MirroredFolder::kCheckpoints, "LOCK"}}) {
    const auto lane = store_->OpenLane({0, 1, 1});
    ASSERT_OK(lane.status());
    EXPECT_EQ((*lane)->Carry(CreateFileChange{1, path}).code(), absl::StatusCode::kInvalidArgument)
        << path.path;
  }
  for (const MirroredPath& folder : {MirroredPath{MirroredFolder::kCheckpoints, ""},
                                     MirroredPath{MirroredFolder::kCheckpoints, "/"},
                                     MirroredPath{MirroredFolder::kJournal, "shard-0"},
                                     MirroredPath{MirroredFolder::kJournal, "/coordinator/"}}) {
    const auto lane = store_->OpenLane({0, 1, 1});
    EXPECT_EQ((*lane)->Carry(RemoveChange{folder}).code(), absl::StatusCode::kInvalidArgument)
        << folder.path;
  }
  const auto lane = store_->OpenLane({0, 1, 1});
  EXPECT_EQ((*lane)->Carry(SyncFileChange{7}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->CheckTerm({77, 1, 1}).code(), absl::StatusCode::kUnavailable);
}

TEST_F(ReplicationTest, WhatAnEarlierConnectionHasSentCountsNoMore) {
  TermRequest request;
  request.term = 1;
  request.connection = 1;
  request.checkpoint_dir = kCheckpoints;
  ASSERT_OK(store_->BeginTerm(request).status());
  const auto early = store_->OpenLane({0, 1, 1});
  ASSERT_OK(early.status());
  request.connection = 2;
  ASSERT_OK(store_->BeginTerm(request).status());
  EXPECT_EQ((*early)->Carry(CreateFileChange{1, {MirroredFolder::kJournal, "shard-0/a"}}).code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ReplicationTest, WhatIsDamagedHereDoesNotTakeThePlaceOfTheCopy) {
  ASSERT_OK(StartServer());
  QueueExecutor executor;
  {
    auto writer = journal::JournalWriter::Create({kJournal, {}},
                                                 {.file_system = disk_, .executor = &executor});
    ASSERT_OK(writer.status());
    for (int i = 0; i < 3; ++i) (*writer)->Append({.text = "a record"}, [] {});
    executor.RunAll();
  }
  const std::map<std::string, std::string> before = Contents(*there_);
  server_.reset();
  ASSERT_OK(Write(*here_, "/run/journal/shard-0/00000001.journal", "damaged"));
  const absl::Status started = StartServer();
  EXPECT_EQ(started.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(started.message(), HasSubstr("is damaged"));
  EXPECT_EQ(Contents(*there_), before);
  // The error message advises this: move the journal away and start again.
  LoseDiskHere();
  ASSERT_OK(StartServer());
  EXPECT_EQ(Contents(*here_), before);
}

class ReplicatedRecordsTest : public ReplicationTest {
 protected:
  // Writes `count` records on both sides, each in its own segment.
  void WriteRecords(int count) {
    ASSERT_OK(StartServer());
    QueueExecutor executor;
    auto writer = journal::JournalWriter::Create({kJournal, {}},
                                                 {.file_system = disk_, .executor = &executor});
    ASSERT_OK(writer.status());
    for (int i = 0; i < count; ++i) {
      (*writer)->BeginSegment({.text = "a record"}, [] {});
      executor.RunAll();
      after_.push_back(Contents(*here_));
    }
  }
  // Restores earlier contents on the server's disk only, like a return to a snapshot.
  void GoBackTo(const std::map<std::string, std::string>& contents) {
    server_.reset();
    ASSERT_OK(here_->RemoveAll(journal::JournalSegmentPath(kJournal, 3)));
    for (const auto& [path, text] : contents) {
      if (text == "directory") continue;
      ASSERT_OK(Write(*here_, path, text));
    }
  }
  void ExpectRefused(absl::string_view words) {
    const std::map<std::string, std::string> before = Contents(*there_);
    const absl::Status started = StartServer();
    EXPECT_EQ(started.code(), absl::StatusCode::kFailedPrecondition) << started;
    EXPECT_THAT(started.message(), HasSubstr(words));
    EXPECT_EQ(Contents(*there_), before);
    // The error message advises this: move the journal away and start again.
    LoseDiskHere();
    ASSERT_OK(StartServer());
    EXPECT_EQ(Contents(*here_), before);
  }

  std::vector<std::map<std::string, std::string>> after_;  // contents after each record
};

TEST_F(ReplicatedRecordsTest, WhatIsOlderHereDoesNotTakeThePlaceOfTheCopy) {
  WriteRecords(3);
  GoBackTo(after_[1]);
  ExpectRefused("ends with record 2, and records up to 3 were acknowledged");
}

TEST_F(ReplicatedRecordsTest, MissingFilesAreNotRemovedFromTheCopy) {
  WriteRecords(3);
  GoBackTo(after_[2]);
  ASSERT_OK(here_->RemoveAll(journal::JournalSegmentPath(kJournal, 3)));
  ASSERT_OK(here_->RemoveAll(journal::JournalWatermarkPath(kJournal)));
  ExpectRefused("ends with record 2, and records up to 3 were acknowledged");
}

TEST_F(ReplicatedRecordsTest, WhatARunningServerHasLostStaysInTheCopy) {
  WriteRecords(3);
  ASSERT_OK(here_->RemoveAll(journal::JournalSegmentPath(kJournal, 2)));
  const std::map<std::string, std::string> before = Contents(*there_);
  StartReplica();
  EXPECT_FALSE(server_->Look().ok());
  const absl::Status connected = server_->Connect();
  EXPECT_EQ(connected.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(connected.message(), HasSubstr("00000002.journal is gone"));
  EXPECT_EQ(last_change_, connected);
  EXPECT_EQ(Contents(*there_), before);
}

TEST_F(ReplicatedRecordsTest, WhatWasSetAsideMayBeRemovedByHand) {
  WriteRecords(2);
  const std::string aside = journal::JournalSegmentPath(kJournal, 1) + ".damaged";
  ASSERT_OK(Write(*disk_, aside, "what could not be read"));
  ASSERT_OK(here_->RemoveAll(aside));
  StartReplica();
  EXPECT_FALSE(server_->Look().ok());
  ASSERT_OK(server_->Connect());
  EXPECT_FALSE(there_->Exists(aside));
}

TEST_F(ReplicationTest, LostAndDamagedCheckpointsAreTakenFromTheReplica) {
  ASSERT_OK(StartServer());
  for (const int round : {1, 2, 3}) {
    WriteCheckpoint(*disk_, absl::StrCat("/run/", checkpoints::CheckpointName(Round(round))), round,
                    "weights");
  }
  const std::map<std::string, std::string> before = Contents(*there_);
  server_.reset();
  ASSERT_OK(Write(*here_, "/run/round-00000002/weights", "wEights"));
  ASSERT_OK(here_->RemoveAll("/run/round-00000003"));
  ASSERT_OK(StartServer());
  EXPECT_EQ(Contents(*here_), before);
  EXPECT_EQ(Contents(*there_), before);
  server_.reset();
  // The replica has a checkpoint that is older than all checkpoints here. It is not fetched: the
  // server may have been stopped while it removed this checkpoint.
  ASSERT_OK(here_->RemoveAll("/run/round-00000001"));
  ASSERT_OK(StartServer());
  EXPECT_FALSE(here_->Exists("/run/round-00000001"));
  EXPECT_FALSE(there_->Exists("/run/round-00000001"));
  server_.reset();
  ASSERT_OK(here_->RemoveAll("/run/round-00000002"));
  ASSERT_OK(here_->RemoveAll("/run/round-00000003"));
  const std::map<std::string, std::string> left = Contents(*there_);
  ASSERT_OK(StartServer());
  EXPECT_EQ(Contents(*here_), left);
}

TEST_F(ReplicationTest, ADamagedCheckpointOfTheReplicaTakesNobodysPlace) {
  ASSERT_OK(StartServer());
  WriteCheckpoint(*disk_, "/run/round-00000002", 2, "weights");
  server_.reset();
  ASSERT_OK(Write(*here_, "/run/round-00000002/weights", "wEights"));
  ASSERT_OK(Write(*there_, "/run/round-00000002/weights", "weighTs"));
  StartReplica();
  ASSERT_OK(StartServer());
  EXPECT_EQ(*here_->ReadWholeFile("/run/round-00000002/weights", 100), "wEights");
}

TEST_F(ReplicationTest, AServerWithoutAJournalWaitsUntilTheOtherHasEnded) {
  ASSERT_OK(StartServer());
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000001.journal", "records"));
  SimulatedFileSystem other;
  const std::unique_ptr<Replication> stranger = MakeServer(&other, WithNothing());
  for (const char* const folder : {kJournal, "/run/journal/coordinator"}) {
    ASSERT_OK(other.CreateDirectories(folder));
  }
  const absl::Status refused = stranger->Connect();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("the server on here has written to this replica"));
  ASSERT_OK(server_->Look());
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000002.journal", "more"));
  server_.reset();
  ASSERT_OK(stranger->Connect());
}

// If another server has taken over the folders, it may have used this replica before the replica
// was emptied.
TEST_F(ReplicationTest, WhoHasLostItsFoldersFillsNoReplica) {
  ASSERT_OK(StartServer());
  store_.reset();
  there_ = std::make_unique<SimulatedFileSystem>();
  StartReplica();
  ASSERT_TRUE(absl::IsUnavailable(server_->Look()));
  confirmed_ = absl::AlreadyExistsError("held by another");
  EXPECT_EQ(server_->Connect().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(store_->HasWhole(0));
  confirmed_ = absl::OkStatus();
  ASSERT_OK(server_->Connect());
}

// The silent server sends nothing more, but its connection stays open, as after a power loss of its
// machine.
TEST_F(ReplicationTest, WhoHasBeenSilentForLongIsWaitedForNoMore) {
  ASSERT_OK(StartServer());
  SimulatedFileSystem other;
  const std::unique_ptr<Replication> stranger = MakeServer(&other, WithNothing());
  for (const char* const folder : {kJournal, "/run/journal/coordinator"}) {
    ASSERT_OK(other.CreateDirectories(folder));
  }
  clock_.AdvanceTime(absl::Seconds(4));
  EXPECT_EQ(stranger->Connect().code(), absl::StatusCode::kUnavailable);
  clock_.AdvanceTime(absl::Seconds(1));
  ASSERT_OK(stranger->Connect());
}

TEST_F(ReplicationTest, NothingIsPromotedWhereThereIsNothing) {
  ReplicationStart start;
  start.folder = kJournal;
  start.may_promote = true;
  const absl::Status judged = JudgeStart(start).status();
  EXPECT_EQ(judged.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(judged.message(), HasSubstr("there is nothing to promote"));
  start.has_journal = true;  // without a mark: the server never had a replica
  ASSERT_OK(JudgeStart(start).status());
}

TEST_F(ReplicationTest, WhatTheReplicaHasFromBeforeIsOnItsDiskOnceItHasEverything) {
  ASSERT_OK(StartServer());
  const std::string path = "/run/journal/shard-0/00000001.journal";
  {
    const auto file = disk_->Create(path, storage::FileSystem::IfExists::kFail);
    ASSERT_OK(file.status());
    ASSERT_OK((*file)->Append("records"));
  }
  ASSERT_OK(Write(*here_, path, "records"));  // the records are on the server's disk
  StartReplica();
  ASSERT_TRUE(absl::IsUnavailable(server_->Look()));
  ASSERT_OK(server_->Connect());
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 chance(seed);
    there_->Crash(chance);
    ASSERT_EQ(Contents(*there_), Contents(*here_)) << seed;
  }
}

TEST_F(ReplicationTest, WhatIsRemovedUnderTheReplicaIsSentAgain) {
  ASSERT_OK(StartServer());
  const std::string path = "/run/journal/shard-0/00000001.journal";
  {
    const auto file = disk_->Create(path, storage::FileSystem::IfExists::kFail);
    ASSERT_OK(file.status());
    ASSERT_OK((*file)->Append("records"));
    ASSERT_OK((*file)->Sync());
    // If the server itself renames a file, the file does not count as missing on the replica.
    ASSERT_OK(disk_->Rename(path, path + ".other"));
    ASSERT_OK((*file)->Sync());
    ASSERT_OK(disk_->Rename(path + ".other", path));
    ASSERT_OK(there_->RemoveAll(path));
    const absl::Status synced = (*file)->Sync();
    EXPECT_EQ(synced.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(synced.message(), HasSubstr("is gone"));
  }
  ASSERT_OK(server_->Connect());
  EXPECT_TRUE(there_->Exists(path));
}

TEST_F(ReplicationTest, AJournalThatWasWrittenWithoutTheReplicaIsNotCalledOutdated) {
  ASSERT_OK(StartServer());
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000001.journal", "records"));
  server_.reset();
  ASSERT_OK(RemoveReplicationMark(*here_, kJournal));  // as --promote without a replica does
  ASSERT_OK(Write(*here_, "/run/journal/shard-0/00000001.journal", "records, and more"));
  const absl::Status started = StartServer();
  EXPECT_EQ(started.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(started.message(), HasSubstr("an older state of this one"));
}

TEST_F(ReplicationTest, APartOfWhatAnotherReplicaHadIsNotTakenForAll) {
  ASSERT_OK(StartServer());
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000001.journal", "records"));
  ASSERT_OK(Write(*disk_, "/run/journal/shard-0/00000002.journal", "more"));
  LoseDiskHere();
  int left = 4;
  link_ = [&left] { return left-- > 0 ? absl::OkStatus() : absl::UnavailableError("cut"); };
  ASSERT_EQ(StartServer().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(here_->Exists("/run/journal/shard-0/00000001.journal"));
  link_ = nullptr;
  store_.reset();
  there_ = std::make_unique<SimulatedFileSystem>();
  StartReplica();
  EXPECT_EQ(server_->Connect().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(StartServer().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(StartServer(/*may_promote=*/true).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ReplicationTest, FoldersOfAServerAreNoReplicas) {
  ASSERT_OK(there_->CreateDirectories(kJournal));
  ASSERT_OK(Write(*there_, "/run/journal/shard-0/00000001.journal", "records"));
  ReplicaStore::Deps deps;
  deps.disk = there_.get();
  ReplicaStore store(MirroredFolders(kJournals, ""), std::move(deps));
  EXPECT_EQ(store.Open().code(), absl::StatusCode::kFailedPrecondition);
}

// Tests a replicated journal while the server, the replica and the network fail at random.
class ReplicatedJournalTest : public ReplicationTest, public testing::WithParamInterface<uint64_t> {
 protected:
  ReplicatedJournalTest() : chance_(GetParam()) {}
  ~ReplicatedJournalTest() override { writer_.reset(); }

  bool OneIn(int n) { return chance_() % n == 0; }

  // Opens the journal. Expects all durable records, and no record that was not appended.
  void Open() {
    writer_.reset();
    executor_ = std::make_unique<QueueExecutor>();
    // Some attempts to start fail. In the end one succeeds.
    while (!StartServer().ok()) {
      if (!OneIn(10)) continue;
      link_ = nullptr;
      ASSERT_OK(StartServer());
      break;
    }
    uint64_t next = 0;
    auto end = journal::ReadJournal(*disk_, kJournal, [&](const journal::JournalRecord& record) {
      EXPECT_EQ(record.text, absl::StrCat("record ", record.sequence));
      const bool follows = next == 0 ? record.sequence <= std::max<uint64_t>(needed_from_, 1)
                                     : record.sequence == next;
      EXPECT_TRUE(follows) << record.sequence << " after " << next;
      next = record.sequence + 1;
      return absl::OkStatus();
    });
    ASSERT_OK(end.status());
    EXPECT_GE(end->last_sequence, durable_);
    EXPECT_LE(end->last_sequence, appended_);
    appended_ = end->last_sequence;
    while (true) {
      auto writer = journal::JournalWriter::Create(
          {kJournal, *end}, {.file_system = disk_, .executor = executor_.get()});
      if (writer.ok()) {
        writer_ = *std::move(writer);
        break;
      }
      server_->Connect().IgnoreError();
    }
    durable_ = std::max(durable_, appended_);
    Cut();
  }

  void Cut() {
    link_ = [this] { return OneIn(200) ? absl::UnavailableError("cut") : absl::OkStatus(); };
  }

  void Append() {
    const uint64_t number = ++appended_;
    journal::JournalWriter::Record record;
    record.text = absl::StrCat("record ", number);
    auto durable = [this, number] { durable_ = std::max(durable_, number); };
    if (!OneIn(10)) {
      EXPECT_EQ(writer_->Append(std::move(record), durable), number);
      return;
    }
    EXPECT_EQ(writer_->BeginSegment(std::move(record), durable), number);
    if (durable_ > needed_from_ && OneIn(2)) {
      needed_from_ = durable_;
      writer_->RemoveBefore(needed_from_);
    }
  }

  void EndServer() {
    writer_.reset();
    executor_.reset();
    server_.reset();
  }

  std::mt19937_64 chance_;
  std::unique_ptr<QueueExecutor> executor_;
  std::unique_ptr<journal::JournalWriter> writer_;
  uint64_t appended_ = 0;
  uint64_t durable_ = 0;
  uint64_t needed_from_ = 0;
};

TEST_P(ReplicatedJournalTest, WhatWasAcknowledgedOutlivesEitherMachine) {
  Open();
  for (int step = 0; step < 400; ++step) {
    switch (chance_() % 40) {
      case 0:  // kill -9 of the server
        EndServer();
        Open();
        break;
      case 1:  // the server's machine loses power
        EndServer();
        here_->Crash(chance_);
        Open();
        break;
      case 2:  // the server's machine is lost with its disk
        EndServer();
        LoseDiskHere();
        Open();
        break;
      case 3:  // the replica's process is killed
        StartReplica();
        break;
      case 4:  // the replica's machine loses power
        store_.reset();
        there_->Crash(chance_);
        StartReplica();
        break;
      case 5:  // the replica is promoted, and gets a new replica
        if (store_->copies().empty() || !store_->copies().front().mark.is_whole) break;
        EndServer();
        store_.reset();
        here_ = std::exchange(there_, std::make_unique<SimulatedFileSystem>());
        link_ = nullptr;
        StartReplica();
        ASSERT_OK(StartServer(/*may_promote=*/true));
        Open();
        break;
      case 6:
      case 7:
        if (!server_->state().ok()) server_->Connect().IgnoreError();
        writer_->Tick();
        break;
      default:
        if (OneIn(2)) Append();
        executor_->RunAll();
    }
    if (testing::Test::HasFailure()) FAIL() << "at step " << step;
  }
  EndServer();
  link_ = nullptr;
  LoseDiskHere();
  Open();
  EXPECT_GT(durable_, 20);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ReplicatedJournalTest, testing::Range<uint64_t>(1, 101));

}  // namespace
}  // namespace lodestar::replica
