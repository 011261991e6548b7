// SPDX-License-Identifier: Apache-2.0

// Tests that a worker that is killed at any point and started again sends the same bytes as a
// worker that was not killed.
#include "worker/trainer/residual_keeper.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/runtime/random.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/testing/emulated_device.h"
#include "kernels/factory/device_factory.h"
#include "worker/model/device_memory.h"
#include "worker/trainer/exchange_state.h"
#include "worker/trainer/skipped_contribution.h"
#include "worker/trainer/testing/delayed_device.h"
#include "worker/trainer/testing/scripted_transport.h"

namespace lodestar::trainer {
namespace {

constexpr int64_t kElements = 3000;
constexpr int kRounds = 6;
constexpr uint32_t kBuckets = 3;

messages::Registration RegistrationOf(params::Encoding encoding, uint64_t incarnation) {
  messages::Registration registration;
  auto map = std::make_shared<messages::ClusterMap>();
  map->layout = *params::Layout::FromTensors({{"w", {kElements}, 0, 0, false, {}}});
  map->buckets = {{0, 0, 0, {0, 1000}}, {1, 0, 0, {1000, 2024}}, {2, 0, 0, {2024, 3000}}};
  registration.map = std::move(map);
  registration.life = {WorkerId(1), Incarnation(incarnation)};
  registration.life_secret = absl::StrCat("secret of ", incarnation);
  registration.server_incarnation = 77;
  registration.job.push_encoding = encoding;
  registration.job.seed = 5;
  return registration;
}

using Key = std::pair<int64_t, uint32_t>;  // Round and bucket.

// Servers that count each bucket of a round once, and only from the life `living`. If `over` has a
// bucket, its round has ended without it.
struct Servers {
  uint64_t living = 1;
  // For each counted bucket: the incarnation of the worker, and the bytes.
  std::map<Key, std::pair<uint64_t, std::vector<std::byte>>> counted;
  std::set<Key> over;
};

class ServersTransport final : public client::ParameterTransport {
 public:
  ServersTransport(Servers* servers, uint64_t incarnation)
      : servers_(servers), incarnation_(incarnation) {}
  std::unique_ptr<client::PushSession> StartPush(
      const client::ContributionHeader& header) override {
    return std::make_unique<Push>(this, header.round.value());
  }
  std::unique_ptr<client::PullSession> StartPull(client::PullSpec, BucketCallback) override {
    return nullptr;
  }
  uint64_t bytes_pushed() const override { return 0; }
  uint64_t bytes_pulled() const override { return 0; }

 private:
  class Push final : public client::PushSession {
   public:
    Push(ServersTransport* owner, int64_t round) : owner_(owner), round_(round) {}
    void AddBucket(uint32_t bucket, Version, absl::Span<const std::byte> data) override {
      added_.emplace_back(bucket, std::vector<std::byte>(data.begin(), data.end()));
    }
    absl::StatusOr<client::PushResult> Finish() override {
      client::PushResult result;
      Servers& servers = *owner_->servers_;
      for (auto& [bucket, bytes] : added_) {
        const auto row = servers.counted.find({round_, bucket});
        if (row != servers.counted.end() && row->second.first == owner_->incarnation_) {
          EXPECT_EQ(row->second.second, bytes) << "other bytes under the same key";
          ++result.buckets_duplicate;
        } else if (owner_->incarnation_ != servers.living) {
          return absl::AbortedError("this life is over");
        } else if (servers.over.contains({round_, bucket})) {
          result.late.push_back(bucket);
        } else {
          servers.counted[{round_, bucket}] = {owner_->incarnation_, bytes};
          ++result.buckets_counted;
        }
      }
      return result;
    }
    void Cancel() override {}

   private:
    ServersTransport* const owner_;
    const int64_t round_;
    std::vector<std::pair<uint32_t, std::vector<std::byte>>> added_;
  };

  Servers* const servers_;
  const uint64_t incarnation_;
};

// The place in a round at which the process ends.
enum class End { kNever, kBeforeItIsMade, kBeforeAnythingIsSent, kAfterTwoBuckets, kAfterAll };

enum class Kind { kCpu, kLate, kCard };

std::unique_ptr<kernels::Device> MakeIt(Kind kind) {
  switch (kind) {
    case Kind::kCpu:
      return *factory::MakeDevice("cpu", 1, nullptr);
    case Kind::kLate:
      return std::make_unique<DelayedDevice>(DelayedDevice::Order::kLate);
    case Kind::kCard:
      return cuda::MakeEmulatedDevice({}, {.streams = emulator::StreamOrder::kOnlyWhatIsNeeded});
  }
  return nullptr;
}

// A worker's process, reduced to its exchange with the servers.
class Process {
 public:
  Process(params::Encoding encoding, Kind kind, Servers* servers, ResidualStore* store)
      : encoding_(encoding),
        servers_(servers),
        device_(MakeIt(kind)),
        memory_(*model::DeviceMemory::Allocate(device_.get(), 2 * kElements * sizeof(float))),
        gradient_{memory_.data(), kernels::DType::kF32, kElements} {
    job::JobSpec job;
    job.push_encoding = encoding;
    const kernels::Buf weights = {gradient_.as<float>() + kElements, kernels::DType::kF32,
                                  kElements};
    exchange_ = *ExchangeState::Create(job, RegistrationOf(encoding, 1).layout(), device_.get(),
                                       weights, gradient_);
    if (store != nullptr) keeper_.emplace(store, exchange_->residual(), &clock_);
  }

  // Runs a round in life `incarnation`. Returns true if the round was delivered.
  bool Run(int64_t round, uint64_t incarnation, End end = End::kNever, bool is_skipped = false) {
    const messages::Registration registration = RegistrationOf(encoding_, incarnation);
    ServersTransport transport(servers_, incarnation);
    const LifeContext life = {
        .registration = &registration,
        .transport = &transport,
        .transport_of = [this](const messages::WorkerLife& former, const std::string& secret) {
          EXPECT_EQ(secret, absl::StrCat("secret of ", former.incarnation.value()));
          return std::make_shared<ServersTransport>(servers_, former.incarnation.value());
        }};
    if (keeper_.has_value()) {
      const auto delivered = keeper_->Settle(life, Round(round));
      EXPECT_OK(delivered);
      if (delivered.ok() && delivered->has_value()) {
        EXPECT_EQ((*delivered)->loss_sum, 10.0 * static_cast<double>(round));
        return true;
      }
    }
    if (end == End::kBeforeItIsMade) return false;
    SkippedContribution skipped(encoding_);
    ContributionBytes* const bytes = is_skipped ? &skipped : exchange_->contribution();
    const MadeContribution made = {
        .header = {.round = Round(round),
                   .encoding = encoding_,
                   .num_samples = is_skipped ? messages::kSkippedSamples : 0},
        .bytes = bytes,
        .buckets = AllBuckets(registration),
        .base_versions = std::vector<Version>(kBuckets, Version(round))};
    if (!is_skipped) Make(registration, round);
    if (keeper_.has_value()) {
      messages::RoundReport report;
      report.round = Round(round);
      report.loss_sum = 10.0 * static_cast<double>(round);
      EXPECT_OK(keeper_->Keep(registration, made, report));
    }
    if (end == End::kBeforeAnythingIsSent) return false;
    if (end == End::kAfterTwoBuckets) {
      const auto session = transport.StartPush(made.header);
      for (const params::Bucket& bucket : registration.buckets()) {
        if (bucket.index < 2) session->AddBucket(bucket.index, Version(round), bytes->Of(bucket));
      }
      EXPECT_OK(session->Finish());
      return false;
    }
    EXPECT_OK(PushAgain(registration, made, &transport, &clock_));
    return end != End::kAfterAll;
  }
  ResidualKeeper& keeper() { return *keeper_; }

 private:
  void Make(const messages::Registration& registration, int64_t round) {
    std::vector<float> values(kElements);
    for (int64_t i = 0; i < kElements; ++i) {
      values[i] = static_cast<float>(NormalsFrom(Philox(1, round, i))[0]);
    }
    ContributionBytes* const bytes = exchange_->contribution();
    bytes->Begin(registration, Round(round), 0.5f);
    device_->Copy(gradient_.data, values.data(), kElements * sizeof(float),
                  kernels::StreamKind::kCompute);
    for (const params::Bucket& bucket : registration.buckets()) {
      EXPECT_OK(bytes->Await(bytes->Prepare(bucket)));
    }
  }

  const params::Encoding encoding_;
  Servers* const servers_;
  InstantClock clock_;
  const std::unique_ptr<kernels::Device> device_;
  const model::DeviceMemory memory_;  // [gradient | weights]
  const kernels::Buf gradient_;
  std::unique_ptr<ExchangeState> exchange_;
  std::optional<ResidualKeeper> keeper_;
};

class ResidualKeeperTest : public testing::TestWithParam<std::tuple<params::Encoding, Kind>> {
 protected:
  ResidualKeeperTest() { EXPECT_OK(disk_.CreateDirectories("kept")); }
  std::unique_ptr<Process> Start(Servers* servers, bool keeps = true) {
    const auto [encoding, kind] = GetParam();
    return std::make_unique<Process>(encoding, kind, servers, keeps ? &store_ : nullptr);
  }
  // Returns what servers count from a worker that is never killed. The buckets in `over` come too
  // late.
  Servers Undisturbed(const std::set<Key>& over = {}, int skipped = -1, bool keeps = false) {
    Servers servers;
    servers.over = over;
    const auto process = Start(&servers, keeps);
    for (int round = 0; round < kRounds; ++round) {
      process->Run(round, 1, End::kNever, round == skipped);
    }
    EXPECT_OK(store_.Remove());
    return servers;
  }
  static std::map<Key, std::vector<std::byte>> BytesOf(const Servers& servers) {
    std::map<Key, std::vector<std::byte>> bytes;
    for (const auto& [key, counted] : servers.counted) bytes[key] = counted.second;
    return bytes;
  }

  SimulatedFileSystem disk_;
  ResidualStore store_{&disk_, "kept", "w"};
};

INSTANTIATE_TEST_SUITE_P(Devices, ResidualKeeperTest,
                         testing::Combine(testing::Values(params::Encoding::kInt8,
                                                          params::Encoding::kBf16),
                                          testing::Values(Kind::kCpu, Kind::kLate, Kind::kCard)));

constexpr End kEnds[] = {End::kBeforeItIsMade, End::kBeforeAnythingIsSent, End::kAfterTwoBuckets,
                         End::kAfterAll};

TEST_P(ResidualKeeperTest, KeepingChangesNoByte) {
  const std::set<Key> over = {{1, 0}, {3, 1}, {3, 2}};
  EXPECT_EQ(BytesOf(Undisturbed(over, 2, /*keeps=*/true)), BytesOf(Undisturbed(over, 2)));
}

TEST_P(ResidualKeeperTest, AProcessThatGoesOnWithALifeSendsWhatTheOneBeforeWouldHave) {
  for (const std::set<Key>& over : {std::set<Key>{}, std::set<Key>{{1, 0}, {2, 1}, {3, 2}}}) {
    const auto expected = BytesOf(Undisturbed(over));
    for (const End end : kEnds) {
      for (int killed = 0; killed < kRounds - 1; ++killed) {
        Servers servers;
        servers.over = over;
        auto process = Start(&servers);
        for (int round = 0; round < kRounds; ++round) {
          if (round == killed) {
            process->Run(round, 1, end);
            process = Start(&servers);
          }
          EXPECT_TRUE(process->Run(round, 1));
        }
        EXPECT_EQ(BytesOf(servers), expected)
            << "killed in round " << killed << " at " << static_cast<int>(end);
        ASSERT_OK(store_.Remove());
      }
    }
  }
}

// The process ends after the round was acknowledged and reported, so the next round is granted.
TEST_P(ResidualKeeperTest, AProcessMayEndBetweenRounds) {
  const std::set<Key> over = {{2, 1}};
  const auto expected = BytesOf(Undisturbed(over));
  Servers servers;
  servers.over = over;
  for (int round = 0; round < kRounds; ++round) EXPECT_TRUE(Start(&servers)->Run(round, 1));
  EXPECT_EQ(BytesOf(servers), expected);
}

// A new life cannot deliver the buckets that the old life has not delivered. The result must be the
// same as if these buckets had been late.
TEST_P(ResidualKeeperTest, AnotherLifeLearnsFromTheServersWhatWasCounted) {
  const std::map<End, std::set<uint32_t>> lost = {
      {End::kBeforeAnythingIsSent, {0, 1, 2}}, {End::kAfterTwoBuckets, {2}}, {End::kAfterAll, {}}};
  for (const bool is_same_process : {false, true}) {
    for (const auto& [end, buckets] : lost) {
      for (int killed = 0; killed < kRounds - 1; ++killed) {
        std::set<Key> over;
        for (const uint32_t bucket : buckets) over.insert({killed, bucket});
        const auto expected = BytesOf(Undisturbed(over));
        Servers servers;
        auto process = Start(&servers);
        for (int round = 0; round < kRounds; ++round) {
          process->Run(round, servers.living, round == killed ? end : End::kNever);
          if (round != killed) continue;
          servers.living = 2;
          if (is_same_process) {
            process->keeper().Doubt();
          } else {
            process = Start(&servers);
          }
        }
        EXPECT_EQ(BytesOf(servers), expected)
            << "killed in round " << killed << " at " << static_cast<int>(end);
        ASSERT_OK(store_.Remove());
      }
    }
  }
}

TEST_P(ResidualKeeperTest, ASkippedStepLeavesTheResidualAsItIs) {
  const auto expected = BytesOf(Undisturbed({}, /*skipped=*/2));
  for (const End end : kEnds) {
    Servers servers;
    auto process = Start(&servers);
    for (int round = 0; round < kRounds; ++round) {
      if (round == 2) {
        process->Run(round, 1, end, /*is_skipped=*/true);
        process = Start(&servers);
      }
      process->Run(round, 1, End::kNever, round == 2);
    }
    EXPECT_EQ(BytesOf(servers), expected) << static_cast<int>(end);
    ASSERT_OK(store_.Remove());
  }
}

// Repeats a round. In each repetition the process ends one file operation later.
TEST_P(ResidualKeeperTest, AProcessMayEndWhileItWrites) {
  const auto expected = BytesOf(Undisturbed());
  for (const bool power_goes : {false, true}) {
    int last = 0;
    for (bool has_ended = true; has_ended; ++last) {
      Servers servers;
      auto process = Start(&servers);
      for (int round = 0; round < 3; ++round) process->Run(round, 1);
      int operations = 0;
      has_ended = false;
      disk_.SetFaultHook([&](FileOperation, const std::string&) {
        if (operations++ < last) return absl::OkStatus();
        has_ended = true;
        return absl::AbortedError("killed");
      });
      // The process ends at the failing file operation, so it sends nothing.
      process->Run(3, 1, End::kBeforeAnythingIsSent);
      disk_.SetFaultHook(nullptr);
      std::mt19937_64 chance(last);
      if (power_goes) disk_.Crash(chance);
      process = Start(&servers);
      for (int round = 3; round < kRounds; ++round) process->Run(round, 1);
      EXPECT_EQ(BytesOf(servers), expected) << "after " << last << " operations";
      ASSERT_OK(store_.Remove());
    }
    EXPECT_GT(last, 5);
  }
}

TEST_P(ResidualKeeperTest, AFullDiskStopsNobodyAndLeavesNothingOld) {
  const auto expected = BytesOf(Undisturbed());
  Servers servers;
  const auto process = Start(&servers);
  for (int round = 0; round < kRounds; ++round) {
    if (round == 2) disk_.SetCapacity(20'000);
    if (round == 4) {
      EXPECT_THAT(store_.Load(), StatusIs(absl::StatusCode::kNotFound));
    }
    if (round == 5) disk_.SetCapacity(1'000'000);
    process->Run(round, 1);
  }
  EXPECT_EQ(BytesOf(servers), expected);
  ASSERT_OK(store_.Load());
  EXPECT_EQ(store_.Load()->record.header.round, Round(5));
}

TEST_P(ResidualKeeperTest, ADamagedFileIsAsNone) {
  Servers servers;
  Start(&servers)->Run(0, 1);
  const std::string path = store_.path();
  std::string bytes = *disk_.ReadWholeFile(path, 1 << 20);
  bytes[bytes.size() / 2] ^= 1;
  auto file = *disk_.Create(path, storage::FileSystem::IfExists::kTruncate);
  ASSERT_OK(file->Append(bytes));
  const auto process = Start(&servers);
  EXPECT_TRUE(process->Run(1, 1));
  EXPECT_TRUE(process->keeper().has_residual()) << "of its own by now";
  Servers fresh;
  Start(&fresh, /*keeps=*/false)->Run(1, 1);
  EXPECT_EQ(servers.counted[Key(1, 0)], fresh.counted[Key(1, 0)]);
}

TEST_P(ResidualKeeperTest, WhatIsLeftOfAJobThatIsDoneIsRemoved) {
  Servers servers;
  const auto process = Start(&servers);
  process->Run(0, 1);
  ASSERT_OK(store_.Load());
  process->keeper().Forget();
  EXPECT_THAT(store_.Load(), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace lodestar::trainer
