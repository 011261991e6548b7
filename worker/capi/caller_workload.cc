// SPDX-License-Identifier: Apache-2.0

#include "worker/capi/caller_workload.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"

namespace lodestar::capi {
namespace {

class CallerModel final : public model::Model {
 public:
  // `step` points to the step that TrainStep() computes. TrainStep() writes this step into
  // `forecast`. `is_without_samples` points to whether it has no samples, and `get_more` gets more
  // samples for it. All arguments, and what `get_more` uses, must outlive the model.
  CallerModel(const params::Layout* layout, CallerVectors* vectors, StepHandoff* handoff,
              const trainer::RoundStep* step, trainer::StepForecast* forecast,
              const bool* is_without_samples, StepHandoff::GetMore get_more)
      : layout_(layout),
        vectors_(vectors),
        handoff_(handoff),
        step_(step),
        forecast_(forecast),
        is_without_samples_(is_without_samples),
        get_more_(std::move(get_more)) {}

  const params::Layout& layout() const override { return *layout_; }
  kernels::Buf parameters() override { return VectorOf(vectors_->parameters); }
  kernels::Buf gradients() override { return VectorOf(vectors_->gradients); }
  std::optional<double> learning_rate(int block) override { return handoff_->learning_rate(block); }
  std::optional<int64_t> contribution_weight() override { return handoff_->weight_of_round(); }
  bool has_program() const override { return true; }

  absl::StatusOr<model::BatchResult> TrainStep(const data::HostBatch& batch,
                                               model::WeightsGate* gate,
                                               model::GradientSink* sink) override {
    RETURN_IF_ERROR(WaitForAll(gate));
    if (sink != nullptr) sink->BackwardBegins();
    BlockCount told(sink, layout_->num_blocks());
    forecast_->step = step_->step;
    ASSIGN_OR_RETURN(
        const model::BatchResult result,
        handoff_->Compute(
            {.is_training = true,
             .step = *step_,
             .samples = *is_without_samples_ ? std::vector<data::SampleRef>() : batch.samples,
             .first_position = batch.first_position,
             .pass = PassOf(*step_),
             .forecast = *forecast_},
            &told, get_more_));
    if (result.is_skipped) return result;
    ContributeAveraged();
    RETURN_IF_ERROR(told.TellRest());
    return result;
  }

  absl::StatusOr<model::BatchResult> Evaluate(const data::HostBatch& batch,
                                              model::WeightsGate* gate) override {
    RETURN_IF_ERROR(WaitForAll(gate));
    return handoff_->Compute(
        {.is_training = false, .step = *step_, .samples = batch.samples, .forecast = *forecast_},
        /*sink=*/nullptr, get_more_);
  }

 private:
  int64_t PassOf(const trainer::RoundStep& step) const {
    const bool has_local_steps = step.num_steps > 1;
    return forecast_->order->At(has_local_steps ? step.samples.first : step.round_first_sample)
        .epoch;
  }

  // Reports each block to another sink once: first the blocks that the program reports, in the
  // program's order, and then all other blocks.
  class BlockCount final : public model::GradientSink {
   public:
    // `sink` may be null.
    BlockCount(model::GradientSink* sink, int num_blocks)
        : sink_(sink), is_told_(num_blocks, false) {}

    absl::Status BlockReady(int block) override {
      if (block < 0 || block >= static_cast<int>(is_told_.size())) {
        return absl::InvalidArgumentError(
            absl::StrCat("block ", block, " was reported as ready, but the layout has blocks 0 to ",
                         is_told_.size() - 1));
      }
      if (is_told_[block]) {
        return absl::InvalidArgumentError(absl::StrCat(
            "block ", block, " was reported as ready twice in one step; report each block once"));
      }
      is_told_[block] = true;
      return sink_ == nullptr ? absl::OkStatus() : sink_->BlockReady(block);
    }
    absl::Status TellRest() {
      for (int block = static_cast<int>(is_told_.size()) - 1; block >= 0; --block) {
        if (!is_told_[block]) RETURN_IF_ERROR(BlockReady(block));
      }
      return absl::OkStatus();
    }

   private:
    model::GradientSink* const sink_;
    std::vector<bool> is_told_;
  };

  // Copies the parameters of averaged blocks into the gradients, because workers push gradients.
  // The program has left new values in these parameters. It never reports averaged blocks as ready.
  void ContributeAveraged() {
    for (int block = 0; block < layout_->num_blocks(); ++block) {
      if (!layout_->is_averaged(block)) continue;
      const params::ElementRange range = layout_->block(block);
      std::copy_n(vectors_->parameters.data() + range.begin, range.size(),
                  vectors_->gradients.data() + range.begin);
    }
  }

  static kernels::Buf VectorOf(std::vector<float>& vector) {
    return {vector.data(), kernels::DType::kF32, static_cast<int64_t>(vector.size())};
  }

  absl::Status WaitForAll(model::WeightsGate* gate) {
    if (gate == nullptr) return absl::OkStatus();
    for (int block = 0; block < layout_->num_blocks(); ++block) {
      RETURN_IF_ERROR(gate->WaitForBlock(block));
    }
    return absl::OkStatus();
  }

  const params::Layout* const layout_;
  CallerVectors* const vectors_;
  StepHandoff* const handoff_;
  const trainer::RoundStep* const step_;
  trainer::StepForecast* const forecast_;
  const bool* const is_without_samples_;
  const StepHandoff::GetMore get_more_;
};

// A data set that has only the numbers of samples. The program knows what each sample contains.
class CallerDataset final : public data::Dataset {
 public:
  CallerDataset(const messages::DatasetInfo* info, bool is_shuffled)
      : info_(info), is_shuffled_(is_shuffled) {}

  int64_t num_train_samples() const override { return info_->num_train_samples; }
  int64_t num_heldout_samples() const override { return info_->num_heldout_samples; }
  bool is_shuffled() const override { return is_shuffled_; }
  int64_t tokens_per_sample() const override { return info_->tokens_per_sample; }
  const std::string& fingerprint() const override { return info_->fingerprint; }
  std::string Describe() const override {
    return absl::StrCat(info_->num_train_samples, " training samples of the program, ",
                        info_->num_heldout_samples, " held out");
  }
  absl::Status ReadTrain(absl::Span<const data::SampleRef> samples,
                         data::HostBatch* batch) const override {
    batch->num_samples = static_cast<int64_t>(samples.size());
    batch->samples.assign(samples.begin(), samples.end());
    return absl::OkStatus();
  }
  absl::Status ReadHeldout(absl::Span<const int64_t> samples,
                           data::HostBatch* batch) const override {
    batch->num_samples = static_cast<int64_t>(samples.size());
    batch->samples.clear();
    for (const int64_t sample : samples) batch->samples.push_back({.epoch = 0, .index = sample});
    return absl::OkStatus();
  }

 private:
  const messages::DatasetInfo* const info_;
  const bool is_shuffled_;
};

}  // namespace

CallerWorkload::CallerWorkload(job::ProposedSettings proposed, Deps deps)
    : proposed_(proposed), deps_(std::move(deps)) {}

void CallerWorkload::OnRegistered(const messages::Registration& registration) {
  if (life_ != registration.life) forecast_ = {};
  life_ = registration.life;
  if (dataset_ != nullptr) ExpectOrderOf(registration.job);
  deps_.on_registered(registration);
}

void CallerWorkload::ExpectOrderOf(const job::JobSpec& job) {
  forecast_.order.emplace(job.seed, dataset_->num_train_samples(), dataset_->is_shuffled());
}

std::function<void(const std::vector<Version>&)> CallerWorkload::on_weights() {
  return [this](const std::vector<Version>& versions) {
    has_updates_ = std::any_of(versions.begin(), versions.end(),
                               [](Version version) { return version > Version(0); });
    deps_.vectors->initial_state = {};
    deps_.on_weights(versions);
  };
}

absl::Status CallerWorkload::CheckMaySupplyWeights(const job::JobSpec& job) const {
  if (!job::ReducesOnly(job) || !has_updates_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the servers have started again and need first weights. With --optimizer=reduce this worker "
      "has only mean gradients and no weights to send. Start all programs again, from weights that "
      "they load");
}

bool CallerWorkload::Serves(const messages::Registration& registration) const {
  return model_ != nullptr && registration.layout().hash() == model_->layout().hash();
}

absl::Status CallerWorkload::Prepare(const messages::Registration& registration,
                                     const kernels::DeviceSet&, data::StopRequested) {
  ASSIGN_OR_RETURN(const params::Layout* const layout, deps_.await_vectors());
  RETURN_IF_ERROR(
      params::CheckSameLayout(registration.layout(), "the server", *layout, "this program"));
  model_ = std::make_unique<CallerModel>(layout, deps_.vectors, deps_.handoff, &step_, &forecast_,
                                         &has_asked_without_samples_, [this] { return GetMore(); });
  dataset_ = std::make_unique<CallerDataset>(&**deps_.data, *deps_.is_shuffled);
  ExpectOrderOf(registration.job);
  return absl::OkStatus();
}

absl::StatusOr<ExtraSamples> CallerWorkload::GetMore() {
  ASSIGN_OR_RETURN(const messages::Grant grant, extend_grant_(grant_));
  // Without samples of its own, a grant has the position of the samples that come next.
  if (!has_asked_without_samples_ && grant.first_position == grant_.first_position) {
    return absl::UnimplementedError(
        "the servers are of an earlier release, which cannot give a worker more samples within a "
        "round. Upgrade the servers, or give loader() accumulate=");
  }
  forecast_.OnGrant(grant);
  forecast_.step = step_.step;
  ExtraSamples more = {
      .samples = {}, .first_position = grant.first_position, .forecast = forecast_};
  for (int64_t k = 0; k < grant.num_samples; ++k) {
    more.samples.push_back(forecast_.order->At(grant.first_sample + k));
  }
  return more;
}

}  // namespace lodestar::capi
