// SPDX-License-Identifier: Apache-2.0

#include "server/status/tensorboard_file.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "common/crc32c/crc32c.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::status {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

std::string Hex(absl::string_view bytes) {
  std::string hex;
  for (const char byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[static_cast<unsigned char>(byte) >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

// Returns the events of complete records with correct checksums, up to the first bad record.
std::vector<std::string> EventsOf(absl::string_view file) {
  const auto number_at = [](absl::string_view bytes, auto number) {
    std::memcpy(&number, bytes.data(), sizeof(number));
    return number;
  };
  const auto is_masked = [](uint32_t found, absl::string_view bytes) {
    const uint32_t unrotated = found - 0xa282ead8u;
    return ((unrotated << 15) | (unrotated >> 17)) == crc32c::Crc32c(bytes.data(), bytes.size());
  };
  std::vector<std::string> events;
  while (file.size() >= 16) {
    const uint64_t length = number_at(file, uint64_t{});
    if (file.size() < 16 + length ||
        !is_masked(number_at(file.substr(8), uint32_t{}), file.substr(0, 8))) {
      break;
    }
    const absl::string_view event = file.substr(12, length);
    if (!is_masked(number_at(file.substr(12 + length), uint32_t{}), event)) break;
    events.emplace_back(event);
    file.remove_prefix(16 + length);
  }
  return events;
}

TEST(TensorBoardFileTest, EventsAreThoseOfTensorFlow) {
  // The bytes mean wall_time = 1700000000.0.
  const std::string time = "0900000040fc54d941";
  EXPECT_THAT(EventsOf(TensorBoardHeader(kNow)),
              ElementsAre(::testing::ResultOf(&Hex, time + "1a0d" + Hex("brain.Event:2"))));
  // The bytes mean step = 300; summary = {value {tag: "a" simple_value: 1.5}}.
  EXPECT_THAT(EventsOf(TensorBoardRound(Round(300), kNow, {{"a", 1.5}})),
              ElementsAre(::testing::ResultOf(
                  &Hex, time + "10ac02" + "2a0a" + "0a08" + "0a0161" + "150000c03f")));
  // The bytes mean step = 7; session_log = {status: START}.
  EXPECT_THAT(EventsOf(TensorBoardRestart(Round(7), kNow)),
              ElementsAre(::testing::ResultOf(&Hex, time + "1007" + "3a02" + "0801")));
}

TEST(TensorBoardFileTest, WhatIsNotKnownOrNotFiniteIsNotThere) {
  rounds::RoundSummary summary;
  summary.round = Round(3);
  summary.train_loss = NAN;
  summary.heldout_loss = 2.5;
  summary.learning_rate = 0.1;
  summary.workers = 2;
  summary.total_samples = 40;
  summary.duration = absl::Milliseconds(500);
  summary.metrics = {{"grad_norm", 1.25}};
  EXPECT_THAT(ScalarsOf(summary),
              ElementsAre(Pair("loss/heldout", 2.5), Pair("progress/learning_rate", 0.1),
                          Pair("progress/workers", 2), Pair("progress/seconds_of_round", 0.5),
                          Pair("progress/samples", 40), Pair("program/grad_norm", 1.25)));
}

TEST(TensorBoardFileTest, RecordsAreInTheFileAtOnce) {
  const std::string folder = ::testing::TempDir() + "/runs/first";
  ASSERT_OK_AND_ASSIGN(TensorBoardFile file, TensorBoardFile::Create(folder, kNow));
  EXPECT_TRUE(absl::StrContains(file.path(), "/events.out.tfevents.1700000000."));
  ASSERT_OK(file.Append(TensorBoardRound(Round(0), kNow, {{"loss/train", 4.0}})));
  std::ifstream there(file.path(), std::ios::binary);
  std::stringstream content;
  content << there.rdbuf();
  EXPECT_EQ(EventsOf(content.str()).size(), 2);
}

TEST(TensorBoardFileTest, FileThatWasRemovedIsCreatedAgain) {
  const std::string folder = ::testing::TempDir() + "/runs/removed";
  ASSERT_OK_AND_ASSIGN(TensorBoardFile file, TensorBoardFile::Create(folder, kNow));
  std::filesystem::remove_all(folder);
  for (const int64_t round : {1, 2}) {
    ASSERT_OK(file.Append(TensorBoardRound(Round(round), kNow, {{"loss/train", 4.0}})));
  }
  std::ifstream there(file.path(), std::ios::binary);
  std::stringstream content;
  content << there.rdbuf();
  EXPECT_EQ(EventsOf(content.str()).size(), 3) << "the header and two rounds";
}

TEST(TensorBoardFileTest, AFolderThatCannotBeMadeIsNamed) {
  const std::string taken = ::testing::TempDir() + "/a_file";
  std::ofstream(taken) << "x";
  EXPECT_THAT(TensorBoardFile::Create(taken + "/runs", kNow).status().message(),
              ::testing::HasSubstr(taken));
}

TEST(TensorBoardFileTest, RefusesAFolderInACheckpoint) {
  const std::string checkpoint = testing::TempDir() + "/round-00000039";
  std::filesystem::create_directories(checkpoint);
  std::ofstream(checkpoint + "/MANIFEST.json") << "{}";
  for (const std::string& folder : {checkpoint, checkpoint + "/curves"}) {
    EXPECT_THAT(TensorBoardFile::Create(folder, kNow).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr(checkpoint)));
  }
  EXPECT_FALSE(std::filesystem::exists(checkpoint + "/curves"));
}

}  // namespace
}  // namespace lodestar::status
