// Whether a request of HTTP/1 has come whole, before anybody takes it apart: so that no thread
// waits for who sends it byte by byte, and nothing large is looked at. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace lodestar {

inline constexpr size_t kMaxRequestLineBytes = 1024;
inline constexpr size_t kMaxHeadBytes = 8192;  // with the request line
inline constexpr size_t kMaxBodyBytes = 1024;

enum class RequestProgress : uint8_t {
  kIncomplete,
  kComplete,
  kLineTooLong,  // 414
  kHeadTooLong,  // 431
  kBodyTooLong,  // 413
  kMalformed,    // 400
  kNoMethod,     // 405: none of GET, HEAD, POST
  kPacked,       // 415: the body has a Content-Encoding
  kPart,         // 416: a Range of a page is asked for
};

// `bytes`: as many as have come, from the first on. A body has the length that Content-Length says;
// one that comes in chunks is malformed: no browser sends a form so. What is complete is bounded by
// these numbers also once it is taken apart.
RequestProgress JudgeRequest(absl::string_view bytes);

// The whole answer to what is neither incomplete nor complete.
std::string RefusalOf(RequestProgress progress);

}  // namespace lodestar
