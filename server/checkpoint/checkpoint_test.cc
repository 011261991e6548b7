// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/crc32c/crc32c.h"
#include "common/logging/log_tail.h"
#include "common/logging/logging.h"
#include "common/params/bucket_plan.h"
#include "common/params/layout.h"
#include "common/params/shard_plan.h"
#include "common/plan/shard_memory.h"
#include "common/runtime/json.h"
#include "common/storage/file_system.h"
#include "common/storage/safetensors.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"
#include "server/checkpoint/checkpoint_publisher.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/shard_files.h"
#include "server/shard/page.h"
#include "server/shard/shard_state.h"

namespace lodestar::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

const std::vector<std::string> kStateNames = {"exp_avg", "exp_avg_sq"};

params::TensorSpec Tensor(const std::string& name, std::vector<int64_t> shape, int block = 0) {
  params::TensorSpec tensor;
  tensor.name = name;
  tensor.shape = std::move(shape);
  tensor.block = block;
  return tensor;
}

params::Layout TestLayout() {
  // One tensor is so long that every division into more than one server cuts it.
  auto layout = params::Layout::FromTensors({Tensor("embedding", {10, 8}),
                                             Tensor("body.weight", {100, 50}, 1),
                                             Tensor("body.bias", {50}, 1)});
  EXPECT_OK(layout);
  return *layout;
}

// Returns the value of an element in the state of `round`. `vector` is the number of the state
// vector; 0 means the weights.
float ValueAt(int64_t element, int vector, int64_t round) {
  return static_cast<float>(element) * 0.37f + static_cast<float>(vector) * 1e4f +
         static_cast<float>(round);
}

struct Plan {
  std::vector<params::ElementRange> shards;
  std::vector<params::Bucket> buckets;

  std::vector<params::Bucket> BucketsOf(int shard) const {
    std::vector<params::Bucket> own;
    for (const params::Bucket& bucket : buckets) {
      if (bucket.shard == shard) own.push_back(bucket);
    }
    return own;
  }
};

Plan PlanFor(const params::Layout& layout, int num_servers) {
  Plan plan;
  plan.shards = *params::PlanShards(layout, num_servers);
  plan.buckets = *params::PlanBuckets(layout, plan.shards, /*bucket_bytes=*/2048);
  return plan;
}

shard::ShardState StateOf(const Plan& plan, int shard, Round round) {
  shard::ShardState state;
  state.range = plan.shards[shard];
  state.state_names = kStateNames;
  for (const params::Bucket& bucket : plan.BucketsOf(shard)) {
    shard::BucketState& saved = state.buckets.emplace_back();
    saved.range = bucket.range;
    saved.version = Version(round.value());
    saved.counted = {{WorkerId(1), {Incarnation(~uint64_t{0}), Round(round.value() - 1)}}};
    saved.usual_norm = {0.1 + static_cast<double>(bucket.range.begin), 8};
    for (int vector = 0; vector <= 2; ++vector) {
      const std::shared_ptr<shard::Page> page = shard::Page::Create(bucket.range.size());
      for (int64_t i = 0; i < bucket.range.size(); ++i) {
        page->data()[i] = ValueAt(bucket.range.begin + i, vector, round.value());
      }
      if (vector == 0) {
        saved.weights = page;
      } else {
        saved.optimizer_state.push_back(page);
      }
    }
  }
  return state;
}

void ExpectBuckets(const CheckpointReader& reader, const std::vector<params::Bucket>& buckets,
                   Round round) {
  ASSERT_OK(reader.CheckStateNames(kStateNames));
  for (const params::Bucket& bucket : buckets) {
    const auto state = reader.ReadBucket(bucket.range, kStateNames);
    ASSERT_OK(state);
    ASSERT_EQ(state->range, bucket.range);
    EXPECT_EQ(state->version, Version(round.value()));
    ASSERT_EQ(state->counted.size(), 1);
    EXPECT_EQ(state->counted[0].last.incarnation, Incarnation(~uint64_t{0}));
    EXPECT_EQ(state->counted[0].last.round, Round(round.value() - 1));
    for (int64_t i = 0; i < bucket.range.size(); ++i) {
      const int64_t element = bucket.range.begin + i;
      ASSERT_EQ(state->weights->data()[i], ValueAt(element, 0, round.value()));
      ASSERT_EQ(state->optimizer_state[0]->data()[i], ValueAt(element, 1, round.value()));
      ASSERT_EQ(state->optimizer_state[1]->data()[i], ValueAt(element, 2, round.value()));
    }
  }
}

void Overwrite(const std::string& path, int64_t offset, char flip) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const char old = static_cast<char>(file.get());
  file.seekp(offset);
  file.put(static_cast<char>(old ^ flip));
}

absl::Status MayTouchAll(const std::string&) { return absl::OkStatus(); }

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
    root_ = absl::StrCat(testing::TempDir(), "/checkpoints-", getpid(), "-", info->name());
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  // Creates and returns the temporary folder that the shards write into.
  std::string Begin(int64_t round) const {
    std::string directory =
        absl::StrCat(root_, "/", checkpoints::CheckpointName(Round(round)), ".tmp");
    fs::create_directories(directory);
    return directory;
  }
  // Does all steps except publishing.
  checkpoints::Manifest WriteParts(const std::string& directory, Round round, int num_servers) {
    const Plan plan = PlanFor(layout_, num_servers);
    checkpoints::Manifest manifest;
    manifest.round = round;
    manifest.layout = layout_;
    manifest.model = R"({"name": "test"})";
    manifest.coordinator = {{"cursor", 123456789012345}};
    for (int shard = 0; shard < num_servers; ++shard) {
      auto part = WriteShardFiles(storage::FileSystem::Real(),
                                  {directory, shard, num_servers, manifest.model}, layout_,
                                  StateOf(plan, shard, round));
      EXPECT_OK(part);
      // The manifest is formatted and parsed, as on its way from server to coordinator.
      auto parsed = checkpoints::ParseShardManifest(checkpoints::FormatShardManifest(*part));
      EXPECT_OK(parsed);
      manifest.shards.push_back(*parsed);
    }
    return manifest;
  }

  std::string Save(int64_t round, int num_servers, int keep = 3) {
    const std::string directory = Begin(round);
    const checkpoints::Manifest manifest = WriteParts(directory, Round(round), num_servers);
    auto path = PublishCheckpoint(storage::FileSystem::Real(), directory, manifest, MayTouchAll);
    EXPECT_OK(path);
    EXPECT_OK(
        SetAsideNewer(storage::FileSystem::Real(), root_, Round(round), {spared_}, MayTouchAll));
    EXPECT_OK(RemoveOld(storage::FileSystem::Real(), root_, Round(round), {.keep = keep},
                        {"", spared_}, MayTouchAll));
    return *path;
  }

  void ExpectNewest(int64_t round, size_t num_alarms = 0) {
    auto found = FindNewestCheckpoint(storage::FileSystem::Real(), root_);
    ASSERT_OK(found);
    ASSERT_TRUE(found->has_value());
    EXPECT_EQ((*found)->manifest.round, Round(round));
    EXPECT_EQ((*found)->alarms.size(), num_alarms);
    auto reader = CheckpointReader::Open(storage::FileSystem::Real(), (*found)->directory);
    ASSERT_OK(reader);
    ExpectBuckets(**reader, PlanFor(layout_, 1).buckets, Round(round));
  }

  params::Layout layout_ = TestLayout();
  std::string root_;
  std::string spared_;
};

TEST_F(CheckpointTest, ThoseByRoundsStayBesideTheNewest) {
  for (const int64_t round : {10, 13, 20, 27, 30, 31, 34, 36}) {
    Save(round, 1, /*keep=*/9);
  }
  logging::LogTail log;
  logging::KeepLog(&log);
  ASSERT_OK(RemoveOld(storage::FileSystem::Real(), root_, Round(36),
                      {.keep = 2, .every_rounds = 10}, {}, MayTouchAll));
  logging::KeepLog(nullptr);
  const std::vector<logging::LogLineRecord> told = log.Read({}).lines;
  ASSERT_EQ(told.size(), 1);
  EXPECT_THAT(told[0].text, AllOf(HasSubstr("--checkpoint_keep=2"), HasSubstr("round-00000010")));
  const auto left = checkpoints::ListCheckpoints(storage::FileSystem::Real(), root_);
  ASSERT_OK(left);
  std::vector<int64_t> rounds;
  for (const checkpoints::CheckpointEntry& entry : *left) rounds.push_back(entry.round.value());
  EXPECT_THAT(rounds, ElementsAre(36, 34, 30, 20));
}

TEST_F(CheckpointTest, ComesBackOntoAnyNumberOfServersWithEveryBit) {
  for (int written_by : {1, 2, 3}) {
    const std::string path = Save(written_by, written_by);
    auto reader = CheckpointReader::Open(storage::FileSystem::Real(), path);
    ASSERT_OK(reader);
    EXPECT_EQ((*reader)->manifest().coordinator["cursor"], 123456789012345);
    for (int read_by : {1, 2, 3}) {
      ExpectBuckets(**reader, PlanFor(layout_, read_by).buckets, Round(written_by));
    }
  }
}

TEST_F(CheckpointTest, UsualNormsComeBackForBucketsThatAreCutAsTheyWere) {
  auto reader = CheckpointReader::Open(storage::FileSystem::Real(), Save(1, 2));
  ASSERT_OK(reader);
  for (const params::Bucket& bucket : PlanFor(layout_, 2).buckets) {
    const auto state = (*reader)->ReadBucket(bucket.range, kStateNames);
    ASSERT_OK(state);
    const shard::UsualNorm wanted = {0.1 + static_cast<double>(bucket.range.begin), 8};
    EXPECT_EQ(state->usual_norm, wanted);
  }
  params::ElementRange other = PlanFor(layout_, 2).buckets[0].range;
  --other.end;
  const auto state = (*reader)->ReadBucket(other, kStateNames);
  ASSERT_OK(state);
  EXPECT_EQ(state->usual_norm, shard::UsualNorm());
}

TEST_F(CheckpointTest, WhatEarlierReleasesWroteIsReadInTheLayoutOfToday) {
  const params::ModelSpec spec{"small", params::GptSpec{1, 2, 16, 4, 7}};
  const params::Layout today = *params::BuildLayout(spec);
  layout_ = *params::BuildEarlierLayout(spec);
  auto reader = CheckpointReader::Open(storage::FileSystem::Real(), Save(5, 2));
  ASSERT_OK(reader);
  EXPECT_THAT((*reader)->ReadAs(TestLayout()), StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_OK((*reader)->ReadAs(today));
  // In the layout of the earlier release, the matrices of the blocks h.* were [out, in]. Now they
  // are [in, out].
  std::vector<int64_t> written(today.num_elements());
  for (const params::TensorSpec& tensor : today.tensors()) {
    const bool is_turned = tensor.shape.size() == 2 && tensor.name.substr(0, 2) == "h.";
    const int64_t columns = is_turned ? tensor.shape[1] : 1;
    const int64_t rows = tensor.num_elements() / columns;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        written[tensor.offset + row * columns + column] = tensor.offset + column * rows + row;
      }
    }
  }
  ASSERT_FALSE(std::is_sorted(written.begin(), written.end()));
  for (int read_by : {1, 2, 3}) {
    for (const params::Bucket& bucket : PlanFor(today, read_by).buckets) {
      const auto state = (*reader)->ReadBucket(bucket.range, kStateNames);
      ASSERT_OK(state);
      EXPECT_EQ(state->version, Version(5));
      EXPECT_EQ(state->counted.size(), 1);
      for (int64_t i = 0; i < bucket.range.size(); ++i) {
        const int64_t element = written[bucket.range.begin + i];
        ASSERT_EQ(state->weights->data()[i], ValueAt(element, 0, 5));
        ASSERT_EQ(state->optimizer_state[0]->data()[i], ValueAt(element, 1, 5));
        ASSERT_EQ(state->optimizer_state[1]->data()[i], ValueAt(element, 2, 5));
      }
    }
  }
}

TEST_F(CheckpointTest, TensorsAreNamedAsInTheLayoutAndPartsSayWhichElements) {
  const std::string path = Save(4, 2);
  auto first = storage::SafetensorsReader::Open(storage::FileSystem::Real(),
                                                path + "/shard-00000-of-00002.safetensors");
  ASSERT_OK(first);
  ASSERT_NE((*first)->Find("embedding"), nullptr);
  EXPECT_EQ((*first)->Find("embedding")->shape, (std::vector<int64_t>{10, 8}));
  const int64_t cut = PlanFor(layout_, 2).shards[0].end - 80;
  EXPECT_NE((*first)->Find(absl::StrCat("body.weight@0:", cut)), nullptr);
  auto state = storage::SafetensorsReader::Open(
      storage::FileSystem::Real(), path + "/shard-00001-of-00002.optimizer.safetensors");
  ASSERT_OK(state);
  EXPECT_NE((*state)->Find(absl::StrCat("exp_avg/body.weight@", cut, ":5000")), nullptr);
  EXPECT_NE((*state)->Find("exp_avg_sq/body.bias"), nullptr);
}

TEST_F(CheckpointTest, NoneIsNotAnError) {
  auto found = FindNewestCheckpoint(storage::FileSystem::Real(), root_);
  ASSERT_OK(found);
  EXPECT_FALSE(found->has_value());
}

TEST_F(CheckpointTest, DamageOfAnyKindGivesTheOneBeforeAndAnAlarm) {
  Save(10, 2);
  const std::string newest = Save(20, 2);
  const std::string weights = newest + "/shard-00001-of-00002.safetensors";
  const std::string copy = root_ + "/copy";
  fs::copy(newest, copy);
  const auto restore = [&] {
    fs::remove_all(newest);
    fs::copy(copy, newest);
  };
  ExpectNewest(20);

  fs::resize_file(weights, fs::file_size(weights) - 1);
  EXPECT_THAT(checkpoints::VerifyCheckpoint(storage::FileSystem::Real(), newest),
              StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(weights), HasSubstr("bytes"))));
  ExpectNewest(10, 1);

  restore();
  Overwrite(weights, fs::file_size(weights) / 2, 0x10);
  EXPECT_THAT(checkpoints::VerifyCheckpoint(storage::FileSystem::Real(), newest),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("crc32c")));
  ExpectNewest(10, 1);

  restore();
  Overwrite(newest + "/shard-00000-of-00002.optimizer.safetensors", 3000, 0x01);
  ExpectNewest(10, 1);

  restore();
  fs::remove(weights);
  ExpectNewest(10, 1);

  restore();
  fs::remove(newest + "/" + checkpoints::kManifestName);
  EXPECT_THAT(checkpoints::VerifyCheckpoint(storage::FileSystem::Real(), newest),
              StatusIs(absl::StatusCode::kNotFound));
  ExpectNewest(10, 1);

  restore();
  ExpectNewest(20);
}

TEST_F(CheckpointTest, EveryFlippedByteOfTheManifestIsNoticed) {
  const std::string newest = Save(20, 1);
  const std::string path = newest + "/" + checkpoints::kManifestName;
  const auto size = static_cast<int64_t>(fs::file_size(path));
  for (int64_t offset = 0; offset < size; offset += 3) {
    Overwrite(path, offset, 0x01);
    EXPECT_FALSE(checkpoints::VerifyCheckpoint(storage::FileSystem::Real(), newest).ok())
        << "not noticed at byte " << offset;
    Overwrite(path, offset, 0x01);
  }
  EXPECT_OK(checkpoints::VerifyCheckpoint(storage::FileSystem::Real(), newest));
}

TEST_F(CheckpointTest, OneOfALaterVersionIsNoDamageAndNoReasonToTakeAnOlderOne) {
  Save(10, 1);
  const std::string path = Save(20, 1) + "/" + checkpoints::kManifestName;
  ASSERT_OK_AND_ASSIGN(const std::string text,
                       storage::FileSystem::Real().ReadWholeFile(path, 1 << 20));
  ASSERT_OK_AND_ASSIGN(Json manifest, ParseJson(text));
  manifest["format_version"] = checkpoints::kCheckpointFormatVersion + 1;
  const auto write = [&] { std::ofstream(path) << FormatJson(manifest); };
  write();
  ExpectNewest(10, 1);  // a wrong checksum counts as damage
  manifest.erase("crc32c");
  const std::string rest = FormatJson(manifest);
  manifest["crc32c"] = absl::StrFormat("%08x", crc32c::Crc32c(rest.data(), rest.size()));
  write();
  EXPECT_THAT(FindNewestCheckpoint(storage::FileSystem::Real(), root_),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr(path), HasSubstr("format version 2"),
                             HasSubstr("this release reads versions up to 1"), HasSubstr("move"))));
}

TEST_F(CheckpointTest, AllDamagedIsAnErrorNotAFreshStart) {
  const std::string only = Save(10, 1);
  Overwrite(only + "/shard-00000-of-00001.safetensors", 5000, 0x01);
  EXPECT_THAT(FindNewestCheckpoint(storage::FileSystem::Real(), root_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("round-00000010")));
}

TEST_F(CheckpointTest, WhatWillNotBeFinishedIsRemoved) {
  const std::string whole = Save(4, 1);
  const std::string stale = Begin(5);
  WriteParts(stale, Round(5), 1);
  const std::string other = Begin(6);
  DiscardCheckpoint(storage::FileSystem::Real(), other);
  EXPECT_FALSE(fs::exists(other));
  EXPECT_TRUE(fs::exists(stale));
  EXPECT_OK(RemoveUnfinished(storage::FileSystem::Real(), root_, MayTouchAll));
  EXPECT_FALSE(fs::exists(stale));
  EXPECT_TRUE(fs::exists(whole));
}

TEST_F(CheckpointTest, KeepsTheNewestAndOnlyDropsOldOnesAfterTheNewOneVerifies) {
  for (int64_t round : {10, 20, 30}) Save(round, 1);
  EXPECT_TRUE(fs::exists(root_ + "/round-00000010"));
  Save(40, 1, /*keep=*/2);
  EXPECT_FALSE(fs::exists(root_ + "/round-00000010"));
  EXPECT_FALSE(fs::exists(root_ + "/round-00000020"));
  EXPECT_TRUE(fs::exists(root_ + "/round-00000030"));

  const std::string directory = Begin(50);
  const checkpoints::Manifest manifest = WriteParts(directory, Round(50), 1);
  Overwrite(directory + "/shard-00000-of-00001.safetensors", 5000, 0x01);
  EXPECT_THAT(PublishCheckpoint(storage::FileSystem::Real(), directory, manifest, MayTouchAll),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_TRUE(fs::exists(root_ + "/round-00000030"));
  ExpectNewest(40);
}

TEST_F(CheckpointTest, WhatACrashHasLeftOfAReplacementCountsUntilItIsTooMany) {
  fs::rename(Save(10, 1), root_ + "/round-00000010.old");
  fs::copy(Save(20, 1), root_ + "/round-00000020.old");
  Save(30, 1, /*keep=*/3);
  EXPECT_TRUE(fs::exists(root_ + "/round-00000010.old"));
  EXPECT_TRUE(fs::exists(root_ + "/round-00000020"));
  EXPECT_FALSE(fs::exists(root_ + "/round-00000020.old")) << "replaced";
  Save(40, 1, /*keep=*/3);
  EXPECT_FALSE(fs::exists(root_ + "/round-00000010.old")) << "one too many";
}

TEST_F(CheckpointTest, ResumingFromBeforeSetsTheAbandonedFutureAside) {
  for (int64_t round : {10, 20, 30}) Save(round, 1);
  Save(15, 1);
  ExpectNewest(15);
  EXPECT_TRUE(fs::exists(root_ + "/round-00000030.abandoned"));
}

TEST_F(CheckpointTest, WhatWasSetAsideIsNeverRemoved) {
  for (int64_t round : {10, 20, 30}) Save(round, 1);
  Save(5, 2);
  for (int i = 2; i <= 10; ++i) {
    Save(10, 2);
    Save(6, 2, /*keep=*/1);
  }
  EXPECT_TRUE(fs::exists(root_ + "/round-00000010.abandoned/shard-00000-of-00001.safetensors"));
  EXPECT_TRUE(fs::exists(root_ + "/round-00000010.abandoned.2/shard-00001-of-00002.safetensors"));
  EXPECT_TRUE(fs::exists(root_ + "/round-00000030.abandoned"));
  ExpectNewest(6);
  const auto entries = checkpoints::ListCheckpoints(storage::FileSystem::Real(), root_);
  ASSERT_OK(entries);
  EXPECT_EQ((*entries)[2].path, root_ + "/round-00000010.abandoned.10") << "the last of the round";
  EXPECT_EQ((*entries)[2].suffix, checkpoints::kAbandonedSuffix);
}

TEST_F(CheckpointTest, TheLogSaysWhenManyAreSetAside) {
  const auto log_of = [this](int64_t round) {
    Save(round, 1);
    testing::internal::CaptureStderr();
    EXPECT_OK(SetAsideNewer(storage::FileSystem::Real(), root_, Round(1), {}, MayTouchAll));
    return testing::internal::GetCapturedStderr();
  };
  for (int64_t round = 11; round < 11 + kManySetAside; ++round) {
    EXPECT_EQ(log_of(round), "") << round;
  }
  EXPECT_THAT(log_of(11), HasSubstr(root_ + " has 9 checkpoints that were set aside"));
  EXPECT_THAT(log_of(20), HasSubstr(root_ + " has 10 checkpoints that were set aside"));
  testing::internal::CaptureStderr();
  EXPECT_OK(SetAsideNewer(storage::FileSystem::Real(), root_, Round(1), {}, MayTouchAll));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "none has come";
}

TEST_F(CheckpointTest, WhatCameLastOfARoundIsSetAsideAndNotWhatItHasReplaced) {
  Save(10, 1);
  fs::copy(Save(20, 2), root_ + "/round-00000020.old");
  fs::rename(Save(30, 1), root_ + "/round-00000030.old");
  EXPECT_OK(SetAsideNewer(storage::FileSystem::Real(), root_, Round(10), {}, MayTouchAll));
  ExpectNewest(10);
  EXPECT_TRUE(fs::exists(root_ + "/round-00000020.abandoned"));
  EXPECT_TRUE(fs::exists(root_ + "/round-00000030.abandoned"));
}

TEST_F(CheckpointTest, TheOneThatIsSparedIsNeitherRemovedNorRenamed) {
  spared_ = Save(10, 1) + "/";
  for (int64_t round : {20, 30}) Save(round, 1, /*keep=*/1);
  EXPECT_TRUE(fs::exists(spared_));
  EXPECT_FALSE(fs::exists(root_ + "/round-00000020"));
  Save(5, 1);
  EXPECT_TRUE(fs::exists(spared_));
  spared_ = root_ + "/round-00000030.abandoned";
  Save(20, 1);
  Save(15, 1);
  EXPECT_TRUE(fs::exists(spared_));
}

TEST_F(CheckpointTest, HowNewACheckpointIsItsManifestSaysNotItsName) {
  const std::string misnamed = root_ + "/round-99";
  fs::rename(Save(20, 1), misnamed);
  auto found = FindNewestCheckpoint(storage::FileSystem::Real(), root_);
  ASSERT_OK(found);
  EXPECT_EQ((*found)->directory, misnamed);
  EXPECT_THAT((*found)->alarms,
              ElementsAre(AllOf(HasSubstr(misnamed + " IS MISNAMED"), HasSubstr("round 20"))));
  EXPECT_EQ(Save(20, 1), root_ + "/round-00000020");
  EXPECT_EQ((**FindNewestCheckpoint(storage::FileSystem::Real(), root_)).directory,
            root_ + "/round-00000020");
  Save(21, 1);
  ExpectNewest(21, 1);
  EXPECT_TRUE(fs::exists(misnamed)) << "taken for a future that was left behind";
  fs::rename(misnamed, root_ + "/round-3");
  Save(15, 1);
  ExpectNewest(15);
}

TEST_F(CheckpointTest, AFullDiskIsAnErrorThatNamesTheNumbers) {
  SimulatedFileSystem disk;
  disk.SetCapacity(45000);  // enough for the weights only
  const std::string directory = "/runs/round-00000020.1.tmp";
  ASSERT_OK(disk.CreateDirectories(directory));
  const Plan plan = PlanFor(layout_, 1);
  EXPECT_THAT(WriteShardFiles(disk, {directory, 0, 1, ""}, layout_, StateOf(plan, 0, Round(20))),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr(directory + "/shard-00000-of-00001.optimizer.safetensors"),
                             HasSubstr("needs 41040 bytes"))));
  EXPECT_THAT(disk.List(directory), IsOkAndHolds(testing::IsEmpty()))
      << "files of the failed write are still there";
}

TEST_F(CheckpointTest, ALinkInThePlaceOfAFileIsNotWrittenThrough) {
  const std::string directory = Begin(20);
  const std::string other = root_ + "/other";
  std::ofstream(other) << "precious";
  fs::create_symlink(other, directory + "/shard-00000-of-00001.safetensors");
  const Plan plan = PlanFor(layout_, 1);
  EXPECT_OK(WriteShardFiles(storage::FileSystem::Real(), {directory, 0, 1, ""}, layout_,
                            StateOf(plan, 0, Round(20)))
                .status());
  EXPECT_EQ(fs::file_size(other), 8u);
  EXPECT_FALSE(fs::is_symlink(directory + "/shard-00000-of-00001.safetensors"));
}

// Limits the size of the files that this process writes, for as long as the object exists.
class FileSizeLimited {
 public:
  explicit FileSizeLimited(rlim_t num_bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit limit = {num_bytes, limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimited() {
    setrlimit(RLIMIT_FSIZE, &limit_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit limit_ = {};
  void (*const handler_)(int);
};

TEST_F(CheckpointTest, FileBeyondTheLimitOfFileSizesIsAnErrorThatNamesTheLimit) {
  const std::string directory = Begin(20);
  const Plan plan = PlanFor(layout_, 1);
  absl::StatusOr<checkpoints::ShardManifest> result;
  {
    const FileSizeLimited limited(10000);
    result = WriteShardFiles(storage::FileSystem::Real(), {directory, 0, 1, ""}, layout_,
                             StateOf(plan, 0, Round(20)));
  }
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kResourceExhausted,
                               AllOf(HasSubstr("10000 bytes"), HasSubstr("ulimit -f"))));
  EXPECT_TRUE(fs::is_empty(directory));
}

TEST_F(CheckpointTest, SizesOfFilesAreComparedWithTheLimitBeforeTheyAreWritten) {
  const plan::ShardMemory memory = {.weights = 4000, .optimizer_state = 8000};
  const auto check = [&memory](rlim_t limit) {
    const FileSizeLimited limited(limit);
    return CheckShardFileSizes(3, memory);
  };
  EXPECT_OK(CheckShardFileSizes(3, memory));
  EXPECT_OK(check(8000));
  EXPECT_THAT(check(7999), StatusIs(absl::StatusCode::kFailedPrecondition,
                                    AllOf(HasSubstr("optimizer states of shard 3"),
                                          HasSubstr("8000 bytes"), HasSubstr("7999 bytes"))));
  EXPECT_THAT(check(3999),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("weights of shard 3")));
}

#ifndef LODESTAR_SANITIZER  // sanitizers need more address space than the limit leaves
int64_t AddressSpaceBytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

TEST_F(CheckpointTest, AFileIsVerifiedWithoutMemoryForAllOfIt) {
  constexpr int64_t kFileBytes = 64 << 20;
  const std::string folder = testing::TempDir();
  std::ofstream(folder + "/zeros").close();
  std::filesystem::resize_file(folder + "/zeros", kFileBytes);
  checkpoints::CheckpointFile file;
  file.name = "zeros";
  file.num_bytes = kFileBytes;
  const std::vector<uint8_t> block(1 << 20);
  for (int64_t i = 0; i < kFileBytes; i += static_cast<int64_t>(block.size())) {
    file.crc32c = crc32c::Crc32c(block, file.crc32c);
  }
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit tight = {static_cast<rlim_t>(AddressSpaceBytes() + kFileBytes / 2), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  const absl::Status verified =
      checkpoints::VerifyCheckpointFile(storage::FileSystem::Real(), folder, file);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_OK(verified);
  std::filesystem::remove(folder + "/zeros");
}
#endif

TEST_F(CheckpointTest, OtherOptimizerStateIsRefusedByName) {
  auto reader = CheckpointReader::Open(storage::FileSystem::Real(), Save(10, 1));
  ASSERT_OK(reader);
  EXPECT_THAT((*reader)->CheckStateNames({"momentum"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("exp_avg_sq"), HasSubstr("momentum"))));
}

}  // namespace
}  // namespace lodestar::checkpoint
