// SPDX-License-Identifier: Apache-2.0

#include "server/checkpoint/patient_file_system.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPath[] = "/ckpt/weights";

// Fixture with a disk that holds one file. The first reads of the file return errors.
class PatientFileSystemTest : public testing::Test {
 protected:
  PatientFileSystemTest() {
    EXPECT_OK(disk_.CreateDirectories("/ckpt"));
    auto file = storage::SequentialFileWriter::Create(disk_, kPath);
    EXPECT_OK(file);
    EXPECT_OK(file->Append("abcdef"));
    EXPECT_OK(file->Finish(/*sync=*/true));
    disk_.SetFaultHook([this](FileOperation operation, const std::string&) {
      ++num_operations_;
      const bool fails = operation == FileOperation::kRead && num_failures_ > 0;
      if (fails) --num_failures_;
      return fails ? absl::InternalError("cannot read: Input/output error") : absl::OkStatus();
    });
  }

  int num_failures_ = 0;
  int num_operations_ = 0;
  SimulatedFileSystem disk_;
  SimulatedClock clock_{SimulatedClock::OnSleep::kAdvance};
  PatientFileSystem patient_{&disk_, &clock_};
};

TEST_F(PatientFileSystemTest, EveryKindOfReadingIsTriedAgain) {
  const absl::Time begin = clock_.Now();
  num_failures_ = 3;
  EXPECT_EQ(*patient_.ReadWholeFile(kPath, 100), "abcdef");
  EXPECT_EQ(clock_.Now() - begin, absl::Milliseconds(100 + 400 + 1600));
  num_failures_ = 3;
  EXPECT_THAT(*patient_.List("/ckpt"), ElementsAre("weights"));
  num_failures_ = 3;
  EXPECT_EQ(patient_.Map(kPath)->bytes.size(), 6);
  num_failures_ = 3;
  std::string content;
  EXPECT_OK(patient_.Read(kPath, [&](absl::string_view block) {
    absl::StrAppend(&content, block);
    return absl::OkStatus();
  }));
  EXPECT_EQ(content, "abcdef");
}

TEST_F(PatientFileSystemTest, ADiskThatStaysBadIsAnErrorThatSaysHowOftenItWasTried) {
  num_failures_ = 4;
  EXPECT_THAT(patient_.Map(kPath),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("Input/output error (4 times)")));
  EXPECT_EQ(num_operations_, 4);
}

TEST_F(PatientFileSystemTest, WhatAnotherTryWouldNotChangeIsToldAtOnce) {
  EXPECT_THAT(patient_.Map("/ckpt/other"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(patient_.ReadWholeFile(kPath, 3), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(num_operations_, 2);
  EXPECT_THAT(patient_.Read(kPath, [](absl::string_view) { return absl::DataLossError("a sum"); }),
              StatusIs(absl::StatusCode::kDataLoss, "a sum"));
  EXPECT_EQ(num_operations_, 3) << "that the bytes do not please their reader, is not the disk's";
}

// Fixture with a file of three blocks. The first read of it fails after the first block.
class BreaksOff final : public PatientFileSystem {
 public:
  using PatientFileSystem::PatientFileSystem;
  absl::Status Read(const std::string&,
                    absl::FunctionRef<absl::Status(absl::string_view)> take) override {
    const bool is_first = num_readings++ == 0;
    for (const absl::string_view block : {"ab", "cd", "ef"}) {
      if (is_first && block == "cd") return absl::InternalError("Input/output error");
      if (absl::Status taken = take(block); !taken.ok()) return taken;
    }
    return absl::OkStatus();
  }
  int num_readings = 0;
};

TEST_F(PatientFileSystemTest, AReadingThatBreaksOffGoesOnBehindWhatWasTaken) {
  BreaksOff disk(&disk_, &clock_);
  PatientFileSystem patient(&disk, &clock_);
  std::string content;
  EXPECT_OK(patient.Read(kPath, [&](absl::string_view block) {
    absl::StrAppend(&content, block);
    return absl::OkStatus();
  }));
  EXPECT_EQ(content, "abcdef");
  EXPECT_EQ(disk.num_readings, 2);
}

}  // namespace
}  // namespace lodestar::checkpoint
