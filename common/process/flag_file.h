// SPDX-License-Identifier: Apache-2.0

// Reads the files that --flagfile names.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lodestar::process {

struct FlagFileLine {
  int number = 0;        // number of the line, from 1 on
  std::string argument;  // --name=value or --name, as on a command line
};

// Reads a file with one flag per line. Errors: InvalidArgument naming the line and what is wrong
// with it; those of reading a file.
// - A line is --name=value, --name value or --name.
// - A # at the start of a line or after a blank begins a comment.
// - Double quotes around a value are removed.
// - Empty lines and a byte order mark are skipped.
absl::StatusOr<std::vector<FlagFileLine>> ReadFlagFile(const std::string& path);

}  // namespace lodestar::process
