// What the environment says to the libraries below: with some values gRPC aborts, or refuses every
// connection.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lodestar::wire {

// Call before gRPC starts. Errors: InvalidArgument naming a variable, its value and the values that
// gRPC takes.
absl::Status CheckGrpcEnvironment();

// Ends the process with exit code 1 and a sentence if ExitUnlessOpensslWorks() does, or if
// CheckGrpcEnvironment() fails. Every program of ours calls it at the top of main(). `program`: its
// name.
void ExitUnlessTransportWorks(absl::string_view program);

}  // namespace lodestar::wire
