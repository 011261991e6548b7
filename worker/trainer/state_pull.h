// SPDX-License-Identifier: Apache-2.0

// Pulls the state of the servers' optimizer, for programs that store it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/clock.h"
#include "common/runtime/ids.h"
#include "worker/client/bulk_transport.h"

namespace lodestar::trainer {

// Blocks until the present `state_vector`-th vector of the state (1 means the first) is in `state`,
// which has all elements of the layout. Returns the versions of the weights that the state belongs
// to, by bucket. Tries again while servers are unreachable. Errors: InvalidArgument (the optimizer
// has fewer vectors); Cancelled, Aborted (the life is over).
absl::StatusOr<std::vector<Version>> PullState(const messages::Registration& registration,
                                               uint32_t state_vector, absl::Span<float> state,
                                               client::ParameterTransport* transport, Clock* clock);

}  // namespace lodestar::trainer
