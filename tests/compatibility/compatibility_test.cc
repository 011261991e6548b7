// SPDX-License-Identifier: Apache-2.0

// Tests that servers continue, to the bit, from what servers of earlier versions left on disk.
// There is a folder per version, recorded with the binaries of that version (record.sh). It is the
// state of a job whose server was killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/checkpoints/trained_weights.h"
#include "common/params/layout.h"
#include "common/runtime/executor.h"
#include "common/testing/checkpoint_files.h"
#include "common/testing/queue_executor.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_memory_json.h"
#include "server/host/coordinator_journal.h"
#include "server/host/shard_host.h"
#include "server/host/shard_log.h"
#include "server/rpc/shard_convert.h"

namespace lodestar {
namespace {

// Folder in which record.sh runs the job. The records contain this path.
constexpr char kRun[] = "/tmp/lodestar-recorded";
constexpr char kJournal[] = "/tmp/lodestar-recorded/checkpoints/journal";

class SilentReports final : public host::ShardReports {
 public:
  void OnEvent(shards::ShardEvent event) override {
    if (const auto* loaded = std::get_if<shards::ShardLoaded>(&event)) {
      EXPECT_OK(loaded->status);
    }
  }
  void OnNotice(absl::string_view text) override { ADD_FAILURE() << text; }
};

class CompatibilityTest : public testing::TestWithParam<std::string> {
 protected:
  // Makes a writable copy of the recorded folder.
  CompatibilityTest() {
    const std::filesystem::path root = absl::StrCat("tests/compatibility/", GetParam());
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      const std::string name = entry.path().lexically_relative(root);
      const std::string path = absl::StrCat(kRun, "/", name);
      if (entry.is_directory()) {
        EXPECT_OK(disk_.CreateDirectories(path));
        continue;
      }
      const auto bytes = storage::FileSystem::Real().ReadWholeFile(entry.path(), 1 << 24);
      EXPECT_OK(disk_.CreateDirectories(path.substr(0, path.rfind('/'))));
      WriteFile(disk_, path, *bytes);
    }
    absl::StatusOr<std::unique_ptr<host::ShardLog>> log = host::ShardLog::Open(
        absl::StrCat(kJournal, "/shard-0"), {.file_system = &disk_,
                                             .executor = &journal_,
                                             .format_assignment = rpc::FormatAssignment,
                                             .parse_assignment = rpc::ParseAssignment});
    EXPECT_OK(log.status());
    if (log.ok()) log_ = *std::move(log);
  }

  const shards::AssignCommand& assignment() const { return log_->beginning()->assignment; }

  SimulatedFileSystem disk_;
  QueueExecutor journal_;
  std::unique_ptr<host::ShardLog> log_;
};

TEST_P(CompatibilityTest, AShardGoesOnFromItsCheckpointAndItsJournal) {
  ASSERT_NE(log_, nullptr);
  ASSERT_TRUE(log_->beginning().has_value());
  InlineExecutor executor;
  SilentReports reports;
  host::ShardHost host(0, {.executor = &executor,
                           .commands = &executor,
                           .writer = &executor,
                           .reports = &reports,
                           .file_system = &disk_,
                           .log = log_.get()});
  EXPECT_THAT(host.Recover(), IsOkAndHolds(true));
  const auto shard = host.shard();
  ASSERT_OK(shard.status());
  const auto exported =
      checkpoints::TrainedWeights::Open(disk_, absl::StrCat(kRun, "/weights.safetensors"));
  ASSERT_OK(exported.status());
  const messages::ClusterMap& map = *assignment().map;
  for (const params::Bucket& bucket : map.buckets) {
    std::vector<float> wanted(bucket.range.size());
    ASSERT_OK((*exported)->Read(map.layout, bucket.range, absl::MakeSpan(wanted)));
    std::optional<std::vector<float>> weights;
    (*shard)->ReadBucket(WorkerId(0), Incarnation(0), bucket.index, Round(0),
                         [&](const absl::StatusOr<shard::PublishedBucket>& read) {
                           ASSERT_OK(read.status());
                           weights.emplace(read->data().begin(), read->data().end());
                         });
    EXPECT_EQ(weights, wanted) << "bucket " << bucket.index;
  }
}

TEST_P(CompatibilityTest, TheCoordinatorGoesOnFromItsJournal) {
  ASSERT_NE(log_, nullptr);
  const auto contents =
      host::CoordinatorJournal::Read(disk_, absl::StrCat(kJournal, "/coordinator"));
  ASSERT_OK(contents.status());
  const absl::Time now = absl::UnixEpoch();
  auto memory = coordinator::CoordinatorMemoryFromRecords(contents->records, now);
  ASSERT_OK(memory.status());
  ASSERT_TRUE(memory->has_value());
  EXPECT_EQ((*memory)->shards.server_incarnation, assignment().server_incarnation);
  coordinator::CoordinatorConfig config;
  config.job = assignment().job;
  config.num_shards = static_cast<int>(assignment().map->servers.size());
  config.checkpoint_dir = absl::StrCat(kRun, "/checkpoints");
  const auto coordinator = coordinator::Coordinator::Resume(config, **std::move(memory), now);
  ASSERT_OK(coordinator.status());
  EXPECT_GT((*coordinator)->rounds_done(), 4) << "its checkpoint";
}

TEST_P(CompatibilityTest, ACheckpointIsReadUnderTheNamesAndShapesOfToday) {
  ASSERT_NE(log_, nullptr);
  const std::string path = absl::StrCat(kRun, "/checkpoints/round-00000004");
  const auto as_written = checkpoint::CheckpointReader::Open(disk_, path);
  const auto as_today = checkpoint::CheckpointReader::Open(disk_, path);
  ASSERT_OK(as_written);
  ASSERT_OK(as_today);
  const params::Layout& written = (*as_written)->manifest().layout;
  const params::Layout today = *params::BuildLayout(assignment().job.model);
  ASSERT_OK((*as_today)->ReadAs(today));
  const std::vector<std::string> state_names = (*as_written)->manifest().shards[0].state_names;
  ASSERT_FALSE(state_names.empty());
  for (const params::TensorSpec& tensor : today.tensors()) {
    const params::EarlierTensor earlier = params::EarlierGptTensor(tensor.name);
    const params::TensorSpec* const there = written.Find(earlier.name);
    ASSERT_NE(there, nullptr) << earlier.name;
    const int64_t count = tensor.num_elements();
    const auto old_state =
        (*as_written)->ReadBucket({there->offset, there->offset + count}, state_names);
    const auto new_state =
        (*as_today)->ReadBucket({tensor.offset, tensor.offset + count}, state_names);
    ASSERT_OK(old_state);
    ASSERT_OK(new_state);
    const int64_t columns = earlier.is_transposed ? tensor.shape[1] : 1;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t old_place = i % columns * (count / columns) + i / columns;
      ASSERT_EQ(new_state->weights->data()[i], old_state->weights->data()[old_place]);
      for (size_t vector = 0; vector < state_names.size(); ++vector) {
        ASSERT_EQ(new_state->optimizer_state[vector]->data()[i],
                  old_state->optimizer_state[vector]->data()[old_place]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, CompatibilityTest, testing::Values("0.1.0"));

}  // namespace
}  // namespace lodestar
