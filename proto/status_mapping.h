// absl::Status <-> grpc::Status, and what each code tells the caller to do.
//
// UNAVAILABLE          not reachable, not ready       same call again, with back-off
// DEADLINE_EXCEEDED    no answer in time              same call again
// RESOURCE_EXHAUSTED   memory, disk, message size     same call later; tell an operator
// DATA_LOSS            a checksum does not hold       send the round again
// ABORTED              this life is over              register again, start from Pull
// FAILED_PRECONDITION  not in this state              change first what the text names
// NOT_FOUND            does not exist, or not yet     change the call
// ALREADY_EXISTS       the name is taken              change the name
// INVALID_ARGUMENT     can never succeed              give up
// PERMISSION_DENIED    nor these: OUT_OF_RANGE, UNAUTHENTICATED, UNIMPLEMENTED
// CANCELLED            the caller cancelled           stop
// INTERNAL, UNKNOWN    our fault                      give up, report it
#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"

namespace lodestar {

// Messages longer than 2 KiB are cut: they travel in HTTP/2 headers, which have a limit.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

// Whether the same call may succeed later without the caller changing anything.
bool IsRetryable(const absl::Status& status);

}  // namespace lodestar
