// SPDX-License-Identifier: Apache-2.0

#include "server/membership/registration_limit.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/runtime/status_hints.h"

namespace lodestar::membership {
namespace {

constexpr absl::Duration kMinute = absl::Minutes(1);
constexpr char kLoopback[] = "loopback";

std::string OriginOfIpv4(absl::string_view host) {
  return absl::StartsWith(host, "127.") ? kLoopback : std::string(host);
}

std::string OriginOfIpv6(std::string host) {
  host = host.substr(0, host.find('%'));  // removes the zone
  in6_addr address;
  if (inet_pton(AF_INET6, host.c_str(), &address) != 1) return host;
  if (IN6_IS_ADDR_LOOPBACK(&address)) return kLoopback;
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &address.s6_addr[12], text, sizeof(text));
    return OriginOfIpv4(text);
  }
  std::memset(&address.s6_addr[8], 0, 8);
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, &address, text, sizeof(text));
  return absl::StrCat(text, "/64");
}

absl::Status TooMany(absl::string_view origin, double per_minute, absl::Duration rest) {
  return WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                            "too many registrations ", origin, ": more than ", per_minute,
                            " in a minute; the next one is allowed in ",
                            absl::FormatDuration(absl::Ceil(rest, absl::Milliseconds(100))))),
                        rest);
}

absl::Duration UntilOne(double left, double per_minute) {
  return kMinute * ((1.0 - left) / per_minute);
}

}  // namespace

std::string PeerOrigin(absl::string_view peer) {
  if (absl::StartsWith(peer, "unix")) return kLoopback;
  const bool is_ipv6 = absl::ConsumePrefix(&peer, "ipv6:");
  if (!is_ipv6) absl::ConsumePrefix(&peer, "ipv4:");
  const absl::string_view host = peer.substr(0, peer.rfind(':'));
  if (!is_ipv6) return OriginOfIpv4(host);
  const std::string plain =
      absl::StrReplaceAll(host, {{"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}, {"%25", "%"}});
  return OriginOfIpv6(plain);
}

absl::Status RegistrationLimit::Take(absl::string_view peer, absl::Time now) {
  ForgetOld(now);
  const std::string origin = PeerOrigin(peer);
  const double per_minute = origin == kLoopback ? config_.from_loopback : config_.per_origin;
  Refill(all_, config_.in_all, now);
  const auto known = origins_.find(origin);
  Allowance own = known == origins_.end()
                      ? Allowance{.left = per_minute, .as_of = absl::InfinitePast()}
                      : known->second;
  Refill(own, per_minute, now);
  if (own.left < 1) {
    return TooMany(absl::StrCat("from ", origin), per_minute, UntilOne(own.left, per_minute));
  }
  if (all_.left < 1) return TooMany("in all", config_.in_all, UntilOne(all_.left, config_.in_all));
  own.left -= 1;
  all_.left -= 1;
  origins_[origin] = own;
  return absl::OkStatus();
}

void RegistrationLimit::Refill(Allowance& allowance, double per_minute, absl::Time now) {
  if (now <= allowance.as_of) return;
  const double minutes = absl::FDivDuration(now - allowance.as_of, kMinute);
  allowance.left = std::min(per_minute, allowance.left + minutes * per_minute);
  allowance.as_of = now;
}

// An origin that was silent for a minute has its full allowance again, so it can be forgotten.
void RegistrationLimit::ForgetOld(absl::Time now) {
  if (now - looked_at_ < kMinute / 4) return;
  looked_at_ = now;
  std::erase_if(origins_, [now](const auto& entry) { return now - entry.second.as_of > kMinute; });
}

}  // namespace lodestar::membership
