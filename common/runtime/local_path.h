// SPDX-License-Identifier: Apache-2.0

// The path of a file or folder of this machine, given on a command line. Texts that are meant for
// another program are refused, such as a URL of a bucket, or a variable or quotes that no shell has
// replaced. Otherwise a folder of that name would be created here, and users would not find what is
// written to it.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lodestar {

// Checks that `path` is a path of this machine. Errors: InvalidArgument that names the path, the
// fault and what to give, for a URL (s3://bucket/run), HOST:/PATH, ~/PATH, $NAME, and quotes or
// blanks at an end. To name a folder that really has such a name, the user gives ./NAME.
absl::Status CheckLocalPath(absl::string_view path);

// The value of a flag that has passed CheckLocalPath().
class LocalPath {
 public:
  LocalPath() = default;
  // Implicit, because a flag's default is a string.
  LocalPath(std::string path) : path_(std::move(path)) {}  // NOLINT
  LocalPath(const char* path) : path_(path) {}             // NOLINT

  // Implicit, because paths are strings everywhere else.
  operator const std::string&() const { return path_; }  // NOLINT

 private:
  std::string path_;
};

bool AbslParseFlag(absl::string_view text, LocalPath* path, std::string* error);
std::string AbslUnparseFlag(const LocalPath& path);

}  // namespace lodestar
