// SPDX-License-Identifier: Apache-2.0

// Tests groups of emulated cards, with copies and with an emulated NCCL.
#include "kernels/cuda/card_group.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/testing/emulated_device.h"
#include "kernels/cuda/testing/emulated_nccl.h"
#include "kernels/device_set.h"

namespace lodestar::cuda {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kElements = 5000;

struct Links {
  std::string name;
  NcclLoader load_nccl;
  emulator::StreamOrder streams;
};

class CardGroupTest : public ::testing::TestWithParam<Links> {
 protected:
  explicit CardGroupTest(int num_cards = 3)
      : cards_(MakeEmulatedDevices({}, {.streams = GetParam().streams, .num_devices = num_cards},
                                   GetParam().load_nccl)) {
    for (const auto& device : cards_.devices) {
      values_.push_back(
          {*device->Allocate(kElements * sizeof(float)), kernels::DType::kF32, kElements});
    }
  }
  ~CardGroupTest() override {
    for (size_t i = 0; i < values_.size(); ++i) cards_.devices[i]->Release(values_[i].data);
  }

  kernels::Device& card(int member) { return *cards_.devices[member]; }
  kernels::DeviceGroup& group() { return *cards_.group; }

  // Calls `work` in one thread for each card.
  void OnAll(const std::function<void(int member)>& work) {
    std::vector<std::thread> threads;
    for (int member = 0; member < group().size(); ++member) threads.emplace_back(work, member);
    for (std::thread& thread : threads) thread.join();
  }
  // Returns a card's values. Copies them after all work that is queued on its compute stream.
  std::vector<float> Read(int member) {
    std::vector<float> host(kElements);
    card(member).Copy(host.data(), values_[member].data, kElements * sizeof(float),
                      kernels::StreamKind::kCompute);
    EXPECT_TRUE(card(member).Synchronize(card(member).Record(kernels::StreamKind::kCompute)).ok());
    return host;
  }

  kernels::DeviceSet cards_;
  std::vector<kernels::Buf> values_;
};

INSTANTIATE_TEST_SUITE_P(
    Links, CardGroupTest,
    ::testing::Values(Links{"CopiesLate", LoadNoNccl, emulator::StreamOrder::kOnlyWhatIsNeeded},
                      Links{"CopiesEarly", LoadNoNccl, emulator::StreamOrder::kOthersFirst},
                      Links{"NcclLate", LoadEmulatedNccl, emulator::StreamOrder::kOnlyWhatIsNeeded},
                      Links{"NcclEarly", LoadEmulatedNccl, emulator::StreamOrder::kOthersFirst}),
    [](const auto& info) { return info.param.name; });

TEST_P(CardGroupTest, BroadcastBringsTheFirstCardsValues) {
  OnAll([&](int member) {
    card(member).Fill(values_[member], member + 1.0);
    group().Begin(member);
    const auto operation = group().Broadcast(member, values_[member]);
    ASSERT_TRUE(operation.ok()) << operation.status();
    group().Await(member, *operation);
  });
  for (int member = 0; member < group().size(); ++member) EXPECT_THAT(Read(member), Each(1.0f));
}

TEST_P(CardGroupTest, ReduceSumsIntoTheFirstCardAndLeavesTheOthers) {
  OnAll([&](int member) {
    card(member).Fill(values_[member], member + 1.0);
    const auto operation = group().Reduce(member, values_[member]);
    ASSERT_TRUE(operation.ok()) << operation.status();
    group().Await(member, *operation);
  });
  EXPECT_THAT(Read(0), Each(6.0f));
  EXPECT_THAT(Read(1), Each(2.0f));
  EXPECT_THAT(Read(2), Each(3.0f));
}

// Work that is queued on a member's stream after Await() must run after all cards have finished the
// operation.
TEST_P(CardGroupTest, ValuesMayBeWrittenAfterAwait) {
  constexpr int kSteps = 5;
  OnAll([&](int member) {
    for (int step = 0; step < kSteps; ++step) {
      card(member).Fill(values_[member], 10.0 * step + member);
      const auto sum = group().Reduce(member, values_[member]);
      ASSERT_TRUE(sum.ok()) << sum.status();
      group().Await(member, *sum);
      group().Begin(member);
      const auto sent = group().Broadcast(member, values_[member]);
      ASSERT_TRUE(sent.ok()) << sent.status();
      group().Await(member, *sent);
    }
  });
  const float sum = 3 * 10.0f * (kSteps - 1) + 0 + 1 + 2;
  for (int member = 0; member < group().size(); ++member) EXPECT_THAT(Read(member), Each(sum));
}

// Members 1 and 2 overwrite their values after Await(). The sum must still contain the earlier
// values, whichever stream runs first.
TEST_P(CardGroupTest, AwaitOfTheOthersComesAfterTheFirstCardHasRead) {
  OnAll([&](int member) {
    card(member).Fill(values_[member], member + 1.0);
    const auto sum = group().Reduce(member, values_[member]);
    ASSERT_TRUE(sum.ok()) << sum.status();
    group().Await(member, *sum);
    if (member != 0) card(member).Fill(values_[member], 100.0);
  });
  EXPECT_THAT(Read(2), Each(100.0f));
  EXPECT_THAT(Read(1), Each(100.0f));
  EXPECT_THAT(Read(0), Each(6.0f));
}

TEST_P(CardGroupTest, SomeOperationsMayBeUnderWay) {
  OnAll([&](int member) {
    card(member).Fill(values_[member], 1.0);
    std::vector<int64_t> operations;
    for (int64_t begin = 0; begin < kElements; begin += 1000) {
      const auto sum = group().Reduce(member, values_[member].Slice(begin, 1000));
      ASSERT_TRUE(sum.ok()) << sum.status();
      operations.push_back(*sum);
    }
    group().Await(member, operations.back());
  });
  EXPECT_THAT(Read(0), Each(3.0f));
}

TEST_P(CardGroupTest, MemberThatFailsEndsTheCallsOfAll) {
  const absl::Status why = absl::DataLossError("card 2 fell off the bus");
  OnAll([&](int member) {
    card(member).Fill(values_[member], 1.0);
    if (member == 2) return group().Fail(why);
    EXPECT_EQ(group().Reduce(member, values_[member]).status(), why);
    EXPECT_EQ(group().Reduce(member, values_[member]).status(), why);
  });
  group().Reset();
  OnAll([&](int member) {
    const auto sum = group().Reduce(member, values_[member]);
    ASSERT_TRUE(sum.ok()) << sum.status();
    group().Await(member, *sum);
  });
  EXPECT_THAT(Read(0), Each(3.0f));
}

// On a card, an operation of NCCL runs until all members have called it. If one member fails, the
// operations of the others must be aborted. Otherwise they would never end, and Reset() would wait
// for them.
TEST_P(CardGroupTest, AFailureEndsOperationsThatWaitOnTheCards) {
  const absl::Status why = absl::DataLossError("card 2 fell off the bus");
  SetNcclOperationsWait(true);
  OnAll([&](int member) {
    card(member).Fill(values_[member], 1.0);
    const auto sum = group().Reduce(member, values_[member]);
    if (member == 2) return group().Fail(why);
    EXPECT_TRUE(sum.ok() || sum.status() == why) << sum.status();
    EXPECT_EQ(group().Reduce(member, values_[member]).status(), why);
  });
  SetNcclOperationsWait(false);
  group().Reset();
  OnAll([&](int member) {
    card(member).Fill(values_[member], 1.0);
    const auto sum = group().Reduce(member, values_[member]);
    ASSERT_TRUE(sum.ok()) << sum.status();
    group().Await(member, *sum);
  });
  EXPECT_THAT(Read(0), Each(3.0f));
}

TEST_P(CardGroupTest, DifferentPartsAreAnError) {
  OnAll([&](int member) {
    const auto sum = group().Reduce(member, values_[member].Slice(0, member == 1 ? 10 : 20));
    EXPECT_EQ(sum.status().code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(sum.status().message()), HasSubstr("20 and 10 elements"));
  });
}

std::string DescribeLinks(NcclLoader load_nccl, bool peers_reach = true) {
  return MakeEmulatedDevices({}, {.num_devices = 2, .peers_reach = peers_reach}, load_nccl)
      .group->Describe();
}

TEST(CardLinksTest, SaysHowVectorsTravel) {
  EXPECT_EQ(DescribeLinks(LoadEmulatedNccl), "NCCL 2.28.9");
  EXPECT_THAT(DescribeLinks(LoadNoNccl), HasSubstr("copies between the cards"));
  EXPECT_THAT(DescribeLinks(LoadNoNccl), HasSubstr("libnccl.so.2: cannot open"));
  EXPECT_THAT(DescribeLinks(LoadNoNccl), Not(HasSubstr("main memory")));
  EXPECT_THAT(DescribeLinks(LoadNoNccl, /*peers_reach=*/false), HasSubstr("main memory"));
  EXPECT_THAT(DescribeLinks(LoadBrokenNccl), HasSubstr("unhandled cuda error"));
}

TEST(CardLinksTest, CardsThatNcclCannotConnectCopy) {
  SetNcclFirstOperationsFail(true);
  EXPECT_THAT(DescribeLinks(LoadEmulatedNccl), HasSubstr("copies between the cards"));
  SetNcclFirstOperationsFail(false);
}

TEST(CardLinksTest, NcclIsUsedWhereItIs) {
  const int64_t before = num_nccl_operations();
  const kernels::DeviceSet cards = MakeEmulatedDevices({}, {.num_devices = 2}, LoadEmulatedNccl);
  const auto work = [&](int member) {
    kernels::Device& card = *cards.devices[member];
    void* const memory = *card.Allocate(sizeof(float));
    const kernels::Buf value = {memory, kernels::DType::kF32, 1};
    card.Fill(value, 1.0);
    ASSERT_TRUE(cards.group->Reduce(member, value).ok());
    card.Release(memory);
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  EXPECT_EQ(num_nccl_operations() - before, 2);
}

TEST(CardLinksTest, PeersThatAnEarlierGroupHasConnectedLeaveNoError) {
  for (int group = 0; group < 2; ++group) {
    EXPECT_THAT(DescribeLinks(LoadNoNccl), Not(HasSubstr("main memory")));
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
}

// NCCL reports errors of operations that run already only through ncclCommGetAsyncError().
TEST(CardLinksTest, AnErrorOfAnEarlierOperationIsFoundByTheNext) {
  const kernels::DeviceSet cards = MakeEmulatedDevices({}, {.num_devices = 2}, LoadEmulatedNccl);
  SetNcclAsyncError(6);
  const auto work = [&](int member) {
    kernels::Device& card = *cards.devices[member];
    void* const memory = *card.Allocate(sizeof(float));
    const kernels::Buf value = {memory, kernels::DType::kF32, 1};
    card.Fill(value, 1.0);
    EXPECT_EQ(cards.group->Reduce(member, value).status().code(), absl::StatusCode::kInternal);
    card.Release(memory);
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  SetNcclAsyncError(0);
}

TEST(NcclTest, VersionsAreWrittenAsNvidiaDoes) {
  EXPECT_EQ(NcclVersionText(22809), "2.28.9");
  EXPECT_EQ(NcclVersionText(2804), "2.8.4");
}

}  // namespace
}  // namespace lodestar::cuda
