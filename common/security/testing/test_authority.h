// SPDX-License-Identifier: Apache-2.0

// An authority for tests, and files with certificates that it issues.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "common/security/credentials.h"

namespace lodestar::security {

class TestAuthority {
 public:
  TestAuthority();

  const Authority& authority() const { return authority_; }
  // Writes a new key, certificate and authority into a new folder. The certificate expires
  // `lifetime` from now. A negative `lifetime` means that it has expired already.
  CredentialFiles FilesFor(const Identity& identity,
                           absl::Duration lifetime = absl::Hours(1)) const;
  // Writes a new certificate for the same key into the existing folder.
  void Renew(const CredentialFiles& files, const Identity& identity) const;

 private:
  std::string Issue(const std::string& key, const Identity& identity,
                    absl::Duration lifetime) const;

  Authority authority_;
};

}  // namespace lodestar::security
