// SPDX-License-Identifier: Apache-2.0

#include "server/shard/contribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/codec/codec.h"

namespace lodestar::shard {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kElements = 2 * params::kWholeBlocks + 100;

class NumbersCheckTest : public ::testing::TestWithParam<params::Encoding> {
 protected:
  NumbersCheckTest()
      : layout_(*params::Layout::FromTensors({{"w", {kElements}, 0, 0, false, {}}})),
        bucket_{.index = 0, .shard = 0, .block = 0, .range = {0, kElements}} {
    key_.worker = WorkerId(7);
    key_.encoding = GetParam();
    key_.scale = -0.5f;
  }

  std::vector<std::byte> Encoded(std::optional<int64_t> bad) {
    std::mt19937 generator(3);
    std::normal_distribution<float> normal;
    std::vector<float> values(kElements);
    for (float& value : values) value = normal(generator);
    if (bad.has_value()) values[*bad] = std::numeric_limits<float>::quiet_NaN();
    std::vector<std::byte> bytes(params::EncodedBytes(GetParam(), kElements));
    codec::CodecOf(GetParam()).Encode(values.data(), kElements, {}, bytes.data());
    return bytes;
  }

  NumbersCheck AtOnce(const std::vector<std::byte>& bytes) {
    NumbersCheck check(key_, kElements, /*measures_norm=*/true);
    check.Look(bytes.data(), static_cast<int64_t>(bytes.size()));
    return check;
  }

  // Passes the bytes to Look() in pieces of `step` bytes. A piece may end within an element.
  NumbersCheck BitByBit(const std::vector<std::byte>& bytes, int64_t step) {
    NumbersCheck check(key_, kElements, /*measures_norm=*/true);
    const auto size = static_cast<int64_t>(bytes.size());
    for (int64_t arrived = 0; arrived < size; arrived += step) check.Look(bytes.data(), arrived);
    check.Look(bytes.data(), size);
    return check;
  }

  // Passes the bytes to Look() in pieces, like BitByBit(). If a block lies within a piece, only the
  // copy in `last` has its bytes: in `elements` the block is NaN. The copy has no alignment.
  NumbersCheck PieceByPiece(const std::vector<std::byte>& bytes, int64_t step) {
    NumbersCheck check(key_, kElements, /*measures_norm=*/true);
    const auto size = static_cast<int64_t>(bytes.size());
    std::vector<std::byte> elements(size);
    for (int64_t begin = 0; begin < size; begin += step) {
      const int64_t end = std::min(size, begin + step);
      std::vector<std::byte> piece(1 + end - begin);
      std::copy(bytes.begin() + begin, bytes.begin() + end, piece.begin() + 1);
      std::copy(bytes.begin() + begin, bytes.begin() + end, elements.begin() + begin);
      for (int64_t block = 0; block < kElements / params::kWholeBlocks; ++block) {
        const int64_t first = params::EncodedBytes(GetParam(), block * params::kWholeBlocks);
        const int64_t behind = params::EncodedBytes(GetParam(), (block + 1) * params::kWholeBlocks);
        if (first < begin || behind > end) continue;
        std::fill(elements.begin() + first, elements.begin() + behind, std::byte{0xff});  // NaN
      }
      check.Look(elements.data(), end, absl::MakeConstSpan(piece).subspan(1));
      std::copy(bytes.begin() + begin, bytes.begin() + end, elements.begin() + begin);
    }
    return check;
  }

  ContributionKey key_;
  const params::Layout layout_;
  const params::Bucket bucket_;
};

TEST_P(NumbersCheckTest, FindsTheSameHoweverTheNumbersArrive) {
  for (const std::optional<int64_t> bad :
       {std::optional<int64_t>(), std::optional<int64_t>(0),
        std::optional(params::kWholeBlocks - 1), std::optional(params::kWholeBlocks),
        std::optional(kElements - 1)}) {
    const std::vector<std::byte> bytes = Encoded(bad);
    const NumbersCheck expected = AtOnce(bytes);
    EXPECT_EQ(expected.Result(key_, layout_, bucket_).ok(), !bad.has_value());
    for (const int64_t step : {int64_t{1001}, int64_t{7777}, int64_t{16383}}) {
      const NumbersCheck check = BitByBit(bytes, step);
      EXPECT_EQ(check.Result(key_, layout_, bucket_), expected.Result(key_, layout_, bucket_));
      // If an element is bad, the norm has no meaning. Even then both ways to pass the bytes must
      // give the same norm.
      EXPECT_EQ(check.norm(), expected.norm());
    }
    for (const int64_t step : {int64_t{7777}, int64_t{40'000}, int64_t{1'000'000}}) {
      const NumbersCheck check = PieceByPiece(bytes, step);
      EXPECT_EQ(check.Result(key_, layout_, bucket_), expected.Result(key_, layout_, bucket_));
      EXPECT_EQ(check.norm(), expected.norm());
    }
  }
}

// The elements after the bytes that have arrived must not be read.
TEST_P(NumbersCheckTest, LooksAtNothingThatHasNotArrived) {
  std::vector<std::byte> bytes = Encoded(std::nullopt);
  const double norm = AtOnce(bytes).norm();
  const std::vector<std::byte> sent = bytes;
  const auto half = static_cast<int64_t>(bytes.size() / 2);
  std::fill(bytes.begin() + half, bytes.end(), std::byte{0xff});
  NumbersCheck check(key_, kElements, /*measures_norm=*/true);
  check.Look(bytes.data(), half);
  std::copy(sent.begin() + half, sent.end(), bytes.begin() + half);
  check.Look(bytes.data(), static_cast<int64_t>(bytes.size()));
  EXPECT_OK(check.Result(key_, layout_, bucket_));
  EXPECT_EQ(check.norm(), norm);
}

TEST(NumbersCheckOfFp32Test, NamesTheElementAndMeasuresTheScaledNorm) {
  const params::Layout layout = *params::Layout::FromTensors({{"w", {kElements}, 0, 0, false, {}}});
  const params::Bucket bucket = {.index = 0, .shard = 0, .block = 0, .range = {0, kElements}};
  std::vector<float> values(kElements, 2.0f);
  ContributionKey key;
  key.worker = WorkerId(7);
  key.scale = -0.5f;
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  NumbersCheck fine(key, kElements, /*measures_norm=*/true);
  fine.Look(bytes, kElements * sizeof(float));
  EXPECT_DOUBLE_EQ(fine.norm(), std::sqrt(double{kElements}));
  values[params::kWholeBlocks + 3] = std::numeric_limits<float>::infinity();
  NumbersCheck check(key, kElements, /*measures_norm=*/false);
  check.Look(bytes, kElements * sizeof(float));
  const absl::Status status = check.Result(key, layout, bucket);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor 'w', element 4099"));
}

TEST(CheckFormTest, RateIsForJobsThatTakeTheRatesOfPrograms) {
  job::JobSpec job;
  job.model = {"client", params::ClientModelSpec{}};
  const params::Bucket bucket{.index = 0, .shard = 0, .block = 0, .range = {0, 1}};
  const auto check = [&](const ContributionKey& key) {
    return CheckForm(key, bucket, job, /*is_averaged=*/false, /*awaits_first_weights=*/false);
  };
  ContributionKey key;
  key.worker = WorkerId(7);
  EXPECT_OK(check(key));
  key.learning_rate = 0.0;
  EXPECT_THAT(check(key), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("worker 7")));
  job.schedule.kind = job::ScheduleKind::kProgram;
  EXPECT_OK(check(key));
}

// Top-k encodings are not in this list. Their positions are checked before all numbers, so their
// bytes cannot be checked in pieces.
INSTANTIATE_TEST_SUITE_P(Encodings, NumbersCheckTest,
                         ::testing::Values(params::Encoding::kFp32, params::Encoding::kBf16,
                                           params::Encoding::kFp16, params::Encoding::kInt8,
                                           params::Encoding::kInt4));

}  // namespace
}  // namespace lodestar::shard
