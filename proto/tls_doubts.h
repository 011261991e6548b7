// SPDX-License-Identifier: Apache-2.0

// Finds reasons why TLS between a program and its servers may fail. gRPC only reports that the
// socket was closed.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/security/credentials.h"

namespace lodestar::wire {

// Returns the reasons as text, without the time of day, so that the same reasons give the same
// text. Empty means that no reason was found. `own` is this program's certificate and the
// authorities that it trusts, from `files`. `server` is the certificate of the server at `address`,
// or empty if the server has shown none. Pure.
std::string TlsDoubts(const security::Credentials& own, const security::CredentialFiles& files,
                      absl::string_view address, const std::string& server, absl::Time now);

// Finds reasons in the files as they are now, and in the certificate of the first of `servers`
// (HOST:PORT[,HOST:PORT...]) that answers. Blocks for at most `timeout` per server. Empty means
// that no reason was found, or that the files cannot be read.
std::string FindTlsDoubts(const security::CredentialFiles& files, const std::string& servers,
                          absl::Duration timeout);

// Returns a line for messages, with the time of day, because a wrong clock is often the reason.
std::string TlsDoubtsLine(absl::string_view doubts, absl::Time now);

}  // namespace lodestar::wire
