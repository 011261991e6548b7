// Looks whether the files of what a server shows are still of use: their owner may replace them at
// any time, and gRPC takes what is there.
#pragma once

#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/security/credentials.h"

namespace lodestar {

class CredentialWatch {
 public:
  explicit CredentialWatch(CredentialFiles files) : files_(std::move(files)) {}

  // Returns what the operator should know, once each time it changes; empty: nothing new. Files
  // that cannot be used are told of at the second look, because they are replaced one after the
  // other. `now`: what the machine's clock shows. Reads files at most every kLookInterval.
  std::string Look(absl::Time now);

  static constexpr absl::Duration kLookInterval = absl::Seconds(10);
  // A certificate that this program does not renew by itself is told of when so much is left, or a
  // tenth of its time if that is less.
  static constexpr absl::Duration kLongestNotice = absl::Hours(7 * 24);

 private:
  // What is wrong with the files; empty: nothing.
  std::string Fault(absl::Time now) const;

  const CredentialFiles files_;
  absl::Time looked_at_ = absl::InfinitePast();
  std::string seen_;  // by the last look
  std::string told_;
};

}  // namespace lodestar
