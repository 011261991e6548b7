// SPDX-License-Identifier: Apache-2.0

#include "common/security/credentials.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/output/output_file.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"
#include "common/security/secret_file.h"
#include "common/storage/folder_sync.h"

namespace lodestar::security {
namespace {

constexpr int64_t kMaxFileBytes = 1 << 20;

// Swaps the folders `prepared` and `place` in one step. If the file system cannot do that, renames
// `place` first and `prepared` after it.
absl::Status Exchange(const std::string& prepared, const std::string& place) {
  if (renameat2(AT_FDCWD, prepared.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) == 0) {
    return absl::OkStatus();
  }
  // NFS, for example, cannot swap folders. There, `place` does not exist for a moment, and a
  // process that reads it tries again.
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) {
    return ErrnoStatus(errno, "replace", place);
  }
  const std::string old = absl::StrCat(prepared, "-old");
  if (rename(place.c_str(), old.c_str()) != 0) return ErrnoStatus(errno, "replace", place);
  if (rename(prepared.c_str(), place.c_str()) != 0) {
    const absl::Status failure = ErrnoStatus(errno, "replace", place);
    rename(old.c_str(), place.c_str());
    return failure;
  }
  std::error_code error;
  std::filesystem::remove_all(old, error);
  return absl::OkStatus();
}

}  // namespace

CredentialFiles CredentialFilesIn(const std::string& folder) {
  return {.key = absl::StrCat(folder, "/key.pem"),
          .certificate = absl::StrCat(folder, "/certificate.pem"),
          .authority = absl::StrCat(folder, "/authority.pem"),
          .is_kept = true};
}

// Replaces the whole folder, so that a reader finds either the old or the new files. If the key and
// the authority stay the same, replaces only the certificate.
absl::Status WriteCredentials(const std::string& folder, const Credentials& credentials) {
  const CredentialFiles files = CredentialFilesIn(folder);
  RETURN_IF_ERROR(MakeSecretFolder(folder));
  const absl::StatusOr<Credentials> present = ReadCredentials(files);
  if (present.ok() && present->key == credentials.key &&
      present->authority == credentials.authority) {
    return output::WriteFileAtomically(files.certificate, credentials.certificate);
  }
  const std::filesystem::path place(folder);
  const std::string prepared =
      place.parent_path() / absl::StrCat(".", place.filename().string(), "-", getpid());
  std::error_code error;  // an earlier process with the same id may have left such a folder
  std::filesystem::remove_all(prepared, error);
  const auto remove =
      absl::MakeCleanup([&prepared, &error] { std::filesystem::remove_all(prepared, error); });
  RETURN_IF_ERROR(MakeSecretFolder(prepared));
  const CredentialFiles fresh = CredentialFilesIn(prepared);
  RETURN_IF_ERROR(WriteSecretFile(fresh.key, credentials.key));
  RETURN_IF_ERROR(output::WriteFileAtomically(fresh.authority, credentials.authority));
  RETURN_IF_ERROR(output::WriteFileAtomically(fresh.certificate, credentials.certificate));
  RETURN_IF_ERROR(Exchange(prepared, folder));
  return storage::FsyncDirectory(place.parent_path());
}

void ForgetCertificate(const CredentialFiles& files) { unlink(files.certificate.c_str()); }

absl::StatusOr<Credentials> ReadCredentials(const CredentialFiles& files) {
  Credentials credentials;
  ASSIGN_OR_RETURN(credentials.key, files.is_kept ? ReadKeptSecretFile(files.key, kMaxFileBytes)
                                                  : ReadSecretFile(files.key, kMaxFileBytes));
  ASSIGN_OR_RETURN(credentials.certificate, ReadWholeFile(files.certificate, kMaxFileBytes));
  ASSIGN_OR_RETURN(credentials.authority, ReadWholeFile(files.authority, kMaxFileBytes));
  return credentials;
}

absl::StatusOr<CertificateFacts> CheckCredentials(const CredentialFiles& files) {
  ASSIGN_OR_RETURN(const Credentials credentials, ReadCredentials(files));
  return CheckCredentials(credentials, files);
}

absl::StatusOr<CertificateFacts> CheckCredentials(const Credentials& credentials,
                                                  const CredentialFiles& files) {
  const auto with_path = [](const std::string& path, const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  };
  for (const auto& [text, path] : {std::pair(&credentials.key, &files.key),
                                   std::pair(&credentials.certificate, &files.certificate),
                                   std::pair(&credentials.authority, &files.authority)}) {
    if (text->empty())
      return absl::InvalidArgumentError(absl::StrCat(*path, ": the file is empty"));
  }
  for (const auto& [text, path] : {std::pair(&credentials.certificate, &files.certificate),
                                   std::pair(&credentials.authority, &files.authority)}) {
    const absl::Status whole = CheckCertificates(*text);
    if (!whole.ok()) return with_path(*path, whole);
  }
  absl::StatusOr<CertificateFacts> facts = FactsOf(credentials.certificate);
  if (!facts.ok()) return with_path(files.certificate, facts.status());
  const absl::Status purposes = CheckPurposes(credentials.certificate, facts->identity.role);
  if (!purposes.ok()) return with_path(files.certificate, purposes);
  const absl::Status fits = CheckKeyFits(credentials.certificate, credentials.key);
  if (!fits.ok()) return with_path(absl::StrCat(files.key, " and ", files.certificate), fits);
  return facts;
}

}  // namespace lodestar::security
