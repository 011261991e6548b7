// SPDX-License-Identifier: Apache-2.0

// Dataset gives random access to training and held-out samples of one corpus. Files are read when
// samples are needed, and are never loaded whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace lodestar::data {

// A training sample. The epoch matters because windows of text begin at other places in each epoch.
struct SampleRef {
  int64_t epoch = 0;
  int64_t index = 0;  // In [0, num_train_samples).
  friend bool operator==(const SampleRef&, const SampleRef&) = default;
};

// Samples in host memory, ready for a model. Exactly one of `tokens`, `features` and `samples` is
// filled.
struct HostBatch {
  int64_t num_samples = 0;
  // Index of the first training sample in the order of all samples of the job. The other samples of
  // the batch have the next indices. Random masks depend on this index, so a sample gets the same
  // mask on every worker.
  int64_t first_position = 0;
  std::vector<int32_t> tokens;  // [num_samples, context]
  std::vector<float> features;  // [num_samples, channels, height, width], from 0 to 1.
  // [num_samples, context] next tokens, or [num_samples] classes.
  std::vector<int32_t> targets;
  // Numbers of the samples, for a model that reads the samples itself. The epoch of held-out
  // samples is 0.
  std::vector<SampleRef> samples = {};
  // The gradient is divided by this number of predictions. Set if this batch is only a part of a
  // larger batch, which has this many predictions. 0 means the number of targets in this batch.
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
  // Returns true if the training samples of an epoch come in an order from the job's seed. Returns
  // false if they come in the order of their numbers. See SampleOrder.
  virtual bool is_shuffled() const { return true; }
  // Returns the context if throughput is counted in tokens, or 1 if it is counted in samples.
  virtual int64_t tokens_per_sample() const = 0;
  // Returns 16 hex digits. Data sets with the same content and the same division into samples have
  // the same fingerprint, whatever their paths.
  virtual const std::string& fingerprint() const = 0;
  // Returns one line for the log: format, files, bytes and samples.
  virtual std::string Describe() const = 0;

  // Fill *batch, whose memory is reused. Thread-safe for different batches.
  virtual absl::Status ReadTrain(absl::Span<const SampleRef> samples, HostBatch* batch) const = 0;
  virtual absl::Status ReadHeldout(absl::Span<const int64_t> samples, HostBatch* batch) const = 0;
};

}  // namespace lodestar::data
