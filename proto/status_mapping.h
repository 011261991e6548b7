// SPDX-License-Identifier: Apache-2.0

// Converts absl::Status to and from grpc::Status, and says what each code means. For what a caller
// does about each code, see common/runtime/remedy.h.
//
// UNAVAILABLE          not reachable, not ready
// DEADLINE_EXCEEDED    no answer in time
// RESOURCE_EXHAUSTED   memory, disk, message size: tell an operator
// DATA_LOSS            a checksum does not match: send the round again
// ABORTED              this incarnation is over: register and join again
// FAILED_PRECONDITION  not possible in this state: first change what the text names
// NOT_FOUND            does not exist, or not yet
// ALREADY_EXISTS       the name is taken
// INVALID_ARGUMENT     can never succeed
// PERMISSION_DENIED    can never succeed, like OUT_OF_RANGE and UNAUTHENTICATED
// UNIMPLEMENTED        the call is not known, or was damaged on its way
// CANCELLED            the caller cancelled
// INTERNAL, UNKNOWN    never from our servers: broken frames, a broken stream, or a defect
#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"

namespace lodestar::wire {

// Converts a status for sending. Hints of common/runtime/status_hints.h become ErrorDetails
// (proto/error_details.proto). Messages longer than 2 KiB are cut, because they are sent in HTTP/2
// headers, which have a limit.
grpc::Status ToGrpcStatus(const absl::Status& status);
// Converts the answer of a peer or of gRPC itself. INTERNAL and UNKNOWN become Unavailable: in this
// process, these codes are only for defects of the process itself. A refusal without text becomes
// Unavailable too. A server always says why it refuses, so the answer was damaged on its way. The
// resulting error always has a text.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace lodestar::wire
