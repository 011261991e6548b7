// What a program does with OpenSSL at its start.
#pragma once

#include "absl/strings/string_view.h"

namespace lodestar {

// Ends the process with exit code 1 and a sentence if OpenSSL gives no random bytes or makes no
// TLS context: its configuration may have no default provider. OpenSSL and gRPC would abort, or
// read address 0, later. Every program of ours calls it in main(). `program`: its name.
void ExitUnlessOpensslWorks(absl::string_view program);

}  // namespace lodestar
