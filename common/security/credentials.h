// What a process shows to its peers, and by what it knows them: a private key, a certificate and
// the certificate of the authority, as PEM files. gRPC reads them again when they change.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/security/certificates.h"

namespace lodestar {

struct CredentialFiles {
  std::string key;
  std::string certificate;  // may go on with those between it and the authority
  std::string authority;    // one or several
  bool is_kept = false;     // by this program, in a folder of its own

  friend bool operator==(const CredentialFiles&, const CredentialFiles&) = default;
};

// key.pem, certificate.pem and authority.pem.
CredentialFiles CredentialFilesIn(const std::string& folder);

struct Credentials {
  std::string key;
  std::string certificate;
  std::string authority;
};

// Makes the folder. A reader finds the old or the new certificate, as long as the key stays.
absl::Status WriteCredentials(const std::string& folder, const Credentials& credentials);

// Removes the certificate, which is worth nothing any more.
void ForgetCertificate(const CredentialFiles& files);

// What is in a certificate. Errors: those of the files; PermissionDenied if others may read the
// key; InvalidArgument if the key is another one's or the certificate has no identity.
absl::StatusOr<CertificateFacts> CheckCredentials(const CredentialFiles& files);
absl::StatusOr<Credentials> ReadCredentials(const CredentialFiles& files);

}  // namespace lodestar
