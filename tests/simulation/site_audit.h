// SPDX-License-Identifier: Apache-2.0

// AuditedSite is a site as its uplink sees it. It checks all that passes between the two levels.
// The audits of both levels find what is wrong within a level.
//
// The rules for each grant of the servers upstream are:
//   its orders have its samples one after the other, each once, with the learning rates of their
//   steps;
//   an order that is done was one round of the site, which members have reported; its outcome is
//   the
//   sum of their reports, and the servers have all contributions of these members;
//   the samples that count belong to the grant, none of them twice, and their number is the one
//   that
//   the uplink reports;
//   members compute on the weights that came with the grant;
//   the uplink delivers the site's weights after exactly the rounds of these orders. Rounds that
//   lost all their members, and an order that the uplink gave up when it stopped, may be missing.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/messages/cluster_messages.h"
#include "server/site/site.h"
#include "tests/simulation/audit.h"

namespace lodestar::simulation {

class AuditedSite final : public site::Site {
 public:
  // `audit` audits the site's own servers and workers.
  AuditedSite(Audit* audit, std::string name) : audit_(audit), name_(std::move(name)) {}

  // A server of the site begins. `look` makes its audit inspect all weights.
  void Begin(site::Site* site, std::function<void()> look);
  // The server ends. Answers from now on do not leave its process.
  void End() { is_over_ = true; }

  // The uplink begins to carry out a grant, and has carried it out.
  void BeginWindow(const messages::Grant& grant, absl::Span<const float> weights);
  void EndWindow(const messages::RoundReport& report, absl::Span<const float> weights);

  absl::StatusOr<messages::DatasetInfo> AwaitData(const Interrupted& is_interrupted) override;
  int StepsOfOrder() override { return site_->StepsOfOrder(); }
  absl::Status PutWeights(absl::Span<const float> weights) override;
  absl::Status GetWeights(absl::Span<float> weights) override;
  absl::StatusOr<rounds::SiteOutcome> CarryOut(const rounds::SiteOrder& order,
                                               const Interrupted& is_interrupted) override;
  void TellUpstream(absl::string_view words) override { site_->TellUpstream(words); }
  void OnUpstreamEnd(const absl::Status& outcome) override { site_->OnUpstreamEnd(outcome); }

 private:
  template <typename... Pieces>
  void Fail(const Pieces&... pieces) {
    audit_->Fail(name_, ": round ", grant_.round.value(), " of the servers upstream: ", pieces...);
  }
  void CheckOrder(const rounds::SiteOrder& order);
  void CheckOutcome(const rounds::SiteOrder& order, const rounds::SiteOutcome& outcome);

  Audit* const audit_;
  const std::string name_;
  site::Site* site_ = nullptr;
  std::function<void()> look_;
  bool is_over_ = true;

  // The members below are for the current grant.
  messages::Grant grant_;
  std::vector<float> weights_;  // weights that the grant begins with
  bool has_weights_ = false;    // the site has these weights
  int64_t next_sample_ = 0;     // first sample of the next order
  size_t next_step_ = 0;
  std::vector<Round> rounds_;  // rounds of the orders that are done
  // Ranges of counted samples: the first one, and the one after the last.
  std::vector<std::pair<int64_t, int64_t>> counted_;
  double loss_sum_ = 0.0;
};

}  // namespace lodestar::simulation
