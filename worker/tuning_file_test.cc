// SPDX-License-Identifier: Apache-2.0

#include "worker/tuning_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/output/output_file.h"
#include "common/runtime/file_io.h"
#include "common/storage/file_system.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/status_matchers.h"
#include "common/testing/unprivileged_thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/testing/emulated_device.h"
#include "kernels/factory/device_factory.h"

namespace lodestar::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TuningFileTest : public testing::Test {
 protected:
  TuningFileTest() {
    EXPECT_OK(storage::FileSystem::Real().RemoveAll(folder_));
    EXPECT_OK(storage::FileSystem::Real().CreateDirectories(folder_));
  }

  std::unique_ptr<TuningFile> Open() {
    return std::make_unique<TuningFile>(path_, &clock_,
                                        [this](logging::LogLevel level, absl::string_view line) {
                                          EXPECT_EQ(level, logging::LogLevel::kWarn);
                                          log_.emplace_back(line);
                                        });
  }
  std::string Contents() const { return *ReadWholeFile(path_, 1 << 20); }
  std::vector<std::string> Names() const { return *storage::FileSystem::Real().List(folder_); }
  static std::string Line(absl::string_view line) {
    return absl::StrCat(kernels::kTuningTextBegin, "1\n", line);
  }

  // Returns an emulated card. Of the matrix algorithms that its heuristic proposes, number
  // `fastest` is the fastest.
  static std::unique_ptr<kernels::Device> Card(const std::string& text, int fastest) {
    emulator::Settings settings;
    settings.algorithm_microseconds = {2.0, 2.0, 2.0};
    settings.algorithm_microseconds[fastest] = 1.0;
    return cuda::MakeEmulatedDevice({.tuning = text}, settings);
  }
  // Returns the product of matrices of [rows, 40] and [40, 16].
  static std::vector<float> Multiply(kernels::Device& device, int64_t rows) {
    std::vector<float> values(rows * 40 + 40 * 16);
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
    std::vector<float> result(rows * 16);
    const auto total = static_cast<int64_t>(values.size() + result.size());
    const kernels::Buf memory = {*device.Allocate(total * sizeof(float)), kernels::DType::kF32,
                                 total};
    const kernels::Buf a = memory.Slice(0, rows * 40);
    const kernels::Buf c = memory.Slice(static_cast<int64_t>(values.size()), rows * 16);
    device.Copy(a.data, values.data(), values.size() * sizeof(float),
                kernels::StreamKind::kCompute);
    device.MatMul({.m = rows, .n = 16, .k = 40}, c, a, memory.Slice(rows * 40, 40 * 16),
                  kernels::Accumulate::kSet);
    device.Copy(result.data(), c.data, result.size() * sizeof(float),
                kernels::StreamKind::kCompute);
    EXPECT_OK(device.Synchronize(device.Record(kernels::StreamKind::kCompute)));
    device.Release(memory.data);
    return result;
  }

  SimulatedClock clock_{SimulatedClock::OnSleep::kAdvance};
  const std::string folder_ = absl::StrCat(testing::TempDir(), "/tuning_file");
  const std::string path_ = absl::StrCat(folder_, "/tuning");
  std::vector<std::string> log_;
};

TEST_F(TuningFileTest, ALaterRunChoosesTheSame) {
  std::vector<float> first;
  {
    const auto file = Open();
    const auto card = Card(file->TextForDevice(), 1);
    file->Tell(*card);
    first = Multiply(*card, 9);
    file->Keep(*card, absl::ZeroDuration());
  }
  EXPECT_THAT(Names(), ElementsAre("tuning"));
  const std::string contents = Contents();
  EXPECT_THAT(contents, AllOf(HasSubstr("card: emulated card\n"), HasSubstr("candidate 2 of 3")));
  const auto file = Open();
  const auto card = Card(file->TextForDevice(), 2);
  file->Tell(*card);
  EXPECT_EQ(Multiply(*card, 9), first);
  EXPECT_NE(Multiply(*Card("", 2), 9), first);
  file->Keep(*card, absl::ZeroDuration());
  EXPECT_EQ(Contents(), contents);
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(TuningFileTest, WorkersOfOneMachineShareIt) {
  const auto file = Open();
  const auto other = Open();
  const auto card = Card(file->TextForDevice(), 1);
  Multiply(*card, 9);
  const auto other_card = Card(other->TextForDevice(), 2);
  Multiply(*other_card, 10);
  file->Keep(*card, absl::ZeroDuration());
  other->Keep(*other_card, absl::ZeroDuration());
  EXPECT_THAT(Contents(), AllOf(HasSubstr("fp32 9 x 16"), HasSubstr("fp32 10 x 16")));
}

TEST_F(TuningFileTest, TwoThatWriteAtOnceLoseNothing) {
  constexpr int kWrites = 20;
  const auto write = [&](const std::string& name) {
    const TuningFile file(path_, &Clock::Real());
    for (int i = 0; i < kWrites; ++i) {
      EXPECT_OK(file.Update(
          [&](absl::string_view kept) {
            return absl::StrCat(kept.empty() ? Line("") : kept, name, i, "\n");
          },
          absl::Minutes(10)));
    }
  };
  std::thread other([&] { write("other "); });
  write("own ");
  other.join();
  for (int i = 0; i < kWrites; ++i) {
    EXPECT_THAT(Contents(), AllOf(HasSubstr(absl::StrCat("own ", i, "\n")),
                                  HasSubstr(absl::StrCat("other ", i, "\n"))));
  }
  EXPECT_THAT(Names(), ElementsAre("tuning"));
}

TEST_F(TuningFileTest, WhatAnotherProcessHoldsIsWrittenLater) {
  const auto file = Open();
  const auto card = Card(file->TextForDevice(), 1);
  Multiply(*card, 9);
  const int holder = open(folder_.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(holder, LOCK_EX), 0);
  file->Keep(*card, absl::ZeroDuration());
  EXPECT_THAT(log_, IsEmpty()) << "it will be tried again";
  const absl::Time before = clock_.Now();
  file->Keep(*card, TuningFile::kPatience);
  EXPECT_GE(clock_.Now() - before, TuningFile::kPatience);
  EXPECT_THAT(log_,
              ElementsAre(AllOf(HasSubstr("cannot be written"), HasSubstr("another process"))));
  EXPECT_THAT(Names(), IsEmpty());
  close(holder);
  file->Keep(*card, absl::ZeroDuration());
  EXPECT_THAT(Contents(), HasSubstr("fp32 9 x 16"));
}

TEST_F(TuningFileTest, AFileOfAnotherCardIsToldAndKeptBesideOnesOwn) {
  {
    const auto file = Open();
    const auto card = Card(file->TextForDevice(), 1);
    Multiply(*card, 9);
    file->Keep(*card, absl::ZeroDuration());
  }
  ASSERT_OK(output::WriteFileAtomically(
      path_, absl::StrReplaceAll(Contents(), {{"card: emulated card", "card: NVIDIA H200"}})));
  const auto file = Open();
  const auto card = Card(file->TextForDevice(), 2);
  file->Tell(*card);
  EXPECT_THAT(log_, ElementsAre(AllOf(HasSubstr(path_), HasSubstr("nothing of it is used"),
                                      HasSubstr("'card: emulated card'"))));
  Multiply(*card, 10);
  file->Keep(*card, absl::ZeroDuration());
  EXPECT_THAT(Contents(), AllOf(HasSubstr("card: emulated card"), HasSubstr("fp32 10 x 16"),
                                HasSubstr("card: NVIDIA H200"), HasSubstr("fp32 9 x 16")));
  EXPECT_EQ(log_.size(), 1);
}

TEST_F(TuningFileTest, WhatIsNoTuningFileStaysAsItIs) {
  ASSERT_OK(output::WriteFileAtomically(path_, "my thesis"));
  const auto file = Open();
  const auto card = Card(file->TextForDevice(), 1);
  Multiply(*card, 9);
  file->Keep(*card, absl::ZeroDuration());
  file->Keep(*card, TuningFile::kPatience);
  EXPECT_EQ(Contents(), "my thesis");
  EXPECT_THAT(log_,
              ElementsAre(AllOf(HasSubstr("is not used"), HasSubstr("not a tuning file")),
                          AllOf(HasSubstr("cannot be written"), HasSubstr("not a tuning file"))));
}

TEST_F(TuningFileTest, WhatCannotBeReadOrWrittenIsToldAndTrainingGoesOn) {
  ASSERT_OK(output::WriteFileAtomically(path_, ""));
  ASSERT_EQ(chmod(path_.c_str(), 0), 0);
  const UnprivilegedThread unprivileged;
  {
    const auto file = Open();
    const auto card = Card(file->TextForDevice(), 1);
    Multiply(*card, 9);
    file->Keep(*card, absl::ZeroDuration());
    EXPECT_THAT(log_,
                ElementsAre(AllOf(HasSubstr("is not used"), HasSubstr("Permission denied")),
                            AllOf(HasSubstr("cannot be written"), HasSubstr("Permission denied"))));
  }
  ASSERT_EQ(chmod(path_.c_str(), S_IRUSR), 0);
  ASSERT_EQ(chmod(folder_.c_str(), S_IRUSR | S_IXUSR), 0);
  log_.clear();
  const auto file = Open();
  const auto card = Card(file->TextForDevice(), 1);
  Multiply(*card, 9);
  file->Keep(*card, absl::ZeroDuration());
  file->Keep(*card, absl::ZeroDuration());
  EXPECT_THAT(log_, ElementsAre(AllOf(HasSubstr("cannot be written"), HasSubstr("tuning.tmp-"))));
  EXPECT_EQ(Contents(), "");
  ASSERT_EQ(chmod(folder_.c_str(), S_IRWXU), 0);
  file->Keep(*card, absl::ZeroDuration());
  EXPECT_THAT(Contents(), HasSubstr("fp32 9 x 16"));
}

TEST_F(TuningFileTest, PathsThatLeadToNoFileAreToldAndNotWaitedFor) {
  ASSERT_EQ(mkfifo(path_.c_str(), S_IRWXU), 0);
  EXPECT_THAT(Open()->Read(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a FIFO")));
  const auto merge = [](absl::string_view) { return Line(""); };
  EXPECT_THAT(Open()->Update(merge, absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kInvalidArgument));
  const TuningFile nowhere(absl::StrCat(folder_, "/nowhere/tuning"), &clock_);
  EXPECT_EQ(*nowhere.Read(), "");
  EXPECT_THAT(nowhere.Update(merge, absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere")));
}

TEST_F(TuningFileTest, ADeviceThatMeasuresNothingHasNoUseForIt) {
  const auto cpu = *factory::MakeDevice("cpu", /*threads=*/1, nullptr);
  const auto file = Open();
  file->Tell(*cpu);
  file->Keep(*cpu, TuningFile::kPatience);
  EXPECT_THAT(log_, ElementsAre(AllOf(HasSubstr("has no effect"), HasSubstr("cpu"))));
  EXPECT_THAT(Names(), IsEmpty());
}

}  // namespace
}  // namespace lodestar::worker
