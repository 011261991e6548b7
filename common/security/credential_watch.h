// SPDX-License-Identifier: Apache-2.0

// Looks whether the files of what a program shows are still of use: their owner may replace them at
// any time, and CredentialCopies takes what is whole.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/security/credentials.h"

namespace lodestar::security {

class CredentialWatch {
 public:
  explicit CredentialWatch(CredentialFiles files) : files_(std::move(files)) {}

  // Returns a message for the operator, once each time it changes. An empty text means that nothing
  // is wrong any more. Not set means that nothing has changed. A fault is reported only if a second
  // check finds the same fault, because an owner replaces files one after the other. `now` is the
  // time of the machine's clock. Reads the files at most once per kLookInterval.
  std::optional<std::string> Look(absl::Time now);

  static constexpr absl::Duration kLookInterval = absl::Seconds(10);
  // If this program does not renew a certificate, it is reported at most this time before its end.
  // For a certificate with a short life the time is a tenth of its life.
  static constexpr absl::Duration kLongestNotice = absl::Hours(7 * 24);

 private:
  // Returns what is wrong with the files. Empty means that they can be used.
  std::string Fault(absl::Time now);

  const CredentialFiles files_;
  absl::Time looked_at_ = absl::InfinitePast();
  std::optional<std::string> seen_;  // result of the last check
  std::optional<std::string> told_;
  absl::Time whole_until_ = absl::InfinitePast();  // end of the last certificate that was whole
};

}  // namespace lodestar::security
