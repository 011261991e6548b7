// SPDX-License-Identifier: Apache-2.0

// Main memory that this process uses.
#pragma once

#include <cstdint>
#include <string>

namespace lodestar::machine {

// Returns the resident memory of this process in bytes, without mapped files and shared memory. 0
// means that it is not known. `root` is the folder that contains /proc, and tests use trees of
// their own.
int64_t ReadOwnMemory(const std::string& root = "");

}  // namespace lodestar::machine
