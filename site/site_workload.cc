// SPDX-License-Identifier: Apache-2.0

#include "site/site_workload.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"
#include "server/site/site_job.h"

namespace lodestar::site {
namespace {

// Describes the data of the site's workers. It reads no samples, because the workers read the data
// themselves.
class SiteDataset final : public data::Dataset {
 public:
  explicit SiteDataset(messages::DatasetInfo info) : info_(std::move(info)) {}

  int64_t num_train_samples() const override { return info_.num_train_samples; }
  int64_t num_heldout_samples() const override { return info_.num_heldout_samples; }
  int64_t tokens_per_sample() const override { return info_.tokens_per_sample; }
  const std::string& fingerprint() const override { return info_.fingerprint; }
  std::string Describe() const override {
    return absl::StrCat(info_.num_train_samples, " samples of this site's workers, ",
                        info_.num_heldout_samples, " held out");
  }
  absl::Status ReadTrain(absl::Span<const data::SampleRef> samples,
                         data::HostBatch* batch) const override {
    batch->num_samples = static_cast<int64_t>(samples.size());
    return absl::OkStatus();
  }
  absl::Status ReadHeldout(absl::Span<const int64_t> samples,
                           data::HostBatch* batch) const override {
    batch->num_samples = static_cast<int64_t>(samples.size());
    return absl::OkStatus();
  }

 private:
  const messages::DatasetInfo info_;
};

}  // namespace

class SiteWorkload::SiteModel final : public model::Model {
 public:
  SiteModel(params::Layout layout, SiteWorkload* owner)
      : layout_(std::move(layout)), owner_(owner) {}

  const params::Layout& layout() const override { return layout_; }
  kernels::Buf parameters() override { return VectorOf(owner_->parameters_); }
  kernels::Buf gradients() override { return VectorOf(owner_->gradients_); }

  absl::StatusOr<model::BatchResult> TrainStep(const data::HostBatch&, model::WeightsGate* gate,
                                               model::GradientSink*) override {
    RETURN_IF_ERROR(WaitForAll(gate));
    return owner_->Train();
  }
  absl::StatusOr<model::BatchResult> Evaluate(const data::HostBatch&,
                                              model::WeightsGate* gate) override {
    RETURN_IF_ERROR(WaitForAll(gate));
    return owner_->Evaluate();
  }
  // Called when other code than a step has changed the parameters. Then the site needs them again.
  void RefreshNarrowParameters() override { owner_->has_put_weights_ = false; }

 private:
  static kernels::Buf VectorOf(std::vector<float>& vector) {
    return {vector.data(), kernels::DType::kF32, static_cast<int64_t>(vector.size())};
  }

  absl::Status WaitForAll(model::WeightsGate* gate) const {
    for (int block = 0; gate != nullptr && block < layout_.num_blocks(); ++block) {
      RETURN_IF_ERROR(gate->WaitForBlock(block));
    }
    return absl::OkStatus();
  }

  const params::Layout layout_;
  SiteWorkload* const owner_;
};

void SiteWorkload::OnRegistered(const messages::Registration&) {
  // The error is ignored here, because Prepare() or a step finds the same error.
  deps_.site->AwaitData(deps_.is_stopping).IgnoreError();
}

bool SiteWorkload::Serves(const messages::Registration& registration) const {
  return model_ != nullptr && registration.layout().hash() == model_->layout().hash() &&
         site::CheckGoesOn(began_, registration.job, steps_of_order_).ok();
}

absl::Status SiteWorkload::Prepare(const messages::Registration& registration,
                                   const kernels::DeviceSet& /*devices*/,
                                   data::StopRequested /*stop_requested*/) {
  steps_of_order_ = deps_.site->StepsOfOrder();
  RETURN_IF_ERROR(site::CheckGoesOn(began_, registration.job, steps_of_order_));
  ASSIGN_OR_RETURN(messages::DatasetInfo data, deps_.site->AwaitData(deps_.is_stopping));
  const int64_t elements = registration.layout().num_elements();
  try {
    parameters_.assign(elements, 0.0f);
    gradients_.assign(elements, 0.0f);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "there is not enough memory for vectors of ", elements,
        " floats, which a site needs in addition to those of its server; use a machine "
        "with more memory"));
  }
  defers_contributions_ = job::DefersContributions(registration.job);
  model_ = std::make_unique<SiteModel>(registration.layout(), this);
  dataset_ = std::make_unique<SiteDataset>(std::move(data));
  return absl::OkStatus();
}

void SiteWorkload::OnGrant(const messages::Grant& grant) {
  grant_ = grant;
  has_evaluated_ = false;
  // At the beginning of a round, the worker pulls new weights, which the site must get. With
  // deferred contributions the worker keeps its weights until a merge changes them.
  if (!defers_contributions_) has_put_weights_ = false;
}

void SiteWorkload::OnStep(const trainer::RoundStep& step) {
  step_ = step;
  if (step.step == 0) trained_samples_ = 0;
}

absl::Status SiteWorkload::PutWeightsOnce() {
  if (std::exchange(has_put_weights_, true)) return absl::OkStatus();
  return deps_.site->PutWeights(parameters_);
}

absl::StatusOr<rounds::SiteOutcome> SiteWorkload::CarryOut(const rounds::SiteOrder& order) {
  absl::StatusOr<rounds::SiteOutcome> outcome = deps_.site->CarryOut(order, deps_.is_stopping);
  // If the order was cancelled, the site stops. The stop must be requested before the worker sees
  // the error.
  if (absl::IsCancelled(outcome.status())) deps_.request_stop();
  return outcome;
}

absl::StatusOr<model::BatchResult> SiteWorkload::Train() {
  if (step_.step % steps_of_order_ == 0) {
    order_ = rounds::SiteOrder();
    order_.kind = rounds::SiteOrder::Kind::kTrain;
    order_.first_sample = step_.samples.first;
    order_.first_position = step_.samples.first_position;
  }
  order_.num_samples += step_.samples.count;
  order_.learning_rates.push_back(step_.learning_rate);
  model::BatchResult result;
  result.num_lost_samples = step_.samples.count;
  if (static_cast<int>(order_.learning_rates.size()) < steps_of_order_) return result;
  RETURN_IF_ERROR(PutWeightsOnce());
  ASSIGN_OR_RETURN(const rounds::SiteOutcome outcome, CarryOut(order_));
  trained_samples_ += outcome.num_samples;
  result.loss_sum = outcome.loss_sum;
  result.num_predictions = outcome.num_predictions;
  result.num_lost_samples -= outcome.num_samples;
  return result;
}

absl::StatusOr<model::BatchResult> SiteWorkload::Evaluate() {
  model::BatchResult result;
  if (std::exchange(has_evaluated_, true)) return result;
  RETURN_IF_ERROR(PutWeightsOnce());
  rounds::SiteOrder order;
  order.kind = rounds::SiteOrder::Kind::kEvaluate;
  order.first_heldout_sample = grant_.first_heldout_sample;
  order.num_heldout_samples = grant_.num_heldout_samples;
  order.evaluation_set_size = grant_.evaluation_set_size;
  ASSIGN_OR_RETURN(const rounds::SiteOutcome outcome, CarryOut(order));
  result.loss_sum = outcome.heldout.loss_sum;
  result.num_correct = outcome.heldout.correct;
  result.num_predictions = outcome.heldout.predictions;
  return result;
}

absl::Status SiteWorkload::OnStepsMade() {
  if (trained_samples_ == 0 && !defers_contributions_) {
    return absl::CancelledError(
        "this site was stopped on request before its workers made their first steps");
  }
  // The site has not received these weights, so it has made no step from them.
  if (!has_put_weights_) return absl::OkStatus();
  return deps_.site->GetWeights(absl::MakeSpan(parameters_));
}

}  // namespace lodestar::site
