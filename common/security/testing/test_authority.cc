// SPDX-License-Identifier: Apache-2.0

#include "common/security/testing/test_authority.h"

#include <gtest/gtest.h>

#include "common/runtime/check.h"
#include "common/runtime/file_io.h"

namespace lodestar::security {

TestAuthority::TestAuthority() {
  authority_.key = NewPrivateKey();
  const absl::Time now = absl::Now();
  const auto certificate =
      MakeAuthority(authority_.key, {now - absl::Hours(2), now + absl::Hours(24)});
  LODESTAR_CHECK(certificate.ok()) << certificate.status();
  authority_.certificate = *certificate;
}

std::string TestAuthority::Issue(const std::string& key, const Identity& identity,
                                 absl::Duration lifetime) const {
  const auto request = MakeCertificateRequest(key);
  LODESTAR_CHECK(request.ok()) << request.status();
  const absl::Time now = absl::Now();
  const auto certificate =
      IssueCertificate(authority_, *request, identity, {now - absl::Hours(1), now + lifetime});
  LODESTAR_CHECK(certificate.ok()) << certificate.status();
  return *certificate;
}

CredentialFiles TestAuthority::FilesFor(const Identity& identity, absl::Duration lifetime) const {
  const std::string folder = ::testing::TempDir() + "/credentials-" + RandomHex(8);
  const std::string key = NewPrivateKey();
  const absl::Status written =
      WriteCredentials(folder, {.key = key,
                                .certificate = Issue(key, identity, lifetime),
                                .authority = authority_.certificate});
  LODESTAR_CHECK(written.ok()) << written;
  return CredentialFilesIn(folder);
}

void TestAuthority::Renew(const CredentialFiles& files, const Identity& identity) const {
  const auto credentials = ReadCredentials(files);
  LODESTAR_CHECK(credentials.ok()) << credentials.status();
  const absl::Status written = WriteCredentials(
      DirectoryOf(files.key), {.key = credentials->key,
                               .certificate = Issue(credentials->key, identity, absl::Hours(1)),
                               .authority = authority_.certificate});
  LODESTAR_CHECK(written.ok()) << written;
}

}  // namespace lodestar::security
