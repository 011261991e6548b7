// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/rounds/site_course.h"

namespace lodestar::rounds {

uint64_t SiteCourse::Take(const SiteOrder& order) {
  order_ = order;
  round_.reset();
  outcome_.reset();
  return ++number_;
}

bool SiteCourse::WithdrawUnlessBegun(uint64_t number) {
  if (number != number_ || waiting() == nullptr) return false;
  order_.reset();
  return true;
}

std::optional<SiteOutcome> SiteCourse::OutcomeOf(uint64_t number) const {
  return number == number_ ? outcome_ : std::nullopt;
}

const SiteOrder* SiteCourse::waiting() const {
  return order_.has_value() && !round_.has_value() ? &*order_ : nullptr;
}

void SiteCourse::OnClosed(const OpenRound& round) {
  if (!order_.has_value() || round_ != round.round()) return;
  const OpenRound::Memory& sums = round.memory();
  const bool is_done =
      sums.reported > 0 && (order_->kind == SiteOrder::Kind::kTrain || !round.was_lost_from());
  round_.reset();
  if (!is_done) return;
  order_.reset();
  outcome_ = SiteOutcome{.loss_sum = sums.loss_sum,
                         .num_predictions = sums.predictions,
                         .num_samples = sums.samples,
                         .heldout = round.Heldout()};
}

bool SiteCourse::TellUpstream(absl::string_view words, absl::Time now) {
  if (words == told_) return false;
  told_ = std::string(words);
  told_since_ = now;
  return true;
}

}  // namespace lodestar::rounds
