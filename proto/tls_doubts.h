// What may keep a program and its servers from coming to terms over TLS: gRPC says no more of it
// than that the socket was closed.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/security/credentials.h"

namespace lodestar::wire {

// Returns the doubts in words, without the time of day, so that the same doubts are the same text.
// The text is empty if there are none. `own` is what this program shows, and whom it believes, of
// `files`. `server` is the certificate that the server at `address` shows. It is empty if the
// server has shown none. Pure.
std::string TlsDoubts(const Credentials& own, const CredentialFiles& files,
                      absl::string_view address, const std::string& server, absl::Time now);

// Finds the doubts about the files as they are now, and about the first of `servers`
// (HOST:PORT[,HOST:PORT...]) that answers. Blocks for at most `timeout` at each. The text is empty
// if there are no doubts, or if the files cannot be read.
std::string FindTlsDoubts(const CredentialFiles& files, const std::string& servers,
                          absl::Duration timeout);

// A line for people, with the time of day, which often is what is wrong.
std::string TlsDoubtsLine(absl::string_view doubts, absl::Time now);

}  // namespace lodestar::wire
