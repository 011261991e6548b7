// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/site_audit.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace lodestar::simulation {
namespace {

std::string SamplesText(int64_t first, int64_t end) {
  return absl::StrCat("samples ", first, " to ", end);
}

}  // namespace

void AuditedSite::Begin(site::Site* site, std::function<void()> look) {
  site_ = site;
  look_ = std::move(look);
  is_over_ = false;
}

void AuditedSite::BeginWindow(const messages::Grant& grant, absl::Span<const float> weights) {
  grant_ = grant;
  weights_.assign(weights.begin(), weights.end());
  next_sample_ = grant.first_sample;
  next_step_ = 0;
  has_weights_ = false;
  rounds_.clear();
  counted_.clear();
  loss_sum_ = 0.0;
}

void AuditedSite::EndWindow(const messages::RoundReport& report, absl::Span<const float> weights) {
  if (is_over_ || grant_.kind != messages::Grant::Kind::kTrain) return;
  std::sort(counted_.begin(), counted_.end());
  int64_t num_counted = 0;
  int64_t end = grant_.first_sample;
  for (const auto& [first, after] : counted_) {
    if (first < end || after > grant_.first_sample + grant_.num_samples) {
      Fail(SamplesText(first, after), " count, which are none of the grant's, or count already");
    }
    end = after;
    num_counted += after - first;
  }
  if (report.num_samples != num_counted || report.loss_sum != loss_sum_) {
    Fail("the site reports ", report.num_samples, " samples, loss ", report.loss_sum,
         "; its members have handed in ", num_counted, ", loss ", loss_sum_);
  }
  if (report.round != grant_.round) Fail("the site reports round ", report.round.value());
  look_();
  audit_->CheckWeights(weights, rounds_, name_);
}

absl::StatusOr<messages::DatasetInfo> AuditedSite::AwaitData(const Interrupted& is_interrupted) {
  return site_->AwaitData(is_interrupted);
}

absl::Status AuditedSite::PutWeights(absl::Span<const float> weights) {
  if (is_over_) return site_->PutWeights(weights);
  if (!std::equal(weights.begin(), weights.end(), weights_.begin(), weights_.end())) {
    Fail("the site is given other weights than came with the grant");
  }
  if (!rounds_.empty()) Fail("the site is given weights between two orders of one grant");
  audit_->OnReplacing(weights);
  const absl::Status put = site_->PutWeights(weights);
  if (is_over_) return put;
  if (put.ok()) {
    has_weights_ = true;
    look_();
    audit_->OnReplaced();
  } else {
    Fail("the site does not take weights: ", put.ToString());
  }
  return put;
}

absl::Status AuditedSite::GetWeights(absl::Span<float> weights) {
  const absl::Status got = site_->GetWeights(weights);
  if (!is_over_ && !got.ok()) Fail("the site does not give its weights: ", got.ToString());
  return got;
}

void AuditedSite::CheckOrder(const rounds::SiteOrder& order) {
  if (!has_weights_) Fail("the site has not been given the weights that came with the grant");
  if (order.kind == rounds::SiteOrder::Kind::kEvaluate) {
    if (order.first_heldout_sample != grant_.first_heldout_sample ||
        order.num_heldout_samples != grant_.num_heldout_samples ||
        order.evaluation_set_size != grant_.evaluation_set_size) {
      Fail("is not what the site is to evaluate");
    }
    return;
  }
  const auto num_steps = static_cast<int64_t>(order.learning_rates.size());
  const size_t end_step = next_step_ + order.learning_rates.size();
  if (order.first_sample != next_sample_ ||
      order.first_position - order.first_sample != grant_.first_position - grant_.first_sample) {
    Fail("the site is ordered to compute sample ", order.first_sample, " at ", order.first_position,
         "; the next one is ", next_sample_);
  } else if (end_step > grant_.learning_rates.size() ||
             !std::equal(order.learning_rates.begin(), order.learning_rates.end(),
                         grant_.learning_rates.begin() + next_step_)) {
    Fail("the site is ordered to compute ", num_steps, " steps after ", next_step_,
         ", which are not those of the grant");
  }
  next_sample_ += order.num_samples;
  next_step_ = end_step;
  // The WorkAudit of the servers upstream does not see which step a sample belongs to, so this is
  // checked here.
  const int64_t due = grant_.num_samples * static_cast<int64_t>(next_step_) / grant_.local_steps;
  if (next_sample_ != grant_.first_sample + due) {
    Fail("after ", next_step_, " of ", grant_.local_steps,
         " steps the site was ordered to compute ", next_sample_ - grant_.first_sample,
         " samples, due are ", due);
  }
}

absl::StatusOr<rounds::SiteOutcome> AuditedSite::CarryOut(const rounds::SiteOrder& order,
                                                          const Interrupted& is_interrupted) {
  if (is_over_) return site_->CarryOut(order, is_interrupted);
  CheckOrder(order);
  audit_->OnOrdered(order);
  absl::StatusOr<rounds::SiteOutcome> outcome = site_->CarryOut(order, is_interrupted);
  if (is_over_) return outcome;
  outcome.ok() ? CheckOutcome(order, *outcome) : audit_->OnOrderAbandoned();
  return outcome;
}

void AuditedSite::CheckOutcome(const rounds::SiteOrder& order, const rounds::SiteOutcome& outcome) {
  const CarriedOutOrder done = audit_->OrderCarriedOut();
  if (!done.round.has_value()) return Fail("an order is done, and no round of the site was it");
  const messages::RoundReport& sums = done.sums;
  if (order.kind == rounds::SiteOrder::Kind::kEvaluate) {
    if (outcome.heldout.predictions != order.num_heldout_samples ||
        outcome.heldout.loss_sum != sums.heldout_loss_sum) {
      Fail("round ", done.round->value(), " of the site has evaluated ",
           outcome.heldout.predictions, " samples, loss ", outcome.heldout.loss_sum,
           "; ordered were ", order.num_heldout_samples, ", members have reported loss ",
           sums.heldout_loss_sum);
    }
    return;
  }
  if (done.members.empty()) {
    return Fail("an order is done with round ", done.round->value(),
                " of the site, which nobody has reported");
  }
  if (outcome.num_samples != sums.num_samples || outcome.loss_sum != sums.loss_sum ||
      outcome.num_predictions != sums.num_predictions) {
    Fail("round ", done.round->value(), " of the site is said to have ", outcome.num_samples,
         " samples, loss ", outcome.loss_sum, "; its members have reported ", sums.num_samples,
         ", loss ", sums.loss_sum);
  }
  for (const Incarnation member : done.members) {
    if (audit_->HasCounted(member, *done.round)) continue;
    Fail("worker life ", member.value(), " of the site counts in its round ", done.round->value(),
         ", and the servers do not have its contribution");
  }
  rounds_.push_back(*done.round);
  counted_.insert(counted_.end(), done.samples.begin(), done.samples.end());
  loss_sum_ += outcome.loss_sum;
}

}  // namespace lodestar::simulation
