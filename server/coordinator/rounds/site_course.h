// SPDX-License-Identifier: Apache-2.0

// Holds the order that the members of a site carry out now or next, and its outcome. Pure. Each
// order is one round of the site. If all members of an order are lost, the order is given again to
// the members that are there then. The same is done if any member of an evaluation is lost. If a
// member is lost from a step of training, the parts of the other members count, as in any
// synchronous round.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/runtime/ids.h"
#include "server/coordinator/rounds/open_round.h"
#include "server/coordinator/rounds/site_order.h"

namespace lodestar::rounds {

class SiteCourse {
 public:
  // `upstream` is the HOST:PORT of the servers that this site is a worker of.
  SiteCourse(std::string upstream, absl::Time now)
      : upstream_(std::move(upstream)), told_since_(now) {}

  // Stores the order. It replaces the previous order, whose outcome the uplink will not ask for.
  // Returns the number of the new order.
  uint64_t Take(const SiteOrder& order);
  // Withdraws the order if no round has begun for it. Returns false if members have the order, if
  // it is done, or if there is no order with this number.
  bool WithdrawUnlessBegun(uint64_t number);
  // Returns true if the order with this number was neither replaced nor withdrawn.
  bool Has(uint64_t number) const { return number == number_ && (order_ || outcome_); }
  // Returns the outcome of the order. Not set means that the order is not done.
  std::optional<SiteOutcome> OutcomeOf(uint64_t number) const;

  // Returns the order that is to be opened as a round. Null means that there is no such order.
  const SiteOrder* waiting() const;
  void OnOpened(Round round) { round_ = round; }
  void OnClosed(const OpenRound& round);

  // Stores `words`, a message for operators that says what keeps the uplink from bringing an order.
  // Empty means that the uplink brings orders. Returns true if the words have changed.
  bool TellUpstream(absl::string_view words, absl::Time now);
  const std::string& upstream() const { return upstream_; }
  // Returns the words of TellUpstream(). They have not changed since told_since().
  const std::string& told() const { return told_; }
  absl::Time told_since() const { return told_since_; }

 private:
  const std::string upstream_;
  uint64_t number_ = 0;
  std::optional<SiteOrder> order_;  // not set when done or withdrawn
  std::optional<Round> round_;      // open round that carries out the order
  std::optional<SiteOutcome> outcome_;
  std::string told_;
  absl::Time told_since_;
};

}  // namespace lodestar::rounds
