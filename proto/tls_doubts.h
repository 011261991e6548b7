// What may keep a program and its servers from coming to terms over TLS: gRPC says no more of it
// than that the socket was closed.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/security/credentials.h"

namespace lodestar {

// In words, without the time of day, so that the same doubts are the same text; empty: none. `own`:
// what this program shows, and whom it believes, of `files`. `server`: the certificate that the
// server at `address` shows; empty: it has shown none. Pure.
std::string TlsDoubts(const Credentials& own, const CredentialFiles& files,
                      absl::string_view address, const std::string& server, absl::Time now);

// Of the files as they are now, and of the first of `servers` (HOST:PORT[,HOST:PORT...]) that
// answers. Blocks for at most `timeout` at each. Empty: there are no doubts, or the files cannot be
// read.
std::string FindTlsDoubts(const CredentialFiles& files, const std::string& servers,
                          absl::Duration timeout);

// A line for people, with the time of day, which often is what is wrong.
std::string TlsDoubtsLine(absl::string_view doubts, absl::Time now);

}  // namespace lodestar
