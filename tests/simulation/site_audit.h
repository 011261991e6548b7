// AuditedSite: a site as its uplink sees it, which looks at all that goes through between the two
// levels. What is wrong within a level, the audits of both levels find.
//
// It holds, for each grant of the servers upstream:
//   the orders that it is made of have its samples one after the other, each once, with the
//   learning rates of their steps;
//   an order that is done was one round of the site, which members have reported, and its outcome
//   is the sum of what they have; the servers have all that those have contributed;
//   the samples that count are of the grant, none of them twice, and as many as the uplink reports;
//   members compute on the weights that came with the grant, and what is handed in is the site's
//   weights after the rounds of these orders, all of them and no others, but those of rounds that
//   all members were lost from, and of an order that the uplink has given up as it stopped.
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
  // `audit`: of the site's own servers and workers.
  AuditedSite(Audit* audit, std::string name) : audit_(audit), name_(std::move(name)) {}

  // A server begins. `look` has its audit look at all weights.
  void Begin(site::Site* site, std::function<void()> look);
  // It ends: whatever is answered from now on does not leave its process.
  void End() { is_over_ = true; }

  // The uplink carries out a grant, and has done so.
  void BeginWindow(const Grant& grant, absl::Span<const float> weights);
  void EndWindow(const RoundReport& report, absl::Span<const float> weights);

  absl::StatusOr<DatasetInfo> AwaitData(const Interrupted& is_interrupted) override;
  int StepsOfOrder() override { return site_->StepsOfOrder(); }
  absl::Status PutWeights(absl::Span<const float> weights) override;
  absl::Status GetWeights(absl::Span<float> weights) override;
  absl::StatusOr<SiteOutcome> CarryOut(const SiteOrder& order,
                                       const Interrupted& is_interrupted) override;
  void TellUpstream(absl::string_view words) override { site_->TellUpstream(words); }
  void OnUpstreamEnd(const absl::Status& outcome) override { site_->OnUpstreamEnd(outcome); }

 private:
  template <typename... Pieces>
  void Fail(const Pieces&... pieces) {
    audit_->Fail(name_, ": round ", grant_.round.value(), " of the servers upstream: ", pieces...);
  }
  void CheckOrder(const SiteOrder& order);
  void CheckOutcome(const SiteOrder& order, const SiteOutcome& outcome);

  Audit* const audit_;
  const std::string name_;
  site::Site* site_ = nullptr;
  std::function<void()> look_;
  bool is_over_ = true;

  // These members are for the grant at hand.
  Grant grant_;
  std::vector<float> weights_;  // that it begins with
  bool has_weights_ = false;    // the site
  int64_t next_sample_ = 0;     // of the next order
  size_t next_step_ = 0;
  std::vector<Round> rounds_;                         // that orders were done with
  std::vector<std::pair<int64_t, int64_t>> counted_;  // samples: first, and the one after the last
  double loss_sum_ = 0.0;
};

}  // namespace lodestar::simulation
