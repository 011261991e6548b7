// SPDX-License-Identifier: Apache-2.0

// Files that only their owner may read: keys, join strings, tokens.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::security {

// Reads a secret file that a user has written. Only its owner may read or write it. There are two
// exceptions. For the Secrets of a Kubernetes pod with fsGroup, a file of root may be readable for
// a group of this process. For credentials of systemd, an access control list may let this user
// read a file of root. Errors:
// - Those of the file.
// - PermissionDenied with the remedy: others may read or write the file.
// - InvalidArgument: it is longer than `max_bytes`, or not a regular file.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path, int64_t max_bytes);

// Reads a secret file that this program has written into a folder of MakeSecretFolder(). If the
// group of this user's file may read or write it, but other users may not, first removes the
// group's access. Kubernetes gives the group in fsGroup that access each time that a pod starts.
// Errors: as ReadSecretFile().
absl::StatusOr<std::string> ReadKeptSecretFile(const std::string& path, int64_t max_bytes);

// Writes a file with mode 0600. Replaces an existing file. The file is on disk when the function
// returns. After an error the old file stays.
absl::Status WriteSecretFile(const std::string& path, absl::string_view contents);

// Creates the folder, and missing folders above it, with mode 0700. Rules for a folder that exists:
// - It must belong to this user or to root.
// - Other users must not be able to write into it.
// - If this user owns it and only its group can write into it, the mode becomes 0700. Its files
//   must then belong to this user or to root.
//
// Errors: PermissionDenied with the remedy; those of the system.
absl::Status MakeSecretFolder(const std::string& path);

}  // namespace lodestar::security
