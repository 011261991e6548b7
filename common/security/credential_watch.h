// SPDX-License-Identifier: Apache-2.0

// CredentialWatch checks whether a program can still use its credential files, and reports faults
// to the operator. The owner of the files may replace them at any time, and the new files may be
// wrong.
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

  // Checks the files, but at most once per kLookInterval. Returns a message for the operator if it
  // differs from the last message that was returned:
  // - nullopt means that there is no new message.
  // - An empty text means that nothing is wrong now.
  // - Any other text is a fault that two checks in a row have found. The first check may have come
  //   while the owner was replacing one file after the other.
  //
  // `now` is the time of the machine's clock.
  std::optional<std::string> Look(absl::Time now);

  static constexpr absl::Duration kLookInterval = absl::Seconds(10);
  // A certificate that this program does not renew is reported this long before it expires. If a
  // tenth of its period of validity is shorter, it is reported that long before it expires.
  static constexpr absl::Duration kLongestNotice = absl::Hours(7 * 24);

 private:
  // Returns what is wrong with the files. Empty means that they can be used.
  std::string Fault(absl::Time now);

  const CredentialFiles files_;
  absl::Time looked_at_ = absl::InfinitePast();
  std::optional<std::string> seen_;  // result of the last check
  std::optional<std::string> told_;
  absl::Time whole_until_ = absl::InfinitePast();  // end of the last certificate that could be used
};

}  // namespace lodestar::security
