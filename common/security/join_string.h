// One line that lets a machine into a cluster, and lets the machine know the cluster:
//   lodestar://HOST:PORT[,HOST:PORT...]/L1<SHA-256 of the authority's certificate>.<id>.<secret>
// A machine that has the line checks the certificate by the hash before it sends the secret.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar {

struct JoinString {
  std::string servers;           // HOST:PORT[,HOST:PORT...]: where the coordinator may be
  std::string authority_sha256;  // of the DER encoding: 64 hexadecimal digits
  std::string token_id;
  std::string secret;

  std::string ToString() const;
};

// Ignores white space, a byte order mark, quotes and `LODESTAR_JOIN=` around the line. `what` names
// where the text comes from. Errors: InvalidArgument, which names the character in the way and
// never the text, because it holds a secret.
absl::StatusOr<JoinString> ParseJoinString(absl::string_view what, absl::string_view text);

// Reads what --join says: the line itself, or the path of a file that holds it. Errors:
// InvalidArgument, those of the file, PermissionDenied if others may read it. None has the secret.
absl::StatusOr<JoinString> ReadJoinString(absl::string_view what, const std::string& value);

}  // namespace lodestar
