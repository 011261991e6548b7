#include "common/security/credentials.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/file_io.h"
#include "common/output_file.h"
#include "common/security/secret_file.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

constexpr int64_t kMaxFileBytes = 1 << 20;

}  // namespace

CredentialFiles CredentialFilesIn(const std::string& folder) {
  return {.key = absl::StrCat(folder, "/key.pem"),
          .certificate = absl::StrCat(folder, "/certificate.pem"),
          .authority = absl::StrCat(folder, "/authority.pem")};
}

absl::Status WriteCredentials(const std::string& folder, const Credentials& credentials) {
  RETURN_IF_ERROR(MakeSecretFolder(folder));
  const CredentialFiles files = CredentialFilesIn(folder);
  RETURN_IF_ERROR(WriteSecretFile(files.key, credentials.key));
  RETURN_IF_ERROR(WriteFileAtomically(files.authority, credentials.authority));
  return WriteFileAtomically(files.certificate, credentials.certificate);
}

void ForgetCertificate(const CredentialFiles& files) { unlink(files.certificate.c_str()); }

absl::StatusOr<Credentials> ReadCredentials(const CredentialFiles& files) {
  Credentials credentials;
  ASSIGN_OR_RETURN(credentials.key, ReadSecretFile(files.key, kMaxFileBytes));
  ASSIGN_OR_RETURN(credentials.certificate, ReadWholeFile(files.certificate, kMaxFileBytes));
  ASSIGN_OR_RETURN(credentials.authority, ReadWholeFile(files.authority, kMaxFileBytes));
  return credentials;
}

absl::StatusOr<CertificateFacts> CheckCredentials(const CredentialFiles& files) {
  ASSIGN_OR_RETURN(const Credentials credentials, ReadCredentials(files));
  const auto with_path = [](const std::string& path, const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  };
  if (const auto valid = ValidityOf(credentials.authority); !valid.ok()) {
    return with_path(files.authority, valid.status());
  }
  absl::StatusOr<CertificateFacts> facts = FactsOf(credentials.certificate);
  if (!facts.ok()) return with_path(files.certificate, facts.status());
  const absl::Status purposes = CheckPurposes(credentials.certificate, facts->identity.role);
  if (!purposes.ok()) return with_path(files.certificate, purposes);
  const absl::Status fits = CheckKeyFits(credentials.certificate, credentials.key);
  if (!fits.ok()) return with_path(files.key, fits);
  return facts;
}

}  // namespace lodestar
