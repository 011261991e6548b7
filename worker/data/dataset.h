// Dataset: random access to training and held-out samples of one corpus; files are read
// as samples are needed, never loaded whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace lodestar::data {

// A training sample: the epoch matters because windows of text shift from epoch to epoch.
struct SampleRef {
  int64_t epoch = 0;
  int64_t index = 0;  // in [0, num_train_samples)
  friend bool operator==(const SampleRef&, const SampleRef&) = default;
};

// Samples in host memory, ready for a model. Exactly one of `tokens`, `features` and `samples` is
// filled.
struct HostBatch {
  int64_t num_samples = 0;
  // Place of the first training sample in the global order of all samples of the job, the others
  // follow: what random masks depend on, so that they do not depend on who computes a sample.
  int64_t first_position = 0;
  std::vector<int32_t> tokens;   // [num_samples, context]
  std::vector<float> features;   // [num_samples, channels, height, width], 0..1
  std::vector<int32_t> targets;  // [num_samples, context] next tokens, or [num_samples] classes
  // Which they are, for a model that reads them itself. Of held-out ones the epoch is 0.
  std::vector<SampleRef> samples = {};
  // Predictions over which the gradient is the mean, where this is a part of a larger batch. 0
  // means those of this one.
  int64_t mean_over = 0;

  int64_t MeanOver() const {
    return mean_over > 0 ? mean_over : static_cast<int64_t>(targets.size());
  }
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t num_train_samples() const = 0;
  virtual int64_t num_heldout_samples() const = 0;
  // Units that throughput is told in: "tokens" (context per sample) or "samples" (1).
  virtual int64_t tokens_per_sample() const = 0;
  // Same content and same cut into samples: same fingerprint (16 hex digits), whatever the path.
  virtual const std::string& fingerprint() const = 0;
  // One line for the log: format, files, bytes, samples.
  virtual std::string Describe() const = 0;

  // Fill *batch (reusing its memory). Thread-safe for distinct batches.
  virtual absl::Status ReadTrain(absl::Span<const SampleRef> samples, HostBatch* batch) const = 0;
  virtual absl::Status ReadHeldout(absl::Span<const int64_t> samples, HostBatch* batch) const = 0;
};

}  // namespace lodestar::data
