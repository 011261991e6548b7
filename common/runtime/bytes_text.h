// Numbers of bytes for people, and from them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar {

// "512 B", "1.5 kB", "1.5 MB", "2.25 GB": powers of ten, as disks and memory are sold.
std::string BytesText(int64_t bytes);

// A number, which may have a fraction, and then kB, MB, GB, TB (powers of ten), KiB, MiB, GiB, TiB
// (of 2^10), B or nothing, in letters of either case: "500MB", "1.5 GiB", "4000000000". Errors:
// InvalidArgument, with what is allowed, also for what is below zero or 2^63 and more.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);

}  // namespace lodestar
