// SPDX-License-Identifier: Apache-2.0

// Holds the order that the members of a site carry out now or next, and its outcome. Pure. Each
// order is one round of the site. Members may be lost during the round:
// - If all members are lost, the order is given again to the members that are there then.
// - If any member of an evaluation is lost, the order is given again, too.
// - If some members of a round of training are lost, the contributions of the others count.
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

  // Stores a new order, and forgets the previous order with its outcome. Returns the number of the
  // new order.
  uint64_t Take(const SiteOrder& order);
  // Withdraws the order if no round has begun for it. Returns false if members already carry it
  // out, if it is done, or if there is no order with this number.
  bool WithdrawUnlessBegun(uint64_t number);
  // Returns true if the order with this number was neither replaced nor withdrawn.
  bool Has(uint64_t number) const { return number == number_ && (order_ || outcome_); }
  // Returns the outcome of the order. Not set means that the order is not done.
  std::optional<SiteOutcome> OutcomeOf(uint64_t number) const;

  // Returns the order for which a round must be opened. Null means that there is no such order.
  const SiteOrder* waiting() const;
  void OnOpened(Round round) { round_ = round; }
  void OnClosed(const OpenRound& round);

  // Stores a message for operators that says why the uplink brings no order. Empty means that the
  // uplink brings orders. Returns true if the message has changed.
  bool TellUpstream(absl::string_view words, absl::Time now);
  const std::string& upstream() const { return upstream_; }
  // Returns the message of TellUpstream(). It has been the same since told_since().
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
