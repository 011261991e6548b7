// SPDX-License-Identifier: Apache-2.0

// Converts RunHistory to and from messages.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/history/run_history.h"
#include "proto/status_service.pb.h"

namespace lodestar::wire {

// Returns the parts of the history that `request` asks for.
v1::HistoryReply HistoryToProto(const history::RunHistory& history,
                                const v1::HistoryRequest& request);

// Converts a reply. Errors: InvalidArgument if columns differ in length.
absl::StatusOr<history::RunHistory> HistoryFromProto(const v1::HistoryReply& reply);

}  // namespace lodestar::wire
