#include "common/mutex_setup.h"

#include "absl/synchronization/mutex.h"

namespace lodestar {

void SetUpMutexes() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

}  // namespace lodestar
