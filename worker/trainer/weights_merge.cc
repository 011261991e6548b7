// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/weights_merge.h"

#include <utility>

#include "common/runtime/status_macros.h"
#include "worker/model/device_memory.h"

namespace lodestar::trainer {
namespace {

constexpr kernels::StreamKind kStream = kernels::StreamKind::kCompute;

kernels::Buf Part(kernels::Buf vector, params::ElementRange range) {
  return vector.Slice(range.begin, range.size());
}

size_t BytesOf(kernels::Buf vector) {
  return kernels::DTypeBytes(vector.dtype) * vector.num_elements;
}

// A vector that only one merge rule needs.
class OwnVector {
 public:
  static absl::StatusOr<OwnVector> Allocate(kernels::Device* device, kernels::Buf like) {
    OwnVector vector;
    ASSIGN_OR_RETURN(vector.memory_, model::DeviceMemory::Allocate(device, BytesOf(like)));
    vector.buf_ = kernels::Buf{vector.memory_.data(), like.dtype, like.num_elements};
    return vector;
  }
  kernels::Buf buf() const { return buf_; }

 private:
  model::DeviceMemory memory_;
  kernels::Buf buf_;
};

void CopyRange(kernels::Device* device, kernels::Buf to, kernels::Buf from,
               params::ElementRange range) {
  device->Copy(Part(to, range).data, Part(from, range).data, BytesOf(Part(to, range)), kStream);
}

// Replaces the local weights by the servers' weights. The worker computes no step while it waits
// for the new weights.
class ReplacingMerge final : public WeightsMerge {
 public:
  explicit ReplacingMerge(const Vectors& vectors) : vectors_(vectors) {}
  kernels::Buf origin() const override { return vectors_.global; }
  void Begin() override {}
  void OnContributed(Ranges, std::optional<double>) override {}
  void OnArrived(Ranges ranges) override {
    for (const params::ElementRange& range : ranges) {
      CopyRange(vectors_.device, vectors_.local, vectors_.global, range);
    }
  }

 private:
  const Vectors vectors_;
};

// Sets local to alpha * local + (1 - alpha) * global, as Streaming DiLoCo does (arXiv:2501.18512,
// section 2.3).
class MixingMerge final : public WeightsMerge {
 public:
  MixingMerge(const Vectors& vectors, double alpha) : vectors_(vectors), alpha_(alpha) {}
  kernels::Buf origin() const override { return vectors_.global; }
  void Begin() override {}
  void OnContributed(Ranges, std::optional<double>) override {}
  void OnArrived(Ranges ranges) override {
    // Computes local + (1 - alpha) * (global - local).
    for (const params::ElementRange& range : ranges) {
      const kernels::Buf difference = Part(vectors_.contributed, range);
      vectors_.device->Subtract(difference, Part(vectors_.global, range),
                                Part(vectors_.local, range));
      vectors_.device->AddScaled(Part(vectors_.local, range), difference, 1.0 - alpha_);
    }
  }

 private:
  const Vectors vectors_;
  const double alpha_;
};

// Sets local to global + (local - local at the contribution). So the changes of all steps after the
// contribution stay.
class KeepingMerge final : public WeightsMerge {
 public:
  KeepingMerge(const Vectors& vectors, OwnVector at_contribution)
      : vectors_(vectors), at_contribution_(std::move(at_contribution)) {}
  kernels::Buf origin() const override { return vectors_.global; }
  void Begin() override {}
  void OnContributed(Ranges ranges, std::optional<double>) override {
    for (const params::ElementRange& range : ranges) {
      CopyRange(vectors_.device, at_contribution_.buf(), vectors_.local, range);
    }
  }
  void OnArrived(Ranges ranges) override {
    for (const params::ElementRange& range : ranges) {
      const kernels::Buf local = Part(vectors_.local, range);
      vectors_.device->Subtract(local, local, Part(at_contribution_.buf(), range));
      vectors_.device->AddScaled(local, Part(vectors_.global, range), 1.0);
    }
  }

 private:
  const Vectors vectors_;
  const OwnVector at_contribution_;
};

// Merges by elastic averaging, see IsElastic(). The local weights move towards the servers' weights
// when the worker contributes. So the worker continues without waiting. It needs the servers'
// weights after the round only for its next contribution.
//
// If all workers of a round contribute, the sum of the workers' weights and the servers' weights
// stays the same.
class ElasticMerge final : public WeightsMerge {
 public:
  ElasticMerge(const Vectors& vectors, double rate) : vectors_(vectors), rate_(rate) {}
  kernels::Buf origin() const override { return vectors_.global; }
  void Begin() override {}
  void OnContributed(Ranges ranges, std::optional<double> share) override {
    if (!share.has_value()) return;
    for (const params::ElementRange& range : ranges) {
      vectors_.device->AddScaled(Part(vectors_.local, range), Part(vectors_.contributed, range),
                                 rate_ * *share);
    }
  }
  void OnArrived(Ranges) override {}

 private:
  const Vectors vectors_;
  const double rate_;
};

// Makes the servers' outer step on the worker, before the servers have made it (eager updates,
// arXiv:2502.12996). The next window begins with the weights that this step gives if only this
// worker has contributed:
//   global - rate * ((1 + beta) * share * contributed + beta^2 * momentum)
// The contributions of the other workers arrive with the round's weights, during that window. With
// one worker, this step gives the same weights as the servers' step.
//
// Servers do not send their momentum, so the worker computes it from the change of their weights.
// `mean` is the mean of a round's contributions:
//   change = rate * ((1 + beta) * mean + beta^2 * momentum)
//   new momentum = beta * momentum + mean
//                = beta / (1 + beta) * momentum + change / (rate * (1 + beta))
// A worker that joins late begins with momentum 0. After a few rounds this first value has no
// influence.
class EagerMerge final : public WeightsMerge {
 public:
  struct OwnVectors {
    OwnVector start;  // The weights at the start of the window.
    // `global` before the last round. Empty if the momentum is not computed; see KnowsMomentum().
    OwnVector before;
    OwnVector momentum;  // Empty means that it is not computed.
  };
  EagerMerge(const Vectors& vectors, OwnVectors own, double rate, double momentum)
      : vectors_(vectors), own_(std::move(own)), rate_(rate), beta_(momentum) {}

  kernels::Buf origin() const override { return own_.start.buf(); }

  void Begin() override {
    kernels::Device* const device = vectors_.device;
    device->Copy(own_.start.buf().data, vectors_.local.data, BytesOf(vectors_.local), kStream);
    if (has_momentum()) device->Fill(own_.momentum.buf(), 0.0);
  }

  void OnContributed(Ranges ranges, std::optional<double> share) override {
    kernels::Device* const device = vectors_.device;
    for (const params::ElementRange& range : ranges) {
      if (has_momentum()) CopyRange(device, own_.before.buf(), vectors_.global, range);
      // `share` is not set if this worker has just begun and has contributed nothing.
      if (!share.has_value()) continue;
      const kernels::Buf local = Part(vectors_.local, range);
      CopyRange(device, vectors_.local, vectors_.global, range);
      device->AddScaled(local, Part(vectors_.contributed, range), -rate_ * (1.0 + beta_) * *share);
      if (has_momentum()) {
        device->AddScaled(local, Part(own_.momentum.buf(), range), -rate_ * beta_ * beta_);
      }
      CopyRange(device, own_.start.buf(), vectors_.local, range);
    }
  }

  void OnArrived(Ranges ranges) override {
    if (!has_momentum()) return;
    kernels::Device* const device = vectors_.device;
    for (const params::ElementRange& range : ranges) {
      const kernels::Buf change = Part(own_.before.buf(), range);
      const kernels::Buf momentum = Part(own_.momentum.buf(), range);
      device->Subtract(change, change, Part(vectors_.global, range));
      const kernels::Buf less = Part(vectors_.contributed, range);
      device->Cast(less, momentum, beta_ / (1.0 + beta_) - 1.0, kStream);
      device->AddScaled(momentum, less, 1.0);
      device->AddScaled(momentum, change, 1.0 / (rate_ * (1.0 + beta_)));
    }
  }

 private:
  bool has_momentum() const { return static_cast<bool>(own_.momentum.buf()); }

  const Vectors vectors_;
  const OwnVectors own_;
  const double rate_;
  const double beta_;
};

// Returns true if EagerMerge needs the servers' momentum and can compute it from their weights. If
// the rate is 0, the weights never change, and the momentum has no effect.
bool KnowsMomentum(const job::JobSpec& job) {
  return job.outer_optimizer == job::OuterOptimizerKind::kNesterov && job.outer_momentum > 0.0 &&
         job.outer_learning_rate > 0.0;
}

absl::StatusOr<std::unique_ptr<WeightsMerge>> MakeEager(const job::JobSpec& job,
                                                        const WeightsMerge::Vectors& vectors) {
  EagerMerge::OwnVectors own;
  ASSIGN_OR_RETURN(own.start, OwnVector::Allocate(vectors.device, vectors.local));
  const bool has_momentum = KnowsMomentum(job);
  if (has_momentum) {
    ASSIGN_OR_RETURN(own.before, OwnVector::Allocate(vectors.device, vectors.local));
    ASSIGN_OR_RETURN(own.momentum, OwnVector::Allocate(vectors.device, vectors.local));
  }
  return std::make_unique<EagerMerge>(vectors, std::move(own), job.outer_learning_rate,
                                      has_momentum ? job.outer_momentum : 0.0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightsMerge>> MakeWeightsMerge(
    const job::JobSpec& job, const WeightsMerge::Vectors& vectors) {
  if (job.overlap_rounds) return MakeEager(job, vectors);
  if (job::IsElastic(job)) return std::make_unique<ElasticMerge>(vectors, job.outer_learning_rate);
  if (job.overlap_steps == 0) return std::make_unique<ReplacingMerge>(vectors);
  switch (job.merge) {
    case job::MergeKind::kMix:
      return std::make_unique<MixingMerge>(vectors, job.merge_alpha);
    case job::MergeKind::kKeep: {
      ASSIGN_OR_RETURN(OwnVector at_contribution,
                       OwnVector::Allocate(vectors.device, vectors.local));
      return std::make_unique<KeepingMerge>(vectors, std::move(at_contribution));
    }
  }
  return absl::InternalError("unknown merge");
}

int NumMergeVectors(const job::JobSpec& job) {
  if (job.overlap_rounds) return KnowsMomentum(job) ? 3 : 1;
  return job.overlap_steps > 0 && job.merge == job::MergeKind::kKeep ? 1 : 0;
}

}  // namespace lodestar::trainer
