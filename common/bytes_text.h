// Numbers of bytes for people.
#pragma once

#include <cstdint>
#include <string>

namespace lodestar {

// "512 B", "1.5 kB", "1.5 MB", "2.25 GB": powers of ten, as disks and memory are sold.
std::string BytesText(int64_t bytes);

}  // namespace lodestar
