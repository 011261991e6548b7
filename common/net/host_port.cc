// SPDX-License-Identifier: Apache-2.0

#include "common/net/host_port.h"

#include <arpa/inet.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/runtime/join_secret.h"
#include "common/runtime/peer_text.h"

namespace lodestar::net {
namespace {

constexpr int kMaxPort = 65535;
// RFC 1035 allows names of 253 characters. The rest is for brackets, zone, colon and port.
constexpr size_t kMaxAddressBytes = 300;

// Returns true if `host` has only characters of names and addresses, and is not a URI scheme of
// gRPC. For example, gRPC would read "unix:1" as the path of a file.
bool IsHost(absl::string_view host, bool had_brackets) {
  const absl::string_view punctuation = had_brackets ? ":.%-_" : ".-_";
  const bool has_only_letters = std::all_of(host.begin(), host.end(), [punctuation](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains(punctuation, c);
  });
  constexpr absl::string_view kSchemes[] = {"dns",  "google-c2p", "ipv4",          "ipv6",
                                            "unix", "vsock",      "unix-abstract", "xds"};
  return !host.empty() && has_only_letters &&
         std::none_of(std::begin(kSchemes), std::end(kSchemes), [host](absl::string_view scheme) {
           return absl::EqualsIgnoreCase(host, scheme);
         });
}

}  // namespace

std::string HostPort::ToString() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

bool HostPort::IsLoopback() const {
  if (host == "localhost" || host == "::1") return true;
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127;
}

bool IsAddress(const std::string& host) {
  in6_addr bytes;  // large enough for both families
  return inet_pton(AF_INET, host.c_str(), &bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &bytes) == 1;
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view flag, absl::string_view value,
                                       int lowest_port) {
  if (HasJoinString(value)) {
    const bool is_upstream = flag == "upstream";
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", WithoutJoinSecrets(value),
                     " is a join string, but this flag takes HOST:PORT; ",
                     is_upstream ? "give the join string with --upstream_join"
                                 : "give the join string with --join or in $LODESTAR_JOIN"));
  }
  const absl::Status wrong = absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, " is not HOST:PORT with a port of ", lowest_port, " to ",
                   kMaxPort, ", as in 127.0.0.1:50051, server1:50051 or [::1]:50051"));
  const size_t colon = value.rfind(':');
  if (colon == absl::string_view::npos) return wrong;
  HostPort address;
  if (!absl::SimpleAtoi(value.substr(colon + 1), &address.port) || address.port < lowest_port ||
      address.port > kMaxPort) {
    return wrong;
  }
  absl::string_view host = value.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[") != absl::ConsumeSuffix(&host, "]")) return wrong;
  const bool had_brackets = host.size() + 2 == colon;
  if (!IsHost(host, had_brackets)) return wrong;
  address.host = std::string(host);
  return address;
}

absl::Status CheckPeerAddress(absl::string_view what, absl::string_view address) {
  if (address.size() <= kMaxAddressBytes && ParseHostPort("", address, /*lowest_port=*/1).ok()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the address of ", what, ", \"", PeerText(address, kMaxAddressBytes),
      "\", is not HOST:PORT with a port of 1 to ", kMaxPort,
      "; this program does not connect to that server. Correct --advertise of the server"));
}

}  // namespace lodestar::net
