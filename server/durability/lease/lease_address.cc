// SPDX-License-Identifier: Apache-2.0

#include "server/durability/lease/lease_address.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/net/host_port.h"

namespace lodestar::lease {
namespace {

constexpr char kFlag[] = "leader_lease";
constexpr char kEtcd[] = "etcd://";

}  // namespace

std::string LeaseAddress::ToString() const {
  return absl::StrCat(kEtcd, absl::StrJoin(endpoints, ","), "/", key);
}

absl::StatusOr<LeaseAddress> ParseLeaseAddress(absl::string_view value) {
  const auto wrong = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("--", kFlag, "=", value, ": ", why,
                                                   "; it must be ", kEtcd,
                                                   "HOST:PORT[,HOST:PORT...]/KEY"));
  };
  absl::string_view rest = value;
  if (!absl::ConsumePrefix(&rest, kEtcd)) return wrong("the scheme is unknown");
  const size_t slash = rest.find('/');
  if (slash == absl::string_view::npos || slash + 1 == rest.size()) return wrong("there is no key");
  LeaseAddress address;
  address.key = std::string(rest.substr(slash + 1));
  for (absl::string_view endpoint : absl::StrSplit(rest.substr(0, slash), ',')) {
    const auto parsed = net::ParseHostPort(kFlag, endpoint, /*lowest_port=*/1);
    if (!parsed.ok()) return wrong(absl::StrCat("'", endpoint, "' is not HOST:PORT"));
    std::string host_port = parsed->ToString();
    if (std::find(address.endpoints.begin(), address.endpoints.end(), host_port) !=
        address.endpoints.end()) {
      return wrong(absl::StrCat(host_port, " is given twice"));
    }
    address.endpoints.push_back(std::move(host_port));
  }
  return address;
}

}  // namespace lodestar::lease
