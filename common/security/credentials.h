// Credentials of a process: a private key and a certificate that it shows to its peers, and the
// authority's certificate to check peers. All are PEM files. If the files change, gRPC reads them
// again.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/security/certificates.h"

namespace lodestar {

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
};

// Writes the files, and creates the folder if needed. As long as the key and the authority stay the
// same, a reader finds either the old or the new certificate.
absl::Status WriteCredentials(const std::string& folder, const Credentials& credentials);

// Removes the certificate after it has become useless.
void ForgetCertificate(const CredentialFiles& files);

// Reads the files and checks that they fit together. Errors: those of the files; PermissionDenied
// (others may read the key); InvalidArgument (the key does not fit the certificate, or the
// certificate has no identity).
absl::StatusOr<CertificateFacts> CheckCredentials(const CredentialFiles& files);
absl::StatusOr<Credentials> ReadCredentials(const CredentialFiles& files);

}  // namespace lodestar
