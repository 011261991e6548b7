// What this process takes of main memory.
#pragma once

#include <cstdint>
#include <string>

namespace lodestar {

// Returns the memory of this process in bytes that is resident, and in no file or shared memory. 0
// means that it is not known. `root` is where /proc is; tests have trees of their own.
int64_t ReadOwnMemory(const std::string& root = "");

}  // namespace lodestar
