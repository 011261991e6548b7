// absl::Status <-> grpc::Status, and what each code means. What a caller does about it:
// common/runtime/remedy.h.
//
// UNAVAILABLE          not reachable, not ready
// DEADLINE_EXCEEDED    no answer in time
// RESOURCE_EXHAUSTED   memory, disk, message size: tell an operator
// DATA_LOSS            a checksum does not hold: send the round again
// ABORTED              this life is over: register again, start from Pull
// FAILED_PRECONDITION  not in this state: change first what the text names
// NOT_FOUND            does not exist, or not yet
// ALREADY_EXISTS       the name is taken
// INVALID_ARGUMENT     can never succeed
// PERMISSION_DENIED    nor these: OUT_OF_RANGE, UNAUTHENTICATED
// UNIMPLEMENTED        the call is not known, or was damaged on its way
// CANCELLED            the caller cancelled
// INTERNAL, UNKNOWN    no server of ours says so: broken frames, a broken stream, or a defect
#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"

namespace lodestar::wire {

// Sends the hints of common/runtime/status_hints.h as ErrorDetails (proto/error_details.proto).
// Messages longer than 2 KiB are cut: they travel in HTTP/2 headers, which have a limit.
grpc::Status ToGrpcStatus(const absl::Status& status);
// What a peer, or gRPC itself, has answered. INTERNAL and UNKNOWN become Unavailable: within a
// process those codes mean its own defects. So does a refusal without text: a server names its
// cause, so the answer was damaged on its way. An error always has a text.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace lodestar::wire
