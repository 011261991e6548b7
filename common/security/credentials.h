// SPDX-License-Identifier: Apache-2.0

// The credentials of a process: a private key, a certificate that it shows to its peers, and the
// certificate of the authority that must have issued the peers' certificates. They are PEM files,
// which are read again when they change.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/security/certificates.h"

namespace lodestar::security {

struct CredentialFiles {
  std::string key;
  std::string certificate;  // may be followed by intermediate certificates
  std::string authority;    // one or several certificates
  bool is_kept = false;     // true: this program keeps the files and renews them

  friend bool operator==(const CredentialFiles&, const CredentialFiles&) = default;
};

// Returns the files key.pem, certificate.pem and authority.pem in the folder.
CredentialFiles CredentialFilesIn(const std::string& folder);

struct Credentials {
  std::string key;
  std::string certificate;
  std::string authority;

  friend bool operator==(const Credentials&, const Credentials&) = default;
};

// Writes the files, and creates the folder if needed. As long as the key and the authority stay the
// same, a reader finds either the old or the new certificate.
absl::Status WriteCredentials(const std::string& folder, const Credentials& credentials);

// Removes the certificate. The key and the authority stay.
void ForgetCertificate(const CredentialFiles& files);

// Checks the files and returns what the certificate says. Errors:
// - Those of the files.
// - PermissionDenied: others may read the key.
// - InvalidArgument: a file is empty or damaged, or the key does not belong to the certificate.
// - InvalidArgument: the certificate has no identity, or its purposes do not fit its role.
absl::StatusOr<CertificateFacts> CheckCredentials(const CredentialFiles& files);
// Does the same for `credentials`, which were read from `files`. Errors: InvalidArgument, which
// names the file.
absl::StatusOr<CertificateFacts> CheckCredentials(const Credentials& credentials,
                                                  const CredentialFiles& files);
absl::StatusOr<Credentials> ReadCredentials(const CredentialFiles& files);

}  // namespace lodestar::security
