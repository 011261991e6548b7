#include "worker/trainer/push_encoder.h"

#include <cmath>
#include <vector>

#include "common/random.h"
#include "gtest/gtest.h"
#include "kernels/codec/codec.h"

namespace lodestar {
namespace {

constexpr int64_t kElements = 3000;

// Three buckets, of which two end within a block of int8.
Registration SomeRegistration() {
  Registration registration;
  TensorSpec tensor{.name = "w", .shape = {kElements}, .block = 0, .initializer = {}};
  registration.layout = *Layout::FromTensors({tensor});
  registration.buckets = {{0, 0, 0, {0, 1000}}, {1, 0, 0, {1000, 2024}}, {2, 0, 0, {2024, 3000}}};
  registration.identity = {WorkerId(1), Incarnation(1)};
  registration.server_incarnation = 77;
  registration.job.seed = 5;
  return registration;
}

std::vector<float> Gradient(int round) {
  std::vector<float> values(kElements);
  for (int64_t i = 0; i < kElements; ++i) {
    values[i] = static_cast<float>(NormalsFrom(Philox(1, round, i))[0]);
  }
  return values;
}

class PushEncoderTest : public testing::TestWithParam<Encoding> {
 protected:
  // Encodes a whole contribution; what the servers decode of it.
  std::vector<float> Send(PushEncoder& encoder, int round, const std::vector<float>& values,
                          float scale = 1.0f) {
    encoder.Begin(registration_, Round(round), scale);
    std::vector<float> decoded(kElements);
    for (const Bucket& bucket : registration_.buckets) {
      const float* const part = values.data() + bucket.range.begin;
      const absl::Span<const std::byte> bytes = encoder.Encode(bucket, part);
      EXPECT_EQ(bytes.size(), EncodedBytes(GetParam(), bucket.range.size()));
      EXPECT_EQ(encoder.Encoded(bucket, part).data(), bytes.data());
      CodecOf(GetParam())
          .Decode(bytes.data(), bucket.range.size(), decoded.data() + bucket.range.begin);
    }
    return decoded;
  }

  Registration registration_ = SomeRegistration();
};

INSTANTIATE_TEST_SUITE_P(AllCodecs, PushEncoderTest, testing::ValuesIn(kAllEncodings),
                         [](const auto& info) { return std::string(EncodingName(info.param)); });

TEST_P(PushEncoderTest, WhatIsCountedIsInSumWhatWasToBeSent) {
  PushEncoder encoder(GetParam(), /*error_feedback=*/true);
  std::vector<double> missing(kElements, 0.0);
  std::vector<float> last(kElements);
  for (int round = 0; round < 100; ++round) {
    const std::vector<float> values = Gradient(round);
    const float scale = encoder.is_exact() ? 1.0f : round % 2 == 0 ? 0.25f : 1.0f;
    const std::vector<float> decoded = Send(encoder, round, values, scale);
    // Contributions that come to nothing, one by one, and one late bucket of a whole one.
    if (round % 5 == 3) continue;
    const std::vector<uint32_t> late =
        round % 7 == 2 ? std::vector<uint32_t>{1} : std::vector<uint32_t>{};
    encoder.Commit(values.data(), late);
    for (int64_t i = 0; i < kElements; ++i) {
      const bool is_late = !late.empty() && i >= 1000 && i < 2024;
      if (!is_late) missing[i] += static_cast<double>(scale) * values[i] - decoded[i];
    }
  }
  // Nothing is missing but the last residual: what one encoding of a few units loses.
  for (int64_t i = 0; i < kElements; ++i) {
    ASSERT_LT(std::abs(missing[i]), GetParam() == Encoding::kFp32 ? 1e-12 : 0.06) << i;
  }
}

TEST_P(PushEncoderTest, WithoutErrorFeedbackEachContributionStandsAlone) {
  PushEncoder encoder(GetParam(), /*error_feedback=*/false);
  const std::vector<float> values = Gradient(0);
  const std::vector<float> first = Send(encoder, 0, values);
  encoder.Commit(values.data(), {});
  EXPECT_EQ(Send(encoder, 0, values), first);
}

TEST_P(PushEncoderTest, ContributionThatCameToNothingIsMadeAgainToTheBit) {
  PushEncoder encoder(GetParam(), /*error_feedback=*/true);
  const std::vector<float> values = Gradient(0);
  Send(encoder, 0, values);
  encoder.Commit(values.data(), {});
  const std::vector<float> lost = Send(encoder, 1, Gradient(1));
  // The life is over; in the next one the same round is handed out again.
  registration_.identity.incarnation = Incarnation(2);
  EXPECT_EQ(Send(encoder, 1, Gradient(1)), lost);
}

TEST_P(PushEncoderTest, RestoredServersStartWithoutResidual) {
  PushEncoder encoder(GetParam(), /*error_feedback=*/true);
  PushEncoder fresh(GetParam(), /*error_feedback=*/true);
  const std::vector<float> values = Gradient(0);
  Send(encoder, 0, values);
  encoder.Commit(values.data(), {});
  registration_.server_incarnation = 78;
  EXPECT_EQ(Send(encoder, 1, Gradient(1)), Send(fresh, 1, Gradient(1)));
}

TEST_P(PushEncoderTest, NoiseDiffersBetweenWorkersAndRounds) {
  if (GetParam() != Encoding::kInt8) GTEST_SKIP() << "rounds to nearest";
  PushEncoder encoder(GetParam(), /*error_feedback=*/false);
  const std::vector<float> values = Gradient(0);
  const std::vector<float> first = Send(encoder, 0, values);
  EXPECT_NE(Send(encoder, 1, values), first);
  registration_.identity.worker = WorkerId(2);
  EXPECT_NE(Send(encoder, 0, values), first);
  registration_.job.seed = 6;
  registration_.identity.worker = WorkerId(1);
  EXPECT_NE(Send(encoder, 0, values), first);
}

}  // namespace
}  // namespace lodestar
