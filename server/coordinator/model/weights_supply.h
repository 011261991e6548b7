// SPDX-License-Identifier: Apache-2.0

// Remembers which client supplies the first weights, if the job's model is `client`. Pure data.
#pragma once

#include <optional>

#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"

namespace lodestar::model {

class WeightsSupply {
 public:
  // The whole state of this object except others_since(), which starts again in Resume().
  struct Memory {
    bool is_awaited = false;
    std::optional<messages::WorkerLife> supplier;
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  // Continues from the memory. The time since which others wait for the supplier starts again at
  // `now`.
  void Resume(const Memory& memory, absl::Time now) {
    memory_ = memory;
    others_since_ = now;
  }
  const Memory& memory() const { return memory_; }

  // Resets the state when the servers start. If `is_by_client`, a client must supply the weights.
  void Begin(bool is_by_client) {
    memory_.is_awaited = is_by_client;
    memory_.supplier.reset();
    others_since_.reset();
  }
  bool is_awaited() const { return memory_.is_awaited; }
  // Returns the life that supplies the weights. Not set means that no life has claimed the supply.
  const std::optional<messages::WorkerLife>& supplier() const { return memory_.supplier; }

  // Returns the time since which other workers wait for the supplier. Not set means that none has
  // asked.
  std::optional<absl::Time> others_since() const { return others_since_; }

  // Returns true if this life is the supplier. The first life that calls becomes the supplier.
  // Returns false if no weights are awaited from a client.
  bool Claim(const messages::WorkerLife& life, absl::Time now) {
    if (!memory_.is_awaited) return false;
    if (!memory_.supplier.has_value()) memory_.supplier = life;
    if (memory_.supplier->incarnation == life.incarnation) return true;
    if (!others_since_.has_value()) others_since_ = now;
    return false;
  }
  // Records that the life has joined. A supplier that joins has supplied the weights.
  void OnJoined(const messages::WorkerLife& life) {
    if (memory_.supplier.has_value() && memory_.supplier->incarnation == life.incarnation)
      memory_.is_awaited = false;
  }
  // Must be called when a life has ended. Returns true if it was the supplier and the weights are
  // still awaited. The next life that calls Claim() then becomes the supplier.
  bool OnEnded(Incarnation incarnation) {
    const bool is_lost = memory_.is_awaited && memory_.supplier.has_value() &&
                         memory_.supplier->incarnation == incarnation;
    if (is_lost) Begin(/*is_by_client=*/true);
    return is_lost;
  }

 private:
  Memory memory_;
  std::optional<absl::Time> others_since_;
};

}  // namespace lodestar::model
