// SPDX-License-Identifier: Apache-2.0

#include "kernels/dropout_mask.h"

#include <cmath>

#include "common/runtime/random.h"
#include "gtest/gtest.h"

namespace lodestar::kernels {
namespace {

TEST(DropoutMaskTest, WordsAreThoseOfTheGenerator) {
  const DropoutMask mask{.rate = 0.5, .key = 0x0123456789abcdef, .stream = 0xfedcba9876543210};
  for (int64_t block : {int64_t{0}, int64_t{1}, int64_t{1} << 40}) {
    const PhiloxBlock expected = Philox(mask.key, mask.stream, block);
    const PhiloxWords words = DropoutWords(mask, block);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(words.word[i], expected[i]);
  }
}

TEST(DropoutMaskTest, DropsTheShareThatItIsAskedTo) {
  constexpr int kElements = 100'000;
  for (double rate : {0.0, 0.1, 0.5, 0.9}) {
    const DropoutMask mask{.rate = rate, .key = 3, .stream = 4};
    int dropped = 0;
    for (int i = 0; i < kElements; ++i) dropped += IsKept(mask, i) ? 0 : 1;
    // The limit is five standard deviations. It is 0 if the rate is 0.
    const double deviation = std::sqrt(rate * (1.0 - rate) / kElements);
    EXPECT_NEAR(static_cast<double>(dropped) / kElements, rate, 5.0 * deviation);
  }
}

TEST(DropoutMaskTest, PlaceInTheSequenceDecides) {
  const DropoutMask from_zero{.rate = 0.5, .key = 3, .stream = 4};
  DropoutMask from_five = from_zero;
  from_five.first_element = 5;
  DropoutMask other_stream = from_zero;
  other_stream.stream = 5;
  int differences = 0;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(IsKept(from_five, i), IsKept(from_zero, i + 5));
    differences += IsKept(other_stream, i) != IsKept(from_zero, i) ? 1 : 0;
  }
  EXPECT_GT(differences, 20);
}

}  // namespace
}  // namespace lodestar::kernels
