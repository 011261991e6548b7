// Who supplies the first weights, where a client does: model `client`. Pure data.
#pragma once

#include <optional>

#include "common/cluster_messages.h"

namespace lodestar {

class WeightsSupply {
 public:
  // All that it knows.
  struct Memory {
    bool is_awaited = false;
    std::optional<WorkerLife> supplier;
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  void Resume(const Memory& memory) { memory_ = memory; }
  const Memory& memory() const { return memory_; }

  // The cluster starts anew.
  void Begin(bool is_by_client) {
    memory_.is_awaited = is_by_client;
    memory_.supplier.reset();
  }
  bool is_awaited() const { return memory_.is_awaited; }
  // Empty: nobody has come forward, or nobody is needed.
  const std::optional<WorkerLife>& supplier() const { return memory_.supplier; }

  // True if this life is to supply the weights: the first to ask is.
  bool Claim(const WorkerLife& life) {
    if (!memory_.is_awaited) return false;
    if (!memory_.supplier.has_value()) memory_.supplier = life;
    return memory_.supplier->incarnation == life.incarnation;
  }
  // Who joins after that has supplied them.
  void OnJoined(const WorkerLife& life) {
    if (memory_.supplier.has_value() && memory_.supplier->incarnation == life.incarnation)
      memory_.is_awaited = false;
  }
  // True if they are awaited and this was the life that was to bring them.
  bool OnEnded(Incarnation incarnation) {
    const bool is_lost = memory_.is_awaited && memory_.supplier.has_value() &&
                         memory_.supplier->incarnation == incarnation;
    if (is_lost) memory_.supplier.reset();
    return is_lost;
  }

 private:
  Memory memory_;
};

}  // namespace lodestar
