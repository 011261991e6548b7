// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/testing/scripted_transport.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/runtime/status_macros.h"

namespace lodestar::trainer {
namespace {

class ScriptedPush final : public client::PushSession {
 public:
  ScriptedPush(ScriptedTransport* owner, size_t index) : owner_(owner), index_(index) {}
  void AddBucket(uint32_t bucket, Version base_version, absl::Span<const std::byte> data) override {
    owner_->on_add_(bucket);
    owner_->pushes_[index_].push_back(
        {bucket, base_version, std::vector<std::byte>(data.begin(), data.end())});
  }
  void AddDeviceBucket(uint32_t bucket, Version base_version,
                       const client::DevicePayload& payload) override {
    std::vector<std::byte> data(payload.bytes);
    failure_.Update(payload.source->CopyOut(absl::MakeSpan(data), payload.begin));
    owner_->pushes_[index_].push_back({bucket, base_version, std::move(data), true});
    owner_->on_add_(bucket);
  }
  absl::StatusOr<client::PushResult> Finish() override {
    if (!failure_.ok()) return failure_;
    if (const absl::Status status = owner_->NextStatus(); !status.ok()) return status;
    return client::PushResult{
        .buckets_counted = static_cast<int64_t>(owner_->pushes_[index_].size()),
        .wait = owner_->wait_};
  }
  void Cancel() override {}
  int64_t bytes_unsent() override { return owner_->bytes_unsent_; }

 private:
  ScriptedTransport* const owner_;
  const size_t index_;
  absl::Status failure_;
};

class ScriptedPull final : public client::PullSession {
 public:
  ScriptedPull(ScriptedTransport* owner, client::PullSpec spec,
               client::ParameterTransport::BucketCallback callback)
      : owner_(owner), spec_(std::move(spec)), callback_(std::move(callback)) {}
  absl::Status Wait() override {
    const absl::Status status = owner_->NextStatus();
    for (const client::PullTarget& target : spec_.targets) {
      const std::vector<float> values(target.destination.size(), 10.0f + target.bucket);
      const bool to_device = target.device != nullptr;
      if (!to_device) std::copy(values.begin(), values.end(), target.destination.begin());
      if (to_device) {
        RETURN_IF_ERROR(target.device->CopyIn(target.device_begin, client::BytesOf(values), [] {}));
      }
      callback_({.bucket = target.bucket,
                 .version = Version(spec_.min_round.value() + target.bucket),
                 .is_on_device = to_device});
      if (!status.ok()) break;
    }
    return status;
  }
  void Cancel() override {}

 private:
  ScriptedTransport* const owner_;
  const client::PullSpec spec_;
  const client::ParameterTransport::BucketCallback callback_;
};

// A wait that only Cancel() ends. Wait() may be called several times.
class Stuck {
 public:
  explicit Stuck(absl::Notification* waiting) : waiting_(waiting) {}
  void Cancel() {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
  }
  absl::Status Wait() {
    absl::MutexLock lock(&mutex_);
    if (!waiting_->HasBeenNotified()) waiting_->Notify();
    mutex_.Await(absl::Condition(&cancelled_));
    return absl::CancelledError("cancelled by the test");
  }

 private:
  absl::Notification* const waiting_;
  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

class StuckPush final : public client::PushSession {
 public:
  explicit StuckPush(absl::Notification* waiting) : stuck_(waiting) {}
  void AddBucket(uint32_t, Version, absl::Span<const std::byte>) override {}
  absl::StatusOr<client::PushResult> Finish() override { return stuck_.Wait(); }
  void Cancel() override { stuck_.Cancel(); }

 private:
  Stuck stuck_;
};

class StuckPull final : public client::PullSession {
 public:
  explicit StuckPull(absl::Notification* waiting) : stuck_(waiting) {}
  absl::Status Wait() override { return stuck_.Wait(); }
  void Cancel() override { stuck_.Cancel(); }

 private:
  Stuck stuck_;
};

messages::Registration TwoTensors(int64_t first_elements, int64_t bucket_bytes) {
  messages::Registration registration;
  params::TensorSpec first{
      .name = "first", .shape = {first_elements}, .block = 0, .initializer = {}};
  params::TensorSpec second{.name = "second", .shape = {2}, .block = 1, .initializer = {}};
  auto map = std::make_shared<messages::ClusterMap>();
  map->layout = *params::Layout::FromTensors({first, second});
  const params::ElementRange all = {0, map->layout.num_elements()};
  map->servers = {{0, "nowhere:1", all}};
  map->buckets = *params::PlanBuckets(map->layout, {all}, bucket_bytes);
  registration.map = std::move(map);
  return registration;
}

}  // namespace

messages::Registration TwoBlocks() { return TwoTensors(2, params::kDefaultBucketBytes); }

messages::Registration ABlockOfFourBuckets() { return TwoTensors(8, 2 * sizeof(float)); }

std::vector<float> ScriptedTransport::Sent::values() const {
  const auto* const floats = reinterpret_cast<const float*>(data.data());
  return {floats, floats + data.size() / sizeof(float)};
}

absl::Status ScriptedTransport::NextStatus() {
  if (script_.empty()) return absl::OkStatus();
  const absl::Status status = script_.front();
  script_.erase(script_.begin());
  return status;
}

std::unique_ptr<client::PushSession> ScriptedTransport::StartPush(
    const client::ContributionHeader& header) {
  headers_.push_back(header);
  pushes_.emplace_back();
  return std::make_unique<ScriptedPush>(this, pushes_.size() - 1);
}

std::unique_ptr<client::PullSession> ScriptedTransport::StartPull(client::PullSpec spec,
                                                                  BucketCallback on_bucket) {
  pulls_.emplace_back();
  for (const client::PullTarget& target : spec.targets) pulls_.back().push_back(target.bucket);
  return std::make_unique<ScriptedPull>(this, std::move(spec), std::move(on_bucket));
}

std::unique_ptr<client::PushSession> StuckTransport::StartPush(const client::ContributionHeader&) {
  return std::make_unique<StuckPush>(&waiting_);
}

std::unique_ptr<client::PullSession> StuckTransport::StartPull(client::PullSpec, BucketCallback) {
  return std::make_unique<StuckPull>(&waiting_);
}

}  // namespace lodestar::trainer
