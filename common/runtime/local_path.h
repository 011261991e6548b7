// The path of a file or folder of this machine, as a flag or a word of a command line names it.
// What is meant for another program (a URL of a bucket, a variable or quotes that no shell has
// taken away) would be made as a folder of that name here, and what is written there would be lost.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lodestar {

// Errors: InvalidArgument that names the path, what is wrong with it and what to give, for a URL
// (s3://bucket/run), HOST:/PATH, ~/PATH, $NAME, quotes at an end, and blanks at an end. A folder
// that is called so is given as ./NAME.
absl::Status CheckLocalPath(absl::string_view path);

// The value of a flag that CheckLocalPath() has passed.
class LocalPath {
 public:
  LocalPath() = default;
  // Implicit, because the default of a flag is a string.
  LocalPath(std::string path) : path_(std::move(path)) {}  // NOLINT
  LocalPath(const char* path) : path_(path) {}             // NOLINT

  // Implicit, because a path is a string everywhere else.
  operator const std::string&() const { return path_; }  // NOLINT

 private:
  std::string path_;
};

bool AbslParseFlag(absl::string_view text, LocalPath* path, std::string* error);
std::string AbslUnparseFlag(const LocalPath& path);

}  // namespace lodestar
