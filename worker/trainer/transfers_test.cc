// WeightsPull and ContributionPush against a transport that fails on demand.

#include <memory>
#include <vector>

#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device_factory.h"
#include "worker/trainer/contribution_push.h"
#include "worker/trainer/weights_pull.h"

namespace lodestar {
namespace {

using ::testing::ElementsAre;

// Two blocks of two elements each, one bucket per block.
Registration TwoBlocks() {
  Registration registration;
  TensorSpec first{.name = "first", .shape = {2}, .block = 0, .initializer = {}};
  TensorSpec second{.name = "second", .shape = {2}, .block = 1, .initializer = {}};
  registration.layout = *Layout::FromTensors({first, second});
  registration.servers = {{0, "nowhere:1", {0, 4}}};
  registration.buckets = *PlanBuckets(registration.layout, {{0, 4}}, kDefaultBucketBytes);
  return registration;
}

// Answers each session with the next of the scripted statuses, OK when they are used up.
class ScriptedTransport final : public ParameterTransport {
 public:
  struct Sent {
    uint32_t bucket;
    Version base_version;
    std::vector<float> values;
  };

  std::unique_ptr<PushSession> StartPush(const ContributionHeader& header) override;
  std::unique_ptr<PullSession> StartPull(PullSpec spec, BucketCallback on_bucket) override;
  uint64_t bytes_pushed() const override { return 0; }
  uint64_t bytes_pulled() const override { return 0; }

  absl::Status NextStatus() {
    if (script_.empty()) return absl::OkStatus();
    const absl::Status status = script_.front();
    script_.erase(script_.begin());
    return status;
  }

  std::vector<absl::Status> script_;
  std::vector<std::vector<Sent>> pushes_;  // by session
  std::vector<std::vector<uint32_t>> pulls_;
  std::vector<ContributionHeader> headers_;
};

class ScriptedPush final : public PushSession {
 public:
  ScriptedPush(ScriptedTransport* owner, size_t index) : owner_(owner), index_(index) {}
  void AddBucket(uint32_t bucket, Version base_version, absl::Span<const float> values) override {
    owner_->pushes_[index_].push_back(
        {bucket, base_version, std::vector<float>(values.begin(), values.end())});
  }
  absl::StatusOr<PushResult> Finish() override {
    if (const absl::Status status = owner_->NextStatus(); !status.ok()) return status;
    return PushResult{.buckets_counted = static_cast<int64_t>(owner_->pushes_[index_].size())};
  }
  void Cancel() override {}

 private:
  ScriptedTransport* const owner_;
  const size_t index_;
};

// Delivers the first bucket before it fails, all of them if it does not.
class ScriptedPull final : public PullSession {
 public:
  ScriptedPull(ScriptedTransport* owner, PullSpec spec, ParameterTransport::BucketCallback callback)
      : owner_(owner), spec_(std::move(spec)), callback_(std::move(callback)) {}
  absl::Status Wait() override {
    const absl::Status status = owner_->NextStatus();
    for (const PullTarget& target : spec_.targets) {
      for (float& value : target.destination) value = 10.0f + target.bucket;
      callback_(target.bucket, Version(spec_.min_version.value() + target.bucket));
      if (!status.ok()) break;
    }
    return status;
  }
  void Cancel() override {}

 private:
  ScriptedTransport* const owner_;
  const PullSpec spec_;
  const ParameterTransport::BucketCallback callback_;
};

std::unique_ptr<PushSession> ScriptedTransport::StartPush(const ContributionHeader& header) {
  headers_.push_back(header);
  pushes_.emplace_back();
  return std::make_unique<ScriptedPush>(this, pushes_.size() - 1);
}

std::unique_ptr<PullSession> ScriptedTransport::StartPull(PullSpec spec, BucketCallback on_bucket) {
  pulls_.emplace_back();
  for (const PullTarget& target : spec.targets) pulls_.back().push_back(target.bucket);
  return std::make_unique<ScriptedPull>(this, std::move(spec), std::move(on_bucket));
}

// Sleeping takes no time, so that back-off does not slow the test.
class InstantClock final : public Clock {
 public:
  absl::Time Now() override { return absl::UnixEpoch() + slept_; }
  void Sleep(absl::Duration duration) override { slept_ += duration; }

 private:
  absl::Duration slept_;
};

class TransfersTest : public ::testing::Test {
 protected:
  TransfersTest()
      : device_(*MakeDevice("cpu", 1, nullptr)),
        registration_(TwoBlocks()),
        values_(4, 0.0f),
        mirror_(*HostMirror::Create(device_.get(), Buf{values_.data(), DType::kF32, 4})) {}

  std::unique_ptr<Device> device_;
  const Registration registration_;
  std::vector<float> values_;
  std::unique_ptr<HostMirror> mirror_;
  ScriptedTransport transport_;
  InstantClock clock_;
};

TEST_F(TransfersTest, PullFetchesBucketsInOrderOfBlocks) {
  WeightsPull pull(registration_, Version(3), mirror_.get(), &transport_, &clock_);
  ASSERT_OK(pull.WaitForAll());
  EXPECT_THAT(transport_.pulls_, ElementsAre(ElementsAre(0u, 1u)));
  EXPECT_THAT(values_, ElementsAre(10.0f, 10.0f, 11.0f, 11.0f));
  EXPECT_EQ(pull.version(0), Version(3));
  EXPECT_EQ(pull.version(1), Version(4));
}

TEST_F(TransfersTest, BrokenPullFetchesOnlyWhatIsMissing) {
  transport_.script_ = {absl::UnavailableError("gone")};
  WeightsPull pull(registration_, Version(0), mirror_.get(), &transport_, &clock_);
  ASSERT_OK(pull.WaitForAll());
  EXPECT_THAT(transport_.pulls_, ElementsAre(ElementsAre(0u, 1u), ElementsAre(1u)));
}

TEST_F(TransfersTest, PullOfAnEndedLifeIsNotTriedAgain) {
  transport_.script_ = {absl::AbortedError("register again")};
  WeightsPull pull(registration_, Version(0), mirror_.get(), &transport_, &clock_);
  EXPECT_OK(pull.WaitForBlock(0));
  EXPECT_THAT(pull.WaitForBlock(1), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(transport_.pulls_.size(), 1u);
}

TEST_F(TransfersTest, PushSendsBlocksAsTheyBecomeReadyWithTheirBaseVersions) {
  WeightsPull pull(registration_, Version(3), mirror_.get(), &transport_, &clock_);
  ASSERT_OK(pull.WaitForAll());
  values_ = {1.0f, 2.0f, 3.0f, 4.0f};
  auto mirror = *HostMirror::Create(device_.get(), Buf{values_.data(), DType::kF32, 4});
  ContributionPush push(registration_, {.round = Round(3)}, mirror.get(), &pull, &transport_,
                        &clock_);
  ASSERT_OK(push.BlockReady(1));
  ASSERT_OK(push.BlockReady(0));
  ASSERT_OK(push.Finish());
  ASSERT_EQ(transport_.pushes_.size(), 1u);
  const auto& sent = transport_.pushes_[0];
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].bucket, 1u);
  EXPECT_EQ(sent[0].base_version, Version(4));
  EXPECT_THAT(sent[0].values, ElementsAre(3.0f, 4.0f));
  EXPECT_THAT(sent[1].values, ElementsAre(1.0f, 2.0f));
}

TEST_F(TransfersTest, UnacknowledgedPushIsSentAgainWholeUnderTheSameKey) {
  WeightsPull pull(registration_, Version(0), mirror_.get(), &transport_, &clock_);
  ASSERT_OK(pull.WaitForAll());
  transport_.script_ = {absl::UnavailableError("gone"), absl::DataLossError("checksum")};
  ContributionPush push(registration_, {.round = Round(7)}, mirror_.get(), &pull, &transport_,
                        &clock_);
  ASSERT_OK(push.AllBlocksReady());
  ASSERT_OK(push.Finish());
  ASSERT_EQ(transport_.pushes_.size(), 3u);
  for (const auto& sent : transport_.pushes_) EXPECT_EQ(sent.size(), 2u);
  for (const auto& header : transport_.headers_) EXPECT_EQ(header.round, Round(7));
}

TEST_F(TransfersTest, RefusedPushIsNotSentAgain) {
  WeightsPull pull(registration_, Version(0), mirror_.get(), &transport_, &clock_);
  ASSERT_OK(pull.WaitForAll());
  transport_.script_ = {absl::InvalidArgumentError("NaN")};
  ContributionPush push(registration_, {.round = Round(7)}, mirror_.get(), &pull, &transport_,
                        &clock_);
  ASSERT_OK(push.AllBlocksReady());
  EXPECT_THAT(push.Finish(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(transport_.pushes_.size(), 1u);
}

}  // namespace
}  // namespace lodestar
