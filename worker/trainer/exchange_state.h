// What a worker keeps from round to round, and from life to life, of its exchange with the servers.
#pragma once

#include <optional>

#include "common/encoding.h"
#include "common/job_spec.h"
#include "worker/client/work_grant.h"
#include "worker/trainer/push_encoder.h"
#include "worker/trainer/shadow_weights.h"

namespace lodestar {

class ExchangeState {
 public:
  explicit ExchangeState(const JobSpec& job) : encoder_(job.push_encoding, job.error_feedback) {
    if (job.pull_encoding != Encoding::kFp32) shadow_.emplace(job.pull_encoding);
  }

  PushEncoder& encoder() { return encoder_; }
  // Attached to the registration; null where weights travel as they are.
  ShadowWeights* ShadowFor(const Registration& registration) {
    if (!shadow_.has_value()) return nullptr;
    shadow_->Attach(registration);
    return &*shadow_;
  }

 private:
  PushEncoder encoder_;
  std::optional<ShadowWeights> shadow_;
};

}  // namespace lodestar
