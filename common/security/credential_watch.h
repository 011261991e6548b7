// Checks that a server's credential files can still be used. Their owner may replace them at any
// time, and gRPC then uses the new files.
#pragma once

#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/security/credentials.h"

namespace lodestar {

class CredentialWatch {
 public:
  explicit CredentialWatch(CredentialFiles files) : files_(std::move(files)) {}

  // Returns a message for the operator if the state of the files has changed. Empty means that
  // nothing has changed. A fault is reported only if a second check finds the same fault, because
  // an owner replaces files one after the other. `now` is the time of the machine's clock. Reads
  // the files at most once per kLookInterval.
  std::string Look(absl::Time now);

  static constexpr absl::Duration kLookInterval = absl::Seconds(10);
  // If this program does not renew a certificate, it is reported at most this time before its end.
  // For a certificate with a short life the time is a tenth of its life.
  static constexpr absl::Duration kLongestNotice = absl::Hours(7 * 24);

 private:
  // Returns what is wrong with the files. Empty means that they can be used.
  std::string Fault(absl::Time now) const;

  const CredentialFiles files_;
  absl::Time looked_at_ = absl::InfinitePast();
  std::string seen_;  // result of the last check
  std::string told_;
};

}  // namespace lodestar
