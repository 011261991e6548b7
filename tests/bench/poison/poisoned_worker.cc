// SPDX-License-Identifier: Apache-2.0

// A gpu_worker whose contributions are altered on their way to the servers, for trials. It is the
// real program, linked with -Wl,--wrap around the function that makes its transport, so that the
// product needs no switch for this. LODESTAR_POISON is flip (changes the sign), long (multiplies by
// 100), nan, or random (random numbers of the same norm). LODESTAR_POISON_FROM is the first altered
// round.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/runtime/check.h"
#include "worker/client/bulk_grpc_transport.h"

namespace lodestar {

std::unique_ptr<client::ParameterTransport>
MakeRealTransport(client::BulkGrpcTransportConfig config) __asm__(
    "__real__ZN8lodestar6client21MakeBulkGrpcTransportENS0_23BulkGrpcTransportConfigE");
std::unique_ptr<client::ParameterTransport>
MakePoisonedTransport(client::BulkGrpcTransportConfig config) __asm__(
    "__wrap__ZN8lodestar6client21MakeBulkGrpcTransportENS0_23BulkGrpcTransportConfigE");

namespace {

class PoisonedPush final : public client::PushSession {
 public:
  PoisonedPush(std::string kind, uint32_t seed, std::unique_ptr<client::PushSession> push)
      : kind_(std::move(kind)), noise_(seed), push_(std::move(push)) {}

  void AddBucket(uint32_t bucket, Version base_version, absl::Span<const std::byte> data) override {
    std::vector<float>& altered = altered_.emplace_back(data.size() / sizeof(float));
    std::memcpy(altered.data(), data.data(), data.size());
    Alter(altered);
    push_->AddBucket(bucket, base_version, client::BytesOf(altered));
  }
  absl::StatusOr<client::PushResult> Finish() override { return push_->Finish(); }
  void Cancel() override { push_->Cancel(); }

 private:
  void Alter(std::vector<float>& values) {
    if (kind_ == "random") {
      double square_sum = 0.0;
      for (const float value : values) square_sum += double{value} * double{value};
      std::normal_distribution<float> normal(
          0.0f, static_cast<float>(std::sqrt(square_sum / values.size())) + 1e-30f);
      for (float& value : values) value = normal(noise_);
      return;
    }
    const float factor = kind_ == "flip"   ? -1.0f
                         : kind_ == "long" ? 100.0f
                                           : std::numeric_limits<float>::quiet_NaN();
    for (float& value : values) value *= factor;
  }

  const std::string kind_;
  std::mt19937 noise_;
  std::vector<std::vector<float>> altered_;    // these must not move, because push_ refers to them
  std::unique_ptr<client::PushSession> push_;  // destroyed first, because it refers to altered_
};

class PoisonedTransport final : public client::ParameterTransport {
 public:
  explicit PoisonedTransport(std::unique_ptr<client::ParameterTransport> transport)
      : transport_(std::move(transport)) {
    const char* const kind = std::getenv("LODESTAR_POISON");
    const char* const from = std::getenv("LODESTAR_POISON_FROM");
    LODESTAR_CHECK(kind != nullptr) << "LODESTAR_POISON is not set";
    kind_ = kind;
    if (from != nullptr) from_ = Round(std::atoll(from));
  }

  std::unique_ptr<client::PushSession> StartPush(
      const client::ContributionHeader& header) override {
    LODESTAR_CHECK(header.encoding == params::Encoding::kFp32) << "only fp32 is altered";
    std::unique_ptr<client::PushSession> push = transport_->StartPush(header);
    if (header.round < from_) return push;
    return std::make_unique<PoisonedPush>(kind_, static_cast<uint32_t>(header.round.value()),
                                          std::move(push));
  }
  std::unique_ptr<client::PullSession> StartPull(client::PullSpec spec,
                                                 BucketCallback on_bucket) override {
    return transport_->StartPull(std::move(spec), std::move(on_bucket));
  }
  std::unique_ptr<client::PullSession> StartTrial() override { return transport_->StartTrial(); }
  uint64_t bytes_pushed() const override { return transport_->bytes_pushed(); }
  uint64_t bytes_pulled() const override { return transport_->bytes_pulled(); }
  std::optional<messages::Standstill> standstill() const override {
    return transport_->standstill();
  }
  void MoveTo(const std::vector<std::string>& addresses) override { transport_->MoveTo(addresses); }

 private:
  const std::unique_ptr<client::ParameterTransport> transport_;
  std::string kind_;
  Round from_;
};

}  // namespace

std::unique_ptr<client::ParameterTransport> MakePoisonedTransport(
    client::BulkGrpcTransportConfig config) {
  return std::make_unique<PoisonedTransport>(MakeRealTransport(std::move(config)));
}

}  // namespace lodestar
