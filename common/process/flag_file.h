// Files of flags, as --flagfile reads them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lodestar {

struct FlagFileLine {
  int number = 0;        // from 1
  std::string argument;  // as it would stand on a command line: --name=value or --name
};

// One flag per line: --name=value, --name value or --name. A # at the start of a line, or behind a
// blank, begins a comment; a value in double quotes is taken as it stands between them. Empty lines
// and a byte order mark are skipped. Errors: those of reading a file, and InvalidArgument naming
// the line and what is wrong with it.
absl::StatusOr<std::vector<FlagFileLine>> ReadFlagFile(const std::string& path);

}  // namespace lodestar
