// The orders of a site: the order that its members are to carry out next, or carry out now, and
// what came of it. Pure. An order is a round of the site's own. An order whose members are all
// lost, and an evaluation that some of them are lost from, is given to the members that are there
// then. If a member is lost from a step of training, the parts of the others count, as in any
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

namespace lodestar {

class SiteCourse {
 public:
  // `upstream`: HOST:PORT of the servers that this site is a worker of.
  SiteCourse(std::string upstream, absl::Time now)
      : upstream_(std::move(upstream)), told_since_(now) {}

  // Takes the order in place of the one before, whose outcome the uplink will not ask for. Returns
  // its number.
  uint64_t Take(const SiteOrder& order);
  // Returns true if the order is withdrawn, and will not be carried out. False means that members
  // have it, that it is done, or that there is no such order.
  bool WithdrawUnlessBegun(uint64_t number);
  // Whether it was neither replaced nor withdrawn.
  bool Has(uint64_t number) const { return number == number_ && (order_ || outcome_); }
  // Not set means that the order is not done.
  std::optional<SiteOutcome> OutcomeOf(uint64_t number) const;

  // Returns the order that is to be opened as a round. Null means that there is none.
  const SiteOrder* waiting() const;
  void OnOpened(Round round) { round_ = round; }
  void OnClosed(const OpenRound& round);

  // `words` say what keeps the uplink from bringing an order, for people. Empty means that nothing
  // does. Returns whether that is news.
  bool TellUpstream(absl::string_view words, absl::Time now);
  const std::string& upstream() const { return upstream_; }
  // Returns the words of TellUpstream(), which are so since `told_since()`.
  const std::string& told() const { return told_; }
  absl::Time told_since() const { return told_since_; }

 private:
  const std::string upstream_;
  uint64_t number_ = 0;
  std::optional<SiteOrder> order_;  // until it is done
  std::optional<Round> round_;      // that carries it out
  std::optional<SiteOutcome> outcome_;
  std::string told_;
  absl::Time told_since_;
};

}  // namespace lodestar
