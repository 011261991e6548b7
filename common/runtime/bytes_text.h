// SPDX-License-Identifier: Apache-2.0

// Writes numbers of bytes as text for readers, and reads such text.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar {

// Returns text such as "512 B", "1.5 kB", "1.5 MB", "2.25 GB". Units are powers of ten.
std::string BytesText(int64_t bytes);

// Reads a number, which may have a fraction, and a unit: kB, MB, GB, TB (powers of ten), KiB, MiB,
// GiB, TiB (powers of 2^10), B or none. Case does not matter. Examples: "500MB", "1.5 GiB",
// "4000000000". Errors: InvalidArgument, with what is allowed, if `text` is not in this form, or
// the number is negative or 2^63 or more.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);

}  // namespace lodestar
