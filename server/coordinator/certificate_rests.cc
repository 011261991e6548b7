#include "server/coordinator/certificate_rests.h"

#include <algorithm>

namespace lodestar {

void CertificateRests::OnHeldUp(const std::string& certificate, absl::Duration waited,
                                absl::Time now) {
  if (certificate.empty() || waited <= absl::ZeroDuration()) return;
  std::erase_if(until_, [now](const auto& rest) { return rest.second <= now; });
  absl::Time& until = until_.try_emplace(certificate, absl::InfinitePast()).first->second;
  until = std::max(until, now + waited);
}

absl::Duration CertificateRests::Left(absl::string_view certificate, absl::Time now) const {
  const auto rest = until_.find(certificate);
  if (rest == until_.end()) return absl::ZeroDuration();
  return std::max(rest->second - now, absl::ZeroDuration());
}

}  // namespace lodestar
