// An authority for tests, and the files of those whom it vouches for.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "common/security/credentials.h"

namespace lodestar {

class TestAuthority {
 public:
  TestAuthority();

  const Authority& authority() const { return authority_; }
  // In a folder of their own. `lifetime`: from now; negative: it has expired.
  CredentialFiles FilesFor(const Identity& identity,
                           absl::Duration lifetime = absl::Hours(1)) const;
  // Again, in the folder where they are, with the same key.
  void Renew(const CredentialFiles& files, const Identity& identity) const;

 private:
  std::string Issue(const std::string& key, const Identity& identity,
                    absl::Duration lifetime) const;

  Authority authority_;
};

}  // namespace lodestar
