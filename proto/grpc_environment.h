// SPDX-License-Identifier: Apache-2.0

// Checks variables of the environment that gRPC reads. With some values gRPC aborts or refuses
// every connection, and does not say why.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lodestar::wire {

// Checks that gRPC can work with the variables. Call before gRPC starts. Errors: InvalidArgument
// naming a variable, its value and the values that gRPC takes.
absl::Status CheckGrpcEnvironment();

// Ends the process with an error message and exit code 1 if OpenSSL does not work (see
// ExitUnlessOpensslWorks()), or if CheckGrpcEnvironment() fails. Every program of ours calls this
// function at the top of main(). `program` is the program's name.
void ExitUnlessTransportWorks(absl::string_view program);

}  // namespace lodestar::wire
