// The newest credentials that were whole, of files that their owner may replace or damage at any
// time. gRPC reads the copies: it ends the process if a certificate is empty, and refuses every
// connection if a key does not fit its certificate. Not thread-safe.
#pragma once

#include <string>
#include <utility>

#include "common/runtime/file_descriptor.h"
#include "common/security/credentials.h"

namespace lodestar {

class CredentialCopies {
 public:
  // Reads `source`. As long as that was never whole, the copies hold nothing of use.
  explicit CredentialCopies(CredentialFiles source);

  // Paths of the copies. They stay the same, and hold for this process while this object exists.
  // If the system has no files in memory, they are those of `source`.
  CredentialFiles paths() const;
  // Reads `source`, and replaces the copies if it has changed and CheckCredentials() passes.
  // Returns true if it has replaced them. Blocks for the disk.
  bool Refresh();

 private:
  bool Put(const Credentials& credentials);

  const CredentialFiles source_;
  Credentials current_;
  FileDescriptor key_;
  FileDescriptor certificate_;
  FileDescriptor authority_;
};

}  // namespace lodestar
