// Who supplies the first weights, where a client does: model `client`. Pure data.
#pragma once

#include <optional>

#include "common/cluster_messages.h"

namespace lodestar {

class WeightsSupply {
 public:
  // The cluster starts anew.
  void Begin(bool is_by_client) {
    is_awaited_ = is_by_client;
    supplier_.reset();
  }
  bool is_awaited() const { return is_awaited_; }
  // Empty: nobody has come forward, or nobody is needed.
  const std::optional<WorkerLife>& supplier() const { return supplier_; }

  // True if this life is to supply the weights: the first to ask is.
  bool Claim(const WorkerLife& life) {
    if (!is_awaited_) return false;
    if (!supplier_.has_value()) supplier_ = life;
    return supplier_->incarnation == life.incarnation;
  }
  // Who joins after that has supplied them.
  void OnJoined(const WorkerLife& life) {
    if (supplier_.has_value() && supplier_->incarnation == life.incarnation) is_awaited_ = false;
  }
  // True if they are awaited and this was the life that was to bring them.
  bool OnEnded(Incarnation incarnation) {
    const bool is_lost =
        is_awaited_ && supplier_.has_value() && supplier_->incarnation == incarnation;
    if (is_lost) supplier_.reset();
    return is_lost;
  }

 private:
  bool is_awaited_ = false;
  std::optional<WorkerLife> supplier_;
};

}  // namespace lodestar
