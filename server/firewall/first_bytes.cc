// SPDX-License-Identifier: Apache-2.0

#include "server/firewall/first_bytes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lodestar::firewall {
namespace {

struct Opening {
  absl::string_view bytes;
  FirstBytes kind;
  size_t enough;  // number of `bytes` that tell it from all other protocols
};

constexpr absl::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
static_assert(kHttp2Preface.size() == kMaxFirstBytes);

constexpr Opening kOpenings[] = {
    {"\x16\x03", FirstBytes::kTls, 2},
    {kHttp2Preface, FirstBytes::kHttp2, 3},
    {kEnrollmentWord, FirstBytes::kEnrollment, kEnrollmentWord.size()},
    {"GET ", FirstBytes::kHttp1, 4},
    {"HEAD ", FirstBytes::kHttp1, 5},
    {"POST ", FirstBytes::kHttp1, 5},
    {"PUT ", FirstBytes::kHttp1, 4},
    {"DELETE ", FirstBytes::kHttp1, 7},
    {"CONNECT ", FirstBytes::kHttp1, 8},
    {"OPTIONS ", FirstBytes::kHttp1, 8},
    {"TRACE ", FirstBytes::kHttp1, 6},
    {"PATCH ", FirstBytes::kHttp1, 6},
};

}  // namespace

FirstBytes ClassifyFirstBytes(absl::string_view bytes) {
  bool may_become_one = false;
  for (const Opening& opening : kOpenings) {
    const size_t length = std::min(bytes.size(), opening.bytes.size());
    if (bytes.substr(0, length) != opening.bytes.substr(0, length)) continue;
    if (length >= opening.enough) return opening.kind;
    may_become_one = true;
  }
  return may_become_one ? FirstBytes::kIncomplete : FirstBytes::kOther;
}

std::string Http1Refusal() {
  constexpr absl::string_view kText =
      "This is the port of a Lodestar ps_server. It speaks gRPC only, and has no pages.\n"
      "To look at the job: psctl status --server=HOST:PORT\n";
  return absl::StrCat(
      "HTTP/1.1 400 Bad Request\r\n"
      "Content-Type: text/plain; charset=utf-8\r\n"
      "Content-Length: ",
      kText.size(), "\r\nConnection: close\r\n\r\n", kText);
}

std::string TlsRefusal(TlsAlert alert) {
  constexpr char kAlertRecord = 21;
  constexpr char kFatal = 2;
  // Format: [type | version 3.1 | length, 2 bytes | level | alert]
  return {kAlertRecord, 3, 1, 0, 2, kFatal, static_cast<char>(alert)};
}

}  // namespace lodestar::firewall
