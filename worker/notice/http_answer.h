// An answer of an HTTP/1.x server, put together from the pieces in which it arrives. For the few
// words of a metadata service: what is long, or is no such answer, is an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::notice {

struct FetchedAnswer {
  int status = 0;
  std::string body;
};

// Not thread-safe.
class HttpAnswerReader {
 public:
  // Most bytes of header and body together.
  static constexpr size_t kMaxBytes = 64 * 1024;

  // Errors: InvalidArgument if this is no HTTP, ResourceExhausted if it is too long.
  absl::Status Add(absl::string_view bytes);
  // It is all there, by what its header says. Without such words the end of the connection is the
  // end of the answer.
  bool is_complete() const;
  // Nothing follows. Errors: InvalidArgument, Unavailable if it ended too soon.
  absl::StatusOr<FetchedAnswer> Finish() const;

 private:
  absl::Status ReadHeader();
  absl::string_view body() const { return absl::string_view(bytes_).substr(*body_begin_); }

  std::string bytes_;
  std::optional<size_t> body_begin_;  // once the header is there
  int status_ = 0;
  std::optional<size_t> body_bytes_;  // by the header
  bool is_chunked_ = false;
};

}  // namespace lodestar::notice
