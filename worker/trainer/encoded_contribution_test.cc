// SPDX-License-Identifier: Apache-2.0

// Tests that contributions of every encoding have the same bytes on every kind of device, whatever
// the order of the device's work.
#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/params/encoding.h"
#include "common/params/shard_plan.h"
#include "common/runtime/random.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/codec/codec.h"
#include "kernels/cuda/testing/emulated_device.h"
#include "kernels/factory/device_factory.h"
#include "worker/model/device_memory.h"
#include "worker/trainer/exchange_state.h"
#include "worker/trainer/testing/delayed_device.h"

namespace lodestar::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kElements = 3000;

// Returns a registration with three buckets. Two of them end within a block of int8, and two have
// odd numbers of elements.
messages::Registration SomeRegistration() {
  messages::Registration registration;
  params::TensorSpec tensor{.name = "w", .shape = {kElements}, .block = 0, .initializer = {}};
  auto map = std::make_shared<messages::ClusterMap>();
  map->layout = *params::Layout::FromTensors({tensor});
  map->buckets = {{0, 0, 0, {0, 1001}}, {1, 0, 0, {1001, 2024}}, {2, 0, 0, {2024, 3000}}};
  registration.map = std::move(map);
  registration.life = {WorkerId(1), Incarnation(1)};
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

enum class Kind { kCpu, kLate, kCopiesFirst, kCard, kCardOthersFirst };

std::unique_ptr<kernels::Device> MakeIt(Kind kind) {
  switch (kind) {
    case Kind::kCpu:
      return *factory::MakeDevice("cpu", 1, nullptr);
    case Kind::kLate:
      return std::make_unique<DelayedDevice>(DelayedDevice::Order::kLate);
    case Kind::kCopiesFirst:
      return std::make_unique<DelayedDevice>(DelayedDevice::Order::kCopiesFirst);
    case Kind::kCard:
      return cuda::MakeEmulatedDevice({}, {.streams = emulator::StreamOrder::kOnlyWhatIsNeeded});
    case Kind::kCardOthersFirst:
      return cuda::MakeEmulatedDevice({}, {.streams = emulator::StreamOrder::kOthersFirst});
  }
  return nullptr;
}

// The sending part of a worker: its exchange state and its gradient.
class Sender {
 public:
  Sender(kernels::Device* device, params::Encoding encoding, bool error_feedback,
         double feedback_decay = 1.0)
      : device_(device),
        memory_(*model::DeviceMemory::Allocate(device, 2 * kElements * sizeof(float))),
        gradient_{memory_.data(), kernels::DType::kF32, kElements} {
    job::JobSpec job;
    job.push_encoding = encoding;
    job.error_feedback = error_feedback;
    job.feedback_decay = feedback_decay;
    const kernels::Buf weights = {gradient_.as<float>() + kElements, kernels::DType::kF32,
                                  kElements};
    exchange_ =
        *ExchangeState::Create(job, SomeRegistration().layout(), device, weights, gradient_);
  }
  ~Sender() { Synchronize(); }

  // Returns all bytes of one contribution. The contribution begins while the device still computes
  // the gradient.
  std::vector<std::byte> Send(const messages::Registration& registration, int round,
                              const std::vector<float>& values, float scale = 1.0f) {
    computed_.push_back(values);
    bytes()->Begin(registration, Round(round), scale);
    device_->Copy(gradient_.data, computed_.back().data(), kElements * sizeof(float),
                  kernels::StreamKind::kCompute);
    std::vector<kernels::EventId> prepared;
    for (const params::Bucket& bucket : registration.buckets())
      prepared.push_back(bytes()->Prepare(bucket));
    std::vector<std::byte> sent;
    for (const params::Bucket& bucket : registration.buckets()) {
      EXPECT_OK(bytes()->Await(prepared[bucket.index]));
      const absl::Span<const std::byte> part = bytes()->Of(bucket);
      EXPECT_EQ(part.size(), params::EncodedBytes(bytes()->encoding(), bucket.range.size()));
      sent.insert(sent.end(), part.begin(), part.end());
    }
    return sent;
  }
  void Commit(const std::vector<uint32_t>& late = {}) { bytes()->Commit(late); }
  ContributionBytes* bytes() { return exchange_->contribution(); }

 private:
  void Synchronize() {
    EXPECT_OK(device_->Synchronize(device_->Record(kernels::StreamKind::kCompute)));
  }

  kernels::Device* const device_;
  const model::DeviceMemory memory_;  // [gradient | weights]
  const kernels::Buf gradient_;
  std::unique_ptr<ExchangeState> exchange_;
  // The values of all contributions. They must stay in memory, because the device may read them
  // after Send() has returned.
  std::deque<std::vector<float>> computed_;
};

class EncodedContributionTest : public testing::TestWithParam<std::tuple<Kind, params::Encoding>> {
 protected:
  params::Encoding encoding() const { return std::get<params::Encoding>(GetParam()); }
  Sender Make(bool error_feedback, double feedback_decay = 1.0) {
    return {device_.get(), encoding(), error_feedback, feedback_decay};
  }
  std::vector<float> Decoded(const std::vector<std::byte>& sent) const {
    std::vector<float> decoded(kElements);
    const std::byte* from = sent.data();
    for (const params::Bucket& bucket : registration_.buckets()) {
      codec::CodecOf(encoding())
          .Decode(from, bucket.range.size(), decoded.data() + bucket.range.begin);
      from += params::EncodedBytes(encoding(), bucket.range.size());
    }
    return decoded;
  }

  const std::unique_ptr<kernels::Device> device_ = MakeIt(std::get<Kind>(GetParam()));
  messages::Registration registration_ = SomeRegistration();
};

std::string CaseName(const testing::TestParamInfo<std::tuple<Kind, params::Encoding>>& info) {
  const char* const kinds[] = {"Cpu", "Late", "CopiesFirst", "Card", "CardOthersFirst"};
  const auto [kind, encoding] = info.param;
  return kinds[static_cast<int>(kind)] + std::string(params::EncodingKindName(encoding.kind()));
}

INSTANTIATE_TEST_SUITE_P(AllDevices, EncodedContributionTest,
                         testing::Combine(testing::Values(Kind::kCpu, Kind::kLate,
                                                          Kind::kCopiesFirst, Kind::kCard,
                                                          Kind::kCardOthersFirst),
                                          testing::ValuesIn(params::kAllEncodings)),
                         CaseName);

TEST_P(EncodedContributionTest, WhatIsCountedIsInSumWhatWasToBeSent) {
  Sender sender = Make(/*error_feedback=*/true);
  std::vector<double> missing(kElements, 0.0);
  for (int round = 0; round < 50; ++round) {
    const std::vector<float> values = Gradient(round);
    const float scale = sender.bytes()->is_exact() ? 1.0f : round % 2 == 0 ? 0.25f : 1.0f;
    const std::vector<float> decoded = Decoded(sender.Send(registration_, round, values, scale));
    // In some rounds the contribution is not counted. In other rounds bucket 1 is late.
    if (round % 5 == 3) continue;
    const std::vector<uint32_t> late =
        round % 7 == 2 ? std::vector<uint32_t>{1} : std::vector<uint32_t>{};
    sender.Commit(late);
    for (int64_t i = 0; i < kElements; ++i) {
      const bool is_late = !late.empty() && i >= 1001 && i < 2024;
      if (!is_late) missing[i] += static_cast<double>(scale) * values[i] - decoded[i];
    }
  }
  // The servers' sum may lack only the last residual. Without top-k, this is the error of encoding
  // values of a few units once. With top-k, an element is sent only when its collected value is
  // among the 64 largest of the 1000 in its bucket.
  const double most = encoding() == params::Encoding::kFp32   ? 1e-12
                      : encoding() == params::Encoding::kInt4 ? 0.9
                      : encoding().is_topk()                  ? 20.0
                                                              : 0.06;
  for (int64_t i = 0; i < kElements; ++i) ASSERT_LT(std::abs(missing[i]), most) << i;
}

// With decay d, the next contribution includes d times the error of the last one.
TEST_P(EncodedContributionTest, WhatWasLostShrinksByTheDecay) {
  if (encoding() == params::Encoding::kFp32) GTEST_SKIP() << "loses nothing";
  Sender sender = Make(/*error_feedback=*/true, /*feedback_decay=*/0.5);
  const std::vector<float> values = Gradient(0);
  const std::vector<float> first = Decoded(sender.Send(registration_, 0, values));
  sender.Commit();
  // The second gradient is zero. So the second contribution is half of the first contribution's
  // error, plus the error of its own encoding.
  const std::vector<float> second =
      Decoded(sender.Send(registration_, 1, std::vector<float>(kElements, 0.0f)));
  double product = 0.0;
  double lost_square = 0.0;
  for (int64_t i = 0; i < kElements; ++i) {
    if (second[i] == 0.0f) continue;
    const double lost = double{values[i]} - first[i];
    product += lost * second[i];
    lost_square += lost * lost;
  }
  EXPECT_NEAR(product / lost_square, 0.5, 0.1);
}

TEST_P(EncodedContributionTest, EveryDeviceMakesTheBytesOfTheCpu) {
  const auto cpu = MakeIt(Kind::kCpu);
  Sender sender = Make(/*error_feedback=*/true);
  Sender reference(cpu.get(), encoding(), /*error_feedback=*/true);
  for (int round = 0; round < 6; ++round) {
    const float scale = 1.0f / static_cast<float>(1 + round);
    ASSERT_EQ(sender.Send(registration_, round, Gradient(round), scale),
              reference.Send(registration_, round, Gradient(round), scale))
        << round;
    const std::vector<uint32_t> late =
        round == 2 ? std::vector<uint32_t>{0} : std::vector<uint32_t>{};
    sender.Commit(late);
    reference.Commit(late);
    if (round == 4) registration_.server_incarnation = 78;
  }
}

TEST_P(EncodedContributionTest, WithoutErrorFeedbackEachContributionStandsAlone) {
  Sender sender = Make(/*error_feedback=*/false);
  const std::vector<float> values = Gradient(0);
  const std::vector<std::byte> first = sender.Send(registration_, 0, values);
  sender.Commit();
  EXPECT_EQ(sender.Send(registration_, 0, values), first);
}

TEST_P(EncodedContributionTest, ContributionThatCameToNothingIsMadeAgainToTheBit) {
  Sender sender = Make(/*error_feedback=*/true);
  sender.Send(registration_, 0, Gradient(0));
  sender.Commit();
  const std::vector<std::byte> lost = sender.Send(registration_, 1, Gradient(1));
  // The life ends, and the next life is granted the same round.
  registration_.life.incarnation = Incarnation(2);
  EXPECT_EQ(sender.Send(registration_, 1, Gradient(1)), lost);
}

TEST_P(EncodedContributionTest, RestoredServersStartWithoutResidual) {
  Sender sender = Make(/*error_feedback=*/true);
  Sender fresh = Make(/*error_feedback=*/true);
  sender.Send(registration_, 0, Gradient(0));
  sender.Commit();
  registration_.server_incarnation = 78;
  EXPECT_EQ(sender.Send(registration_, 1, Gradient(1)), fresh.Send(registration_, 1, Gradient(1)));
}

TEST_P(EncodedContributionTest, ALateBucketLeavesNothingForTheNext) {
  Sender sender = Make(/*error_feedback=*/true);
  Sender fresh = Make(/*error_feedback=*/true);
  sender.Send(registration_, 0, Gradient(0));
  sender.Commit(/*late=*/{1});
  const std::vector<std::byte> bytes = sender.Send(registration_, 1, Gradient(1));
  const std::vector<std::byte> without = fresh.Send(registration_, 1, Gradient(1));
  int64_t begin = 0;
  for (const params::Bucket& bucket : registration_.buckets()) {
    const int64_t end = begin + params::EncodedBytes(encoding(), bucket.range.size());
    const bool is_alike =
        std::equal(bytes.begin() + begin, bytes.begin() + end, without.begin() + begin);
    EXPECT_EQ(is_alike, bucket.index == 1 || encoding() == params::Encoding::kFp32) << bucket.index;
    begin = end;
  }
}

TEST_P(EncodedContributionTest, NoiseDiffersBetweenWorkersAndRounds) {
  if (params::BlockElements(encoding()) == 1 || encoding().is_topk()) {
    GTEST_SKIP() << "rounds to nearest";
  }
  Sender sender = Make(/*error_feedback=*/false);
  const std::vector<float> values = Gradient(0);
  const std::vector<std::byte> first = sender.Send(registration_, 0, values);
  EXPECT_NE(sender.Send(registration_, 1, values), first);
  registration_.life.worker = WorkerId(2);
  EXPECT_NE(sender.Send(registration_, 0, values), first);
  registration_.job.seed = 6;
  registration_.life.worker = WorkerId(1);
  EXPECT_NE(sender.Send(registration_, 0, values), first);
}

// Memory for the encoded bytes is allocated before the buckets are known. It must be enough for all
// ways in which the servers may divide the vector.
TEST(EncodedContributionRoomTest, BucketsHavePlacesOfTheirOwn) {
  const auto device = MakeIt(Kind::kCpu);
  messages::Registration registration;
  auto map = std::make_shared<messages::ClusterMap>();
  registration.map = map;
  map->layout = *params::Layout::FromTensors({{"a", {7}, 0, 0, false, {}},
                                              {"b", {1}, 0, 1, false, {}},
                                              {"c", {301, 100}, 0, 2, false, {}}});
  const int64_t n = registration.layout().num_elements();
  std::vector<float> vector(n);
  const kernels::Buf buf = {vector.data(), kernels::DType::kF32, n};
  for (params::Encoding encoding : {params::Encoding::kBf16, params::Encoding::kFp16,
                                    params::Encoding::kInt8, params::Encoding::kInt4}) {
    job::JobSpec job;
    job.push_encoding = encoding;
    const auto exchange =
        *ExchangeState::Create(job, registration.layout(), device.get(), buf, buf);
    for (int servers : {1, 2, 7, params::kMaxServers}) {
      for (int64_t bucket_bytes : {4, 1000, 1 << 20}) {
        map->buckets = *params::PlanBuckets(map->layout, *params::PlanShards(map->layout, servers),
                                            bucket_bytes);
        exchange->contribution()->Begin(registration, Round(0), 1.0f);
        const std::byte* end = nullptr;
        for (const params::Bucket& bucket : registration.buckets()) {
          const absl::Span<const std::byte> place = exchange->contribution()->Of(bucket);
          ASSERT_GE(place.data(), end);
          ASSERT_EQ(reinterpret_cast<uintptr_t>(place.data()) % 64, 0);
          end = place.data() + place.size();
        }
      }
    }
  }
}

TEST(EncodedContributionRoomTest, TakesTheEncodedBytesAndTheResidual) {
  const params::Layout layout =
      *params::Layout::FromTensors({{"w", {1000, 1000}, 0, 0, false, {}}});
  constexpr int64_t kMillion = 1'000'000;
  const auto device_bytes = [&](params::Encoding encoding, bool error_feedback,
                                bool memory_is_host) {
    job::JobSpec job;
    job.push_encoding = encoding;
    job.error_feedback = error_feedback;
    return static_cast<double>(ExchangeState::DeviceBytes(job, layout, memory_is_host)) / kMillion;
  };
  EXPECT_EQ(device_bytes(params::Encoding::kFp32, true, true), 0.0);
  job::JobSpec pulls;
  pulls.pull_encoding = params::Encoding::kInt8;
  // If pulls have an encoding, a shadow replica needs memory for the weights, and less memory for
  // the changes of one pull.
  EXPECT_NEAR(static_cast<double>(ExchangeState::DeviceBytes(pulls, layout, true)) / kMillion, 7.0,
              0.6);
  EXPECT_EQ(ExchangeState::DeviceBytes(pulls, layout, /*memory_is_host=*/false), 0);
  EXPECT_NEAR(device_bytes(params::Encoding::kBf16, true, false), 6.0, 0.6);
  EXPECT_NEAR(device_bytes(params::Encoding::kBf16, true, true), 10.0, 0.6);
  EXPECT_NEAR(device_bytes(params::Encoding::kFp16, false, true), 2.0, 0.6);
  EXPECT_NEAR(device_bytes(params::Encoding::kInt8, true, false), 5.0, 0.6);
  EXPECT_NEAR(device_bytes(params::Encoding::kInt8, true, true), 9.0, 0.6);
  EXPECT_NEAR(device_bytes(params::Encoding::kInt4, true, false), 4.5, 0.6);
}

TEST(EncodedContributionRoomTest, WhatACardHasNoMemoryForIsAnErrorThatNamesTheEncoding) {
  const auto device = MakeIt(Kind::kCard);
  job::JobSpec job;
  job.push_encoding = params::Encoding::kInt8;
  const model::DeviceMemory memory =
      *model::DeviceMemory::Allocate(device.get(), kElements * sizeof(float));
  const kernels::Buf vector = {memory.data(), kernels::DType::kF32, kElements};
  for (int allocations : {0, 1}) {
    emulator::FailAllocationsAfter(allocations);
    EXPECT_THAT(
        ExchangeState::Create(job, SomeRegistration().layout(), device.get(), vector, vector),
        StatusIs(absl::StatusCode::kResourceExhausted,
                 AllOf(HasSubstr("--push_encoding=int8"), HasSubstr("could not allocate"))));
  }
  emulator::ClearStickyError();
  EXPECT_OK(ExchangeState::Create(job, SomeRegistration().layout(), device.get(), vector, vector));
}

}  // namespace
}  // namespace lodestar::trainer
