// Where the coordinator is in the life of a job; the transitions are drawn in coordinator.h.
#pragma once

#include <cstdint>

namespace lodestar {

enum class CoordinatorPhase : uint8_t {
  kAwaitingShards,
  kRestoring,
  kAwaitingLayout,
  kLoading,
  kRunning,
  kEvaluating,
  kSaving,
  kDone,
  kFailed,  // the servers cannot go on: see Coordinator::outcome()
};

}  // namespace lodestar
