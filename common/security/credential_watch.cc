// SPDX-License-Identifier: Apache-2.0

#include "common/security/credential_watch.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/time_text.h"

namespace lodestar::security {
std::optional<std::string> CredentialWatch::Look(absl::Time now) {
  const absl::Duration since = now - looked_at_;
  // If the clock was set back, `since` is negative, and the files are read at once.
  if (since >= absl::ZeroDuration() && since < kLookInterval) return std::nullopt;
  looked_at_ = now;
  const std::string fault = Fault(now);
  const bool is_seen_again = fault == std::exchange(seen_, fault);
  if (!is_seen_again || fault == told_) return std::nullopt;
  told_ = fault;
  return fault;
}

std::string CredentialWatch::Fault(absl::Time now) {
  const absl::StatusOr<CertificateFacts> facts = CheckCredentials(files_);
  if (!facts.ok()) {
    return absl::StrCat(
        "TLS: ", facts.status().message(), ". New connections still use the previous files",
        whole_until_ == absl::InfinitePast()
            ? ""
            : absl::StrCat(", with a certificate that ends at ", UtcText(whole_until_)),
        ". Replace the files by a key, a certificate and an authority that belong together; no "
        "restart is needed");
  }
  const Validity& validity = facts->validity;
  whole_until_ = validity.until;
  if (now >= validity.until) {
    return absl::StrCat("TLS: the certificate in ", files_.certificate, " expired at ",
                        UtcText(validity.until),
                        ", so no new connection can be made. Renew it; no restart is needed");
  }
  if (now < validity.from) {
    return absl::StrCat("TLS: the certificate in ", files_.certificate, " is valid only from ",
                        UtcText(validity.from), ", and the clock of this machine says ",
                        UtcText(now), ". Set the clock, or wait");
  }
  const absl::Duration notice = std::min((validity.until - validity.from) / 10, kLongestNotice);
  if (files_.is_kept || validity.until - now > notice) return "";
  return absl::StrCat("TLS: the certificate in ", files_.certificate, " ends at ",
                      UtcText(validity.until), ". Replace it before then; no restart is needed");
}

}  // namespace lodestar::security
