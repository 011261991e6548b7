// SPDX-License-Identifier: Apache-2.0

// SkippedContribution is the contribution of a step that has no gradient. It has no bytes, and does
// not change the residual.
#pragma once

#include "worker/trainer/contribution_bytes.h"

namespace lodestar::trainer {

class SkippedContribution final : public ContributionBytes {
 public:
  // `encoding` must be the encoding of the job's other contributions.
  explicit SkippedContribution(params::Encoding encoding) : encoding_(encoding) {}

  params::Encoding encoding() const override { return encoding_; }
  bool is_inline() const override { return true; }
  void Begin(const messages::Registration&, Round, float) override {}
  kernels::EventId Prepare(const params::Bucket&) override { return 0; }
  absl::Status Await(kernels::EventId) override { return absl::OkStatus(); }
  absl::Span<const std::byte> Of(const params::Bucket&) const override { return {}; }
  void Commit(absl::Span<const uint32_t>) override {}

 private:
  const params::Encoding encoding_;
};

}  // namespace lodestar::trainer
