// Files that only their owner may read: keys, join strings, tokens.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar {

// Errors: those of the file; PermissionDenied naming the command that mends it if others than the
// owner may read or write it; InvalidArgument if it is longer, or no regular file.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path, int64_t max_bytes);

// With mode 0600, on the disk when it returns; replaces a file that is there, or that one stays.
absl::Status WriteSecretFile(const std::string& path, absl::string_view contents);

// Makes the folder, and those above it that are missing, with mode 0700. One that is there must be
// this user's, and closed to the writing of others. Errors: PermissionDenied, those of the system.
absl::Status MakeSecretFolder(const std::string& path);

}  // namespace lodestar
