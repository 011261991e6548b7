// SPDX-License-Identifier: Apache-2.0

// CredentialCopies keeps copies of credential files. The owner of the files may replace or damage
// them at any time. The copies are the last credentials that could be used. gRPC reads the copies
// and not the files, for two reasons:
// - gRPC ends the process if a certificate is empty.
// - gRPC refuses every connection if a key does not fit its certificate.
//
// The class is not thread-safe.
#pragma once

#include <string>
#include <utility>

#include "common/runtime/file_descriptor.h"
#include "common/security/credentials.h"

namespace lodestar::security {

class CredentialCopies {
 public:
  // Reads the files of `source`. If they cannot be used, no connection can be made with the copies
  // at first. The next Refresh() that returns true repairs that.
  explicit CredentialCopies(CredentialFiles source);

  // Returns the paths of the copies. The paths never change. They are valid in this process only,
  // while this object exists. If the system has no files in memory, returns the paths of `source`.
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

}  // namespace lodestar::security
