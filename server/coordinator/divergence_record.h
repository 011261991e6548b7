// What the coordinator knows of a run that has diverged, and what it may do about it. Pure data.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "server/coordinator/cluster_snapshot.h"
#include "server/coordinator/coordinator_state.h"
#include "server/coordinator/divergence_policy.h"

namespace lodestar {

class DivergenceRecord {
 public:
  explicit DivergenceRecord(const DivergencePolicy& policy) : policy_(policy) {}

  void Note(Round round, std::string text, absl::Time now) {
    last_ = {round, std::move(text), now};
  }

  // As they were before this process.
  void Resume(int64_t rollbacks, double learning_rate_scale, double scale_by_operators) {
    rollbacks_ = rollbacks;
    learning_rate_scale_ = learning_rate_scale;
    scale_by_operators_ = scale_by_operators;
  }

  bool MayRollBack() const {
    return policy_.action == DivergenceAction::kRollback && rollbacks_ < policy_.max_rollbacks;
  }
  void RollBack() {
    ++rollbacks_;
    learning_rate_scale_ *= policy_.learning_rate_factor;
  }
  // What has been done to the learning rate before, " (after 2 rollbacks, with the learning rate
  // times 0.4 by operators besides)"; empty: nothing.
  std::string HistoryText() const {
    // Else rounding.
    const bool has_order = std::abs(scale_by_operators_ - 1.0) > 1e-9;
    if (rollbacks_ == 0 && !has_order) return "";
    const std::string rollbacks =
        rollbacks_ == 0
            ? ""
            : absl::StrCat("after ", rollbacks_, rollbacks_ == 1 ? " rollback" : " rollbacks");
    const std::string order =
        has_order
            ? absl::StrFormat("with the learning rate times %.4g by operators", scale_by_operators_)
            : "";
    return absl::StrCat(" (", rollbacks, rollbacks.empty() || order.empty() ? "" : ", ", order,
                        rollbacks.empty() || order.empty() ? "" : " besides", ")");
  }
  int64_t rollbacks() const { return rollbacks_; }
  int nonfinite_limit() const { return policy_.nonfinite_limit; }
  int poison_limit() const { return policy_.poison_limit; }
  int max_rollbacks() const { return policy_.max_rollbacks; }
  double learning_rate_scale() const { return learning_rate_scale_; }

  double scale_by_operators() const { return scale_by_operators_; }

  // As an operator wants it: times `factor` of what it is.
  void MultiplyLearningRateScale(double factor) {
    learning_rate_scale_ *= factor;
    scale_by_operators_ *= factor;
  }

  // A restored state and this record learn what only the other knows: what was before this process,
  // and what came after the checkpoint.
  void Reconcile(LedgerState& ledger, bool is_new_process) {
    if (is_new_process) {
      Resume(ledger.rollbacks, ledger.learning_rate_scale, ledger.scale_by_operators);
    }
    ledger.rollbacks = rollbacks_;
    ledger.learning_rate_scale = learning_rate_scale_;
    ledger.scale_by_operators = scale_by_operators_;
  }

  void Describe(absl::Time now, ClusterSnapshot& snapshot) const {
    snapshot.rollbacks = rollbacks_;
    snapshot.learning_rate_scale = learning_rate_scale_;
    if (last_.has_value()) {
      snapshot.divergence = DivergenceSnapshot{last_->round, last_->text, now - last_->at};
    }
  }

 private:
  struct Last {
    Round round;
    std::string text;
    absl::Time at;
  };

  DivergencePolicy policy_;
  int64_t rollbacks_ = 0;
  double learning_rate_scale_ = 1.0;
  // Of it. The policy of this process need not be that of the rollbacks before it.
  double scale_by_operators_ = 1.0;
  std::optional<Last> last_;
};

}  // namespace lodestar
