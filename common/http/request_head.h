// SPDX-License-Identifier: Apache-2.0

// Says whether an HTTP/1 request is complete, before it is parsed. So no thread waits for a client
// that sends byte by byte, and no large request is parsed. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace lodestar::http {

inline constexpr size_t kMaxRequestLineBytes = 1024;
inline constexpr size_t kMaxHeadBytes = 8192;  // maximum, including the request line
inline constexpr size_t kMaxBodyBytes = 1024;

enum class RequestProgress : uint8_t {
  kIncomplete,
  kComplete,
  kLineTooLong,  // HTTP status 414
  kHeadTooLong,  // HTTP status 431
  kBodyTooLong,  // HTTP status 413
  kMalformed,    // HTTP status 400
  kNoMethod,     // HTTP status 405: not GET, HEAD or POST
  kPacked,       // HTTP status 415: the body has a Content-Encoding
  kPart,         // HTTP status 416: the request has a Range
};

// Returns the state of a request of which `bytes` have arrived so far. The length of a body is its
// Content-Length. A chunked body is malformed, because no browser sends forms that way. If the
// result is kComplete, the limits above bound the cost of parsing.
RequestProgress JudgeRequest(absl::string_view bytes);

// Returns the whole answer to a request that is refused. Requires: `progress` is neither
// kIncomplete nor kComplete.
std::string RefusalOf(RequestProgress progress);

}  // namespace lodestar::http
