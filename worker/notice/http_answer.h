// SPDX-License-Identifier: Apache-2.0

// HttpAnswerReader joins the pieces in which the answer of an HTTP/1.x server arrives. It is for
// the short answers of a metadata service. A long answer is an error.
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

// Reads one answer. Not thread-safe.
class HttpAnswerReader {
 public:
  // Maximum size of header and body together, in bytes.
  static constexpr size_t kMaxBytes = 64 * 1024;

  // Adds the next bytes. Errors: InvalidArgument if the answer is not HTTP; ResourceExhausted if it
  // is too long.
  absl::Status Add(absl::string_view bytes);
  // Returns true if the header says where the answer ends, and all bytes up to there have arrived.
  // If the header does not say it, returns false: the answer ends when the connection ends.
  bool is_complete() const;
  // Returns the answer. Call when no more bytes follow. Errors: InvalidArgument if the answer is
  // not HTTP; Unavailable if it ended too soon.
  absl::StatusOr<FetchedAnswer> Finish() const;

 private:
  absl::Status ReadHeader();
  absl::string_view body() const { return absl::string_view(bytes_).substr(*body_begin_); }

  std::string bytes_;
  // Where the body begins. Not set means that the header has not arrived.
  std::optional<size_t> body_begin_;
  int status_ = 0;
  std::optional<size_t> body_bytes_;  // Length of the body in the header.
  bool is_chunked_ = false;
};

}  // namespace lodestar::notice
