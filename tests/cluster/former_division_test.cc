// SPDX-License-Identifier: Apache-2.0

// Tests servers that are killed with a journal, and started again as another number of servers.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_system.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/host/journal_base.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/wire_client.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kElements = 4500;
constexpr int kRounds = 3;
// Minimum time that a call may be held for. 0 would leave the time to the server.
constexpr absl::Duration kNoHold = absl::Milliseconds(1);

v1::Layout TestLayout() { return FlatLayout({3000, 1500}); }

// Returns a gradient that differs between workers and between elements.
std::vector<float> Gradient(float scale) {
  std::vector<float> gradient(kElements);
  for (size_t i = 0; i < kElements; ++i) gradient[i] = scale / static_cast<float>(i + 3);
  return gradient;
}

// The two workers of a job. A worker that has lost its servers continues with other servers as the
// same worker.
struct Workers {
  explicit Workers(const std::string& address) : first(address, "a", 1), second(address, "b", 2) {}

  absl::Status Enter() {
    for (WireClient* worker : {&first, &second}) {
      RETURN_IF_ERROR(worker->Register(TestLayout()));
      RETURN_IF_ERROR(worker->SupplyAndJoin(Gradient(1.0f)));
    }
    return absl::OkStatus();
  }

  // Trains `rounds` rounds. The last round stays open: the second worker does not contribute to it.
  absl::Status Train(int rounds) {
    std::optional<v1::RoundReport> first_report;
    std::optional<v1::RoundReport> second_report;
    for (int round = 1; round <= rounds; ++round) {
      // A round opens once both workers have asked.
      RETURN_IF_ERROR(first.AskForGrant(first_report, kNoHold).status());
      ASSIGN_OR_RETURN(const v1::Grant other, second.NextGrant(second_report));
      ASSIGN_OR_RETURN(const v1::Grant grant, first.NextGrant(first_report));
      RETURN_IF_ERROR(Push(first, grant, 0.3f));
      first_report = ReportOf(grant);
      if (round == rounds) break;
      RETURN_IF_ERROR(Push(second, other, 0.7f));
      second_report = ReportOf(other);
    }
    return first.AskForGrant(first_report, kNoHold).status();
  }

  static absl::Status Push(WireClient& worker, const v1::Grant& grant, float scale) {
    return worker
        .Push(v1::CONTRIBUTION_KIND_GRADIENT, grant.round(), grant.min_round(), Gradient(scale))
        .status();
  }

  WireClient first;
  WireClient second;
};

class FormerDivisionTest : public testing::Test {
 protected:
  FormerDivisionTest() {
    const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = absl::StrCat(testing::TempDir(), "/former_division/", test);
    std::filesystem::remove_all(folder_);
    config_ = SmallJobConfig();
    config_.job.bucket_bytes = 8192;
    config_.job.optimizer.kind = job::OptimizerKind::kMomentum;
    config_.job.min_workers = 2;
    // The workers send no heartbeats, so their lease must last as long as the test.
    config_.cluster.lease = absl::Minutes(10);
    config_.durability.has_journal = true;
    config_.durability.checkpoint_dir = folder_ + "/run";
    config_.durability.journal_dir = folder_ + "/run/journal";
  }

  std::string JournalOf(int shard) const {
    return absl::StrCat(config_.durability.journal_dir, "/shard-", shard);
  }

  // Trains rounds that are in no checkpoint, and ends the servers without saving.
  absl::Status TrainAndKill(int num_shards) {
    ASSIGN_OR_RETURN(const auto cluster, InProcessCluster::Start(config_, num_shards));
    Workers workers(cluster->address());
    RETURN_IF_ERROR(workers.Enter());
    RETURN_IF_ERROR(workers.Train(kRounds));
    Kill(*cluster, num_shards);
    return absl::OkStatus();
  }

  static void Kill(InProcessCluster& cluster, int num_shards) {
    for (int shard = num_shards - 1; shard >= 0; --shard) {
      cluster.Stop(shard, server::Server::StopKind::kImmediate);
    }
  }

  absl::StatusOr<checkpoint::FoundCheckpoint> Newest() const {
    ASSIGN_OR_RETURN(std::optional<checkpoint::FoundCheckpoint> found,
                     checkpoint::FindNewestCheckpoint(storage::FileSystem::Real(),
                                                      config_.durability.checkpoint_dir));
    if (!found.has_value()) return absl::NotFoundError("there is no checkpoint");
    return *std::move(found);
  }

  // Returns the checkpoint that the killed servers would have written if they had been restarted
  // and stopped in order, after their workers. The folder of the run is restored afterwards.
  absl::StatusOr<checkpoint::FoundCheckpoint> SaveAsOperatorWould(int num_shards) {
    const std::string& run = config_.durability.checkpoint_dir;
    std::filesystem::copy(run, folder_ + "/copy", std::filesystem::copy_options::recursive);
    {
      ASSIGN_OR_RETURN(const auto cluster, InProcessCluster::Start(config_, num_shards));
      Workers workers(cluster->address());
      for (WireClient* worker : {&workers.first, &workers.second}) {
        RETURN_IF_ERROR(worker->Register(TestLayout()));
        RETURN_IF_ERROR(worker->Leave());
      }
      cluster->server(0).Stop(server::Server::StopKind::kGraceful);
      RETURN_IF_ERROR(cluster->server(0).loss());
    }
    absl::StatusOr<checkpoint::FoundCheckpoint> found = Newest();
    std::filesystem::remove_all(run);
    std::filesystem::rename(folder_ + "/copy", run);
    return found;
  }

  std::string folder_;
  server::ServerConfig config_;
};

struct Change {
  int from;
  int to;
};

class DivisionChangeTest : public FormerDivisionTest, public testing::WithParamInterface<Change> {};

TEST_P(DivisionChangeTest, SavesTheSameBitsAsFormerServersThatAreStopped) {
  const auto [from, to] = GetParam();
  ASSERT_OK(TrainAndKill(from));
  ASSERT_OK_AND_ASSIGN(const checkpoint::FoundCheckpoint expected, SaveAsOperatorWould(from));
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config_, to));
  ASSERT_OK_AND_ASSIGN(const checkpoint::FoundCheckpoint saved, Newest());
  EXPECT_EQ(saved.manifest.shards.size(), from);
  EXPECT_EQ(saved.manifest.round, Round(kRounds));
  EXPECT_TRUE(saved.manifest.journal.is_complete);
  EXPECT_EQ(host::ContentChecksum(saved.manifest), host::ContentChecksum(expected.manifest));
  // The new servers have all of the checkpoint.
  Workers workers(cluster->address());
  ASSERT_OK(workers.Enter());
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, workers.first.Pull(kRounds));
  ASSERT_OK_AND_ASSIGN(const auto reader, checkpoint::CheckpointReader::Open(
                                              storage::FileSystem::Real(), saved.directory));
  ASSERT_OK_AND_ASSIGN(const shard::BucketState state,
                       reader->ReadBucket({0, kElements}, {"momentum"}));
  EXPECT_TRUE(absl::c_equal(state.weights->span(), weights));
  EXPECT_NE(weights, Gradient(1.0f));
}

INSTANTIATE_TEST_SUITE_P(Numbers, DivisionChangeTest,
                         testing::Values(Change{2, 1}, Change{1, 2}, Change{2, 3}),
                         [](const auto& info) {
                           return absl::StrCat(info.param.from, "To", info.param.to);
                         });

TEST_F(FormerDivisionTest, LosesNothingWithFormerJournalsInTheFolders) {
  int rounds = 0;
  for (const int num_shards : {3, 2, 3, 1, 3}) {
    ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config_, num_shards));
    Workers workers(cluster->address());
    ASSERT_OK(workers.Enter());
    ASSERT_OK_AND_ASSIGN(const v1::ClusterStatus status, FetchStatus(cluster->address()));
    EXPECT_EQ(status.round(), rounds);
    EXPECT_THAT(status.alarms(), IsEmpty());
    ASSERT_OK(workers.Train(kRounds));
    rounds += kRounds;
    Kill(*cluster, num_shards);
  }
}

TEST_F(FormerDivisionTest, RefusesIfTheJournalOfAShardIsElsewhere) {
  ASSERT_OK(TrainAndKill(2));
  std::filesystem::rename(JournalOf(1), folder_ + "/elsewhere");
  EXPECT_THAT(InProcessCluster::Start(config_, 1).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("0/2"), HasSubstr("shard 1"), HasSubstr("--resume="))));
  EXPECT_FALSE(std::filesystem::exists(JournalOf(1)));
  std::filesystem::rename(folder_ + "/elsewhere", JournalOf(1));
  ASSERT_OK(InProcessCluster::Start(config_, 1).status());
  ASSERT_OK_AND_ASSIGN(const checkpoint::FoundCheckpoint saved, Newest());
  EXPECT_EQ(saved.manifest.round, Round(kRounds));
}

TEST_F(FormerDivisionTest, RefusesIfTheJournalOfAShardIsAnOlderOne) {
  config_.job.min_workers = 1;
  const auto train_and_kill = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const auto cluster, InProcessCluster::Start(config_, 2));
    WireClient worker(cluster->address(), "a", 1);
    RETURN_IF_ERROR(worker.Register(TestLayout()));
    RETURN_IF_ERROR(worker.SupplyAndJoin(Gradient(1.0f)));
    std::optional<v1::RoundReport> report;
    for (int round = 0; round < kRounds; ++round) {
      ASSIGN_OR_RETURN(const v1::Grant grant, worker.NextGrant(report));
      RETURN_IF_ERROR(Workers::Push(worker, grant, 1.0f));
      report = ReportOf(grant);
    }
    Kill(*cluster, 2);
    return absl::OkStatus();
  };
  ASSERT_OK(train_and_kill());
  const auto recursive = std::filesystem::copy_options::recursive;
  std::filesystem::copy(JournalOf(1), folder_ + "/older", recursive);
  ASSERT_OK(train_and_kill());
  std::filesystem::rename(JournalOf(1), folder_ + "/newer");
  std::filesystem::rename(folder_ + "/older", JournalOf(1));
  EXPECT_THAT(InProcessCluster::Start(config_, 3).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("shard 1")));
  std::filesystem::remove_all(JournalOf(1));
  std::filesystem::rename(folder_ + "/newer", JournalOf(1));
  ASSERT_OK(InProcessCluster::Start(config_, 3).status());
}

TEST_F(FormerDivisionTest, RefusesIfTheJournalOfAShardIsOfYetAnotherNumber) {
  ASSERT_OK(TrainAndKill(3));
  const auto recursive = std::filesystem::copy_options::recursive;
  std::filesystem::copy(JournalOf(1), folder_ + "/of_three", recursive);
  ASSERT_OK(TrainAndKill(2));
  std::filesystem::rename(JournalOf(1), folder_ + "/of_two");
  std::filesystem::rename(folder_ + "/of_three", JournalOf(1));
  EXPECT_THAT(InProcessCluster::Start(config_, 1).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("shard 1")));
  std::filesystem::remove_all(JournalOf(1));
  std::filesystem::rename(folder_ + "/of_two", JournalOf(1));
  ASSERT_OK(InProcessCluster::Start(config_, 1).status());
  ASSERT_OK_AND_ASSIGN(const checkpoint::FoundCheckpoint saved, Newest());
  EXPECT_EQ(saved.manifest.round, Round(2 * kRounds));
}

TEST_F(FormerDivisionTest, RefusesIfALivingServerHoldsTheJournalOfAShard) {
  {
    ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config_, 2));
    Workers workers(cluster->address());
    ASSERT_OK(workers.Enter());
    ASSERT_OK(workers.Train(kRounds));
    cluster->Stop(0, server::Server::StopKind::kImmediate);
    EXPECT_THAT(InProcessCluster::Start(config_, 1).status(),
                StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("shard 1")));
  }
  ASSERT_OK(InProcessCluster::Start(config_, 1).status());
}

}  // namespace
}  // namespace lodestar
