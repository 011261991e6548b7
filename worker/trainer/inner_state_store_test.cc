// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/inner_state_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/testing/checkpoint_files.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"

namespace lodestar::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class InnerStateStoreTest : public testing::Test {
 protected:
  InnerStateStoreTest() : store_(&disk_, "/state", "a") {
    EXPECT_OK(disk_.CreateDirectories("/state"));
  }
  absl::Status Save(float first) {
    InnerStateRecord record;
    record.job = "--seed=1";
    record.layout_hash = "abc";
    record.round = Round(7);
    record.steps = 35;
    return store_.Save(record, 2, 3, [first](int index, absl::Span<float> values) {
      for (float& value : values) value = first + static_cast<float>(index);
      return absl::OkStatus();
    });
  }

  SimulatedFileSystem disk_;
  InnerStateStore store_;
};

TEST_F(InnerStateStoreTest, GivesBackWhatWasSavedLast) {
  EXPECT_THAT(store_.Load(), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK(Save(1.0f));
  ASSERT_OK(Save(2.5f));
  ASSERT_OK_AND_ASSIGN(const InnerStateStore::Stored stored, store_.Load());
  EXPECT_EQ(stored.record.worker_name, "a");
  EXPECT_EQ(stored.record.job, "--seed=1");
  EXPECT_EQ(stored.record.layout_hash, "abc");
  EXPECT_EQ(stored.record.round, Round(7));
  EXPECT_EQ(stored.record.steps, 35);
  EXPECT_THAT(stored.vectors,
              ElementsAre(ElementsAre(2.5f, 2.5f, 2.5f), ElementsAre(3.5f, 3.5f, 3.5f)));
  ASSERT_OK(store_.Remove());
  EXPECT_THAT(store_.Load(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(disk_.List("/state"), IsOkAndHolds(IsEmpty()));
  EXPECT_OK(store_.Remove());
}

TEST_F(InnerStateStoreTest, DamageIsNoticed) {
  ASSERT_OK(Save(1.0f));
  for (const std::string path : {"/state/inner.safetensors", "/state/inner.json"}) {
    ASSERT_OK_AND_ASSIGN(const std::string whole, disk_.ReadWholeFile(path, 1 << 20));
    for (size_t at = 0; at < whole.size(); at += 3) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x80);
      WriteFile(disk_, path, damaged);
      EXPECT_THAT(store_.Load(), StatusIs(absl::StatusCode::kDataLoss)) << path << " at " << at;
    }
    WriteFile(disk_, path, whole.substr(0, whole.size() / 2));
    EXPECT_THAT(store_.Load(), StatusIs(absl::StatusCode::kDataLoss)) << path;
    WriteFile(disk_, path, whole);
  }
  EXPECT_OK(store_.Load());
}

TEST_F(InnerStateStoreTest, AFailureLeavesNothing) {
  ASSERT_OK(Save(1.0f));
  disk_.SetFaultHook([](FileOperation, absl::string_view path) {
    return absl::StrContains(path, "inner.json.new") ? absl::ResourceExhaustedError("disk full")
                                                     : absl::OkStatus();
  });
  EXPECT_THAT(Save(2.0f), StatusIs(absl::StatusCode::kResourceExhausted));
  disk_.SetFaultHook(nullptr);
  EXPECT_THAT(store_.Load(), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace lodestar::trainer
