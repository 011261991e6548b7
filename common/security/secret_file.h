// Files that only their owner may read: keys, join strings, tokens.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar {

// Reads a secret that a user has put there. Only its owner may read or write it; a file of root may
// also be readable for a group that this process is in, as the Secrets of a Kubernetes pod with
// fsGroup are. Errors: those of the file; PermissionDenied with the remedy if others may read or
// write it; InvalidArgument if it is longer, or no regular file.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path, int64_t max_bytes);

// Reads a secret that this program has written into a folder of MakeSecretFolder(). A file of this
// user that its group may read or write is closed to the group first: Kubernetes opens all files of
// a volume to the group of fsGroup, each time that a pod begins. Errors: as ReadSecretFile().
absl::StatusOr<std::string> ReadKeptSecretFile(const std::string& path, int64_t max_bytes);

// With mode 0600, on the disk when it returns; replaces a file that is there, or that one stays.
absl::Status WriteSecretFile(const std::string& path, absl::string_view contents);

// Makes the folder, and those above it that are missing, with mode 0700. A folder of this user that
// its group may write into is closed to the group. Any other folder that is there must be this
// user's or root's, and closed to the writing of others. Errors: PermissionDenied with the remedy,
// those of the system.
absl::Status MakeSecretFolder(const std::string& path);

}  // namespace lodestar
