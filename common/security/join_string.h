// SPDX-License-Identifier: Apache-2.0

// A join string is a line with which a machine can join a cluster:
//   lodestar://HOST:PORT[,HOST:PORT...]/L1<SHA-256 of the authority's certificate>.<id>.<secret>
// The machine compares the authority's certificate with the hash before it sends the secret. So the
// secret never reaches a wrong cluster.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::security {

struct JoinString {
  std::string servers;  // HOST:PORT[,HOST:PORT...]: addresses that the coordinator may have
  std::string authority_sha256;  // hash of the DER encoding, 64 hexadecimal digits
  std::string token_id;
  std::string secret;

  std::string ToString() const;
};

// Parses a join string. Ignores white space, a byte order mark, quotes and `LODESTAR_JOIN=` around
// the line. `what` says where the text comes from. Errors: InvalidArgument, which names the wrong
// character and never the text, because the text holds a secret.
absl::StatusOr<JoinString> ParseJoinString(absl::string_view what, absl::string_view text);

// Reads the value of --join: the line itself, or the path of a file that holds it. Errors:
// InvalidArgument; those of the file; PermissionDenied (others may read the file). No error
// contains the secret.
absl::StatusOr<JoinString> ReadJoinString(absl::string_view what, const std::string& value);

}  // namespace lodestar::security
