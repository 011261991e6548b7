// RunHistory on the wire.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/history/run_history.h"
#include "proto/status_service.pb.h"

namespace lodestar::wire {

// What `request` asks for.
v1::HistoryReply HistoryToProto(const RunHistory& history, const v1::HistoryRequest& request);

// Error: InvalidArgument: columns of different lengths.
absl::StatusOr<RunHistory> HistoryFromProto(const v1::HistoryReply& reply);

}  // namespace lodestar::wire
