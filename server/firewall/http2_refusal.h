// The little of an HTTP/2 server that tells a gRPC client why it is refused. Every call on its
// connection fails with one status. A GOAWAY alone does not do: gRPC 1.51 tells the caller nothing
// of its text, and one that comes at once makes the client connect again without any pause. Pure:
// bytes in, bytes out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lodestar::firewall {

class Http2Refusal {
 public:
  // The HTTP/2 code of the GOAWAY at the end.
  enum class GoAwayCode : uint32_t {
    kNoError = 0x0,
    kEnhanceYourCalm = 0xb,
    kInadequateSecurity = 0xc,
  };

  // `status` is not OK, and its text is printable ASCII.
  Http2Refusal(absl::Status status, GoAwayCode code) : status_(std::move(status)), code_(code) {}

  // Takes what the client sends, from its first byte on, in pieces of any size. Returns what is to
  // be sent to it.
  std::string OnBytes(absl::string_view bytes);
  // The last that is sent.
  std::string GoAway() const;

  // True if what has come is no HTTP/2, or more than a refused client needs.
  bool is_broken() const { return is_broken_; }
  int num_calls() const { return num_calls_; }  // that were told

 private:
  void OnFrame(std::string& answer);

  const absl::Status status_;
  const GoAwayCode code_;
  bool is_broken_ = false;
  bool has_greeted_ = false;
  size_t bytes_taken_ = 0;
  size_t bytes_to_skip_ = 24;  // of the preface, then of the payload of a frame
  std::string header_;         // what has come of that of the next frame
  uint32_t last_stream_ = 0;
  int num_calls_ = 0;
};

}  // namespace lodestar::firewall
